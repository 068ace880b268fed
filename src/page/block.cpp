#include "page/block.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

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

PageBlock page_block_u24(const std::string& name, const TensorView& tensor) {
  const Tensor values = Tensor::copy_of(tensor, DType::i64);
  std::vector<std::byte> bytes;
  bytes.reserve(static_cast<std::size_t>(values.count()) * 3);
  for (const std::int64_t value : values.values<std::int64_t>())
    for (int shift = 0; shift < 24; shift += 8)
      bytes.push_back(static_cast<std::byte>(value >> shift & 0xff));
  return {name, "u24", values.shape(), base64(bytes)};
}

namespace {

std::pair<double, double> positive_range(std::span<const double> values) {
  double least = std::numeric_limits<double>::infinity();
  double largest = 0;
  for (const double value : values) {
    if (!(value > 0) || std::isinf(value)) continue;
    least = std::min(least, value);
    largest = std::max(largest, value);
  }
  return {std::max(least, largest * kLog16Least), largest};
}

}  // namespace

PageBlock page_block_log16(const std::string& name, const TensorView& tensor) {
  const Tensor copy = Tensor::copy_of(tensor, DType::f64);
  const std::span<const double> values = copy.values<double>();
  const auto [least, largest] = positive_range(values);
  constexpr double kSteps = kLog16NaN - 2;
  const double low = largest > 0 ? std::log(least) : 0;
  const double step = largest > least ? (std::log(largest) - low) / kSteps : 0;
  std::vector<std::uint16_t> codes;
  codes.reserve(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    if (value == -std::numeric_limits<double>::infinity()) {
      std::size_t end = i + 1;
      while (end < values.size() && end - i < kLog16Masked && values[end] == value) ++end;
      codes.push_back(kLog16Masked);
      codes.push_back(static_cast<std::uint16_t>(end - i));
      i = end - 1;
    } else if (std::isnan(value)) {
      codes.push_back(kLog16NaN);
    } else if (!(value >= least)) {
      codes.push_back(kLog16Zero);
    } else {
      const double place = step > 0 ? (std::log(value) - low) / step : 0;
      codes.push_back(static_cast<std::uint16_t>(1 + std::lround(std::clamp(place, 0.0, kSteps))));
    }
  }
  return {name, "log16", copy.shape(), base64(std::as_bytes(std::span(codes))), low, step};
}

}  // namespace heed::detail
