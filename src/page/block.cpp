#include "page/block.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace heed::detail {

static_assert(std::endian::native == std::endian::little, "the page's numbers are little-endian");

std::string base64(std::span<const std::byte> bytes) {
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  constexpr std::size_t kGroup = 3;  // bytes, in four letters of six bits
  std::string text;
  text.reserve((bytes.size() + kGroup - 1) / kGroup * 4);
  for (std::size_t at = 0; at < bytes.size(); at += kGroup) {
    const std::size_t held = std::min(kGroup, bytes.size() - at);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < kGroup; ++i)
      bits = bits << 8 | (i < held ? std::to_integer<std::uint32_t>(bytes[at + i]) : 0U);
    for (std::size_t i = 0; i <= kGroup; ++i) text += i <= held ? kLetters[bits >> (18 - 6 * i) & 63U] : '=';
  }
  return text;
}

PageBlock page_block(const std::string& name, const TensorView& tensor) {
  const bool floating = is_floating(tensor.dtype());
  const Tensor values = Tensor::copy_of(tensor, floating ? DType::f32 : DType::i32);
  const auto* data = static_cast<const std::byte*>(values.view().data());
  const auto bytes = static_cast<std::size_t>(values.count()) * size_of(values.dtype());
  return {name, name_of(values.dtype()), values.shape(), base64({data, bytes})};
}

}  // namespace heed::detail
