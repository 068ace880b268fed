#include "attention/kv_cache/read_row.hpp"

#include <algorithm>

#include "attention/kv_cache/codes.hpp"
#include "attention/problem/elements.hpp"

namespace heed::detail {
namespace {

void read_floats(const Operand& from, std::int64_t head, std::int64_t number, std::span<float> to) {
  const std::int64_t at = offset_in(from, 0, head, number);
  with_element_type(from.dtype, [&](auto element) {
    for (std::size_t c = 0; c < to.size(); ++c)
      to[c] = static_cast<float>(
          load<decltype(element)>(from.data, at + static_cast<std::int64_t>(c) * from.stride[3]));
  });
}

}  // namespace

void read_cached_row(const CacheRows& cache, const Operand& from, std::int64_t sequence, bool is_key,
                     std::int64_t head, std::int64_t j, std::span<float> to) {
  const bool has_key_scales = is_key || cache.codes.values_in_keys;
  const CachedSequence& s = cache.sequences[sequence];
  const RowCodes& codes = cache.codes;
  const std::int64_t number = s.rows != nullptr ? s.rows[j] : s.first_row + j;
  if (codes.format == RowFormat::floats) return read_floats(from, head, number, to);
  const auto width = static_cast<std::int64_t>(to.size());
  const std::int64_t stored = has_key_scales ? codes.key_dim : width;
  const std::int64_t position = s.positions != nullptr ? s.positions[j] : j;
  if (position >= s.coded) {
    const std::int64_t length = 2 * codes.group;
    const float* tail =
        (has_key_scales ? s.key_tail : s.value_tail) + (head * length + position % length) * stored;
    std::copy_n(tail, width, to.begin());
    return;
  }
  const auto* row = static_cast<const std::uint8_t*>(from.data) +
                    code_bytes(codes.format, offset_in(from, 0, head, number));
  const std::uint16_t* scales = has_key_scales ? codes.key_scale : codes.value_scale;
  const std::uint16_t* offsets = has_key_scales ? codes.key_offset : codes.value_offset;
  const std::int64_t first = has_key_scales
                                 ? (s.groups[position / codes.group] * cache.kv_heads + head) * stored
                                 : head * codes.value_head_stride + number * codes.value_row_stride;
  for (std::int64_t c = 0; c < width; ++c) {
    const std::int64_t at = first + (has_key_scales ? c : c / codes.value_group);
    const CodeScale scale = {scales[at], offsets != nullptr ? offsets[at] : std::uint16_t{0}};
    to[static_cast<std::size_t>(c)] = decode(codes.format, scale, code_at(codes.format, row, c));
  }
}

}  // namespace heed::detail
