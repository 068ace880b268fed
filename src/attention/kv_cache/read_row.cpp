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
  const auto width = std::ssize(to);
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

GatheredCall with_tensors(const Problem& p) {
  GatheredCall call{Tensor({p.batch, p.kv_heads, p.key_length, p.head_dim}),
                    Tensor({p.batch, p.kv_heads, p.key_length, p.value_dim}), p};
  const auto gather = [&](Tensor& to, const Operand& from, bool are_keys, std::int64_t width) {
    for (const Segment& s : p.segments)
      for (std::int64_t h = 0; h < p.kv_heads; ++h)
        for (std::int64_t j = s.key_begin; j < s.key_end; ++j) {
          const auto at = static_cast<std::size_t>(((s.batch * p.kv_heads + h) * p.key_length + j) * width);
          read_cached_row(*p.cache, from, s.sequence, are_keys, h, j - s.key_begin,
                          to.values<float>().subspan(at, static_cast<std::size_t>(width)));
        }
  };
  gather(call.key, p.key, true, p.head_dim);
  gather(call.value, p.value, false, p.value_dim);
  const auto operand = [&](const Tensor& tensor, std::int64_t width) {
    return Operand{tensor.view().data(),
                   DType::f32,
                   {p.kv_heads * p.key_length * width, p.key_length * width, width, 1}};
  };
  call.problem.key = operand(call.key, p.head_dim);
  call.problem.value = operand(call.value, p.value_dim);
  call.problem.cache = nullptr;
  return call;
}

}  // namespace heed::detail
