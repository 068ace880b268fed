#include "inspect/part.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include "inspect/single_weights.hpp"

namespace heed::detail {
namespace {

double cells_of_row(const Problem& p, const Segment& segment, std::int64_t i) {
  const KeyRange keys = keys_of(p, segment, i - segment.query_begin + segment.offset);
  return static_cast<double>(keys.end - keys.begin);
}

// Copies the given rows of [B, H, Lq, C] side by side and points the operand at the copy. A broadcast axis
// stays a single entry.
Tensor gathered(Operand& operand, const Problem& p, std::int64_t columns,
                const std::vector<std::int64_t>& rows) {
  if (!operand || operand.stride[2] == 0) return Tensor();
  const auto size = [&](int axis, std::int64_t count) { return operand.stride[axis] == 0 ? 1 : count; };
  Tensor copy({size(0, p.batch), size(1, p.heads), std::ssize(rows), size(3, columns)}, operand.dtype);
  const auto width = static_cast<std::int64_t>(size_of(operand.dtype));
  const auto* from = static_cast<const std::byte*>(operand.data);
  auto* to = static_cast<std::byte*>(copy.mutable_view().data());
  for (std::int64_t b = 0; b < copy.size(0); ++b)
    for (std::int64_t h = 0; h < copy.size(1); ++h)
      for (const std::int64_t row : rows)
        for (std::int64_t c = 0; c < copy.size(3); ++c, to += width)
          std::memcpy(to,
                      from + width * (b * operand.stride[0] + h * operand.stride[1] +
                                      row * operand.stride[2] + c * operand.stride[3]),
                      static_cast<std::size_t>(width));
  operand.data = copy.view().data();
  for (int axis = 0; axis < 4; ++axis)
    if (operand.stride[axis] != 0) operand.stride[axis] = copy.view().strides()[axis];
  return copy;
}

// Runs of consecutive rows of each segment, as ranges of indices into `rows`.
std::vector<Segment> runs_of(const Problem& p, const std::vector<std::int64_t>& rows) {
  std::vector<Segment> runs;
  for (const Segment& whole : p.segments) {
    const auto first = std::ranges::lower_bound(rows, whole.query_begin);
    for (auto row = first; row != rows.end() && *row < whole.query_end; ++row) {
      if (row != first && *row == *(row - 1) + 1) {
        ++runs.back().query_end;
        continue;
      }
      const std::int64_t place = row - rows.begin();
      runs.push_back({whole.batch, place, place + 1, whole.key_begin, whole.key_end,
                      whole.offset + *row - whole.query_begin});
    }
  }
  return runs;
}

template <class Place>
void move_to(Place& place, int axis, std::int64_t index) {
  if (!place) return;
  using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(place.data)>>,
                                  const std::byte, std::byte>;
  place.data = static_cast<Byte*>(place.data) +
               index * place.stride[axis] * static_cast<std::int64_t>(size_of(place.dtype));
}

std::int64_t ceil_of(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

struct Span {
  std::int64_t begin, count;
};

// A span of `count` out of `all` that contains `middle`, centred if possible.
Span around(std::int64_t middle, std::int64_t count, std::int64_t all) {
  return {std::clamp<std::int64_t>(middle - count / 2, 0, all - count), count};
}

// A problem with the first heads of some batch entries, and some rows. (Outputs without a row axis do not
// move.)
Problem part_of(const Problem& whole, Span batch, std::int64_t kv_heads, Span rows) {
  Problem p = whole;
  p.batch = batch.count;
  p.heads = whole.heads / whole.kv_heads * kv_heads;
  p.kv_heads = kv_heads;
  p.query_length = rows.count;
  for (Operand* each : {&p.query, &p.key, &p.value, &p.mask, &p.bias, &p.alibi_slopes, &p.decay})
    move_to(*each, 0, batch.begin);
  for (Operand* each : {&p.query, &p.mask, &p.bias}) move_to(*each, 2, rows.begin);
  const PartPlace place{nullptr, rows.begin, batch.begin};
  for (MaskSource& mask : p.sparse_masks) mask.place = place;
  p.score_mod.place = place;
  for (std::size_t i = 0; i < kResultCount; ++i) {
    Output& each = result<Output>(p, i);
    move_to(each, 0, batch.begin);
    if (has_rows(result_entry(i).shape)) move_to(each, 2, rows.begin);
  }
  p.segments.clear();
  for (const Segment& s : whole.segments) {
    const std::int64_t begin = std::max(s.query_begin, rows.begin);
    const std::int64_t end = std::min(s.query_end, rows.begin + rows.count);
    if (s.batch < batch.begin || s.batch >= batch.begin + batch.count || begin >= end) continue;
    p.segments.push_back({s.batch - batch.begin, begin - rows.begin, end - rows.begin, s.key_begin, s.key_end,
                          s.offset + begin - s.query_begin});
  }
  return p;
}

// The batch entry and row where half of the cells come before.
std::pair<std::int64_t, std::int64_t> middle_of(const Problem& p) {
  const double half = cells_of(p) / 2;
  double cells = 0;
  for (const Segment& segment : p.segments)
    for (std::int64_t i = segment.query_begin; i < segment.query_end; ++i) {
      cells += cells_of_row(p, segment, i);
      if (cells >= half) return {segment.batch, i};
    }
  return {0, 0};
}

}  // namespace

double cells_of(const Problem& p) {
  double cells = 0;
  for (const Segment& segment : p.segments)
    for (std::int64_t i = segment.query_begin; i < segment.query_end; ++i)
      cells += cells_of_row(p, segment, i);
  return cells;
}

CallOfRows call_of_rows(const Problem& whole, const std::vector<std::int64_t>& rows) {
  CallOfRows call;
  Problem& p = call.problem;
  p = whole;
  p.segments = runs_of(whole, rows);
  p.query_length = std::ssize(rows);
  call.rows = rows;
  for (MaskSource& mask : p.sparse_masks) mask.place = {call.rows.data(), 0, 0};
  p.score_mod.place = {call.rows.data(), 0, 0};
  call.query = gathered(p.query, whole, whole.head_dim, rows);
  call.mask = gathered(p.mask, whole, whole.key_length, rows);
  call.bias = gathered(p.bias, whole, whole.key_length, rows);
  return call;
}

Problem sample_of(const Problem& whole, std::int64_t blocks, std::int64_t block_rows) {
  const std::int64_t length = whole.query_length;
  if (length * whole.heads * whole.batch == 0) return whole;
  const std::int64_t kv_heads = std::min(whole.kv_heads, blocks);
  const std::int64_t blocks_a_head = std::min(ceil_of(length, block_rows), ceil_of(blocks, kv_heads));
  const std::int64_t entries = std::min(whole.batch, ceil_of(blocks, kv_heads * blocks_a_head));
  const std::int64_t rows = std::min(length, blocks_a_head * block_rows);
  const auto [batch, row] = middle_of(whole);
  Problem p = part_of(whole, around(batch, entries, whole.batch), kv_heads, around(row, rows, length));
  // One thread computes all rows of a bin, so a bin has at most one block.
  p.map_size.rows =
      std::min(whole.map_size.rows, std::max(blocks_a_head, ceil_of(rows * whole.map_size.rows, length)));
  return p;
}

}  // namespace heed::detail
