// A part of a random call: some of its rows, batch entries and key heads.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/tensor/concatenate.hpp"
#include "heed/attention/part.hpp"
#include "random_call.hpp"

namespace heed::test {

/// Narrows an axis to the part's range. A view that broadcasts along the axis is unchanged.
template <class View>
View narrowed(const View& view, int axis_from_end, std::int64_t begin, std::int64_t count) {
  const int axis = view.rank() - axis_from_end;
  if (axis < 0 || view.size(axis) == 1) return view;
  return view.narrow(axis, begin, count);
}

inline Tensor rows_of(const TensorView& view, const std::vector<PositionRange>& rows) {
  const int axis = view.rank() - 2;
  if (axis < 0 || view.size(axis) == 1) return Tensor::copy_of(view);
  std::vector<TensorView> ranges;
  for (const PositionRange& range : rows)
    ranges.push_back(view.narrow(axis, range.begin, range.end - range.begin));
  if (ranges.empty()) ranges.push_back(view.narrow(axis, 0, 0));
  return detail::concatenated(ranges, axis);
}

/// A range of batch entries and of key heads, and some rows.
struct Box {
  std::int64_t batch, batches, kv_head, kv_heads;
  std::vector<PositionRange> rows;
};

/// The call that a caller makes for the box alone, with its inputs in memory of its own.
class CutCall {
 public:
  CutCall(const RandomCall& call, const Box& box) : options(call.options) {
    const TensorView q = call.query, k = call.key, v = call.value;
    const std::int64_t kv_heads = k.rank() > 2 ? k.size(-3) : 1;
    part.batch = q.rank() > 3 ? q.size(-4) : 1;
    part.heads = q.rank() > 2 ? q.size(-3) : 1;
    part.query_length = q.size(-2);
    const std::int64_t group = kv_heads > 0 ? part.heads / kv_heads : 1;
    part.batch_begin = box.batch;
    part.head_begin = box.kv_head * group;
    const auto of_heads = [&](const TensorView& view, int axis, std::int64_t each) {
      return narrowed(narrowed(view, axis + 1, box.batch, box.batches), axis, box.kv_head * each,
                      box.kv_heads * each);
    };
    rows_ = box.rows;
    part.rows = rows_;
    query = rows_of(of_heads(q, 3, group), rows_);
    key = Tensor::copy_of(of_heads(k, 3, 1));
    value = Tensor::copy_of(of_heads(v, 3, 1));
    const auto take = [&](std::optional<TensorView>& view, Tensor made) {
      memory_.push_back(std::move(made));
      view = memory_.back().view();
    };
    memory_.reserve(5);
    if (options.mask) take(options.mask, rows_of(of_heads(*options.mask, 3, group), rows_));
    if (options.bias) take(options.bias, rows_of(of_heads(*options.bias, 3, group), rows_));
    if (options.alibi_slopes)
      take(options.alibi_slopes, Tensor::copy_of(of_heads(*options.alibi_slopes, 1, group)));
    if (options.sinks)
      take(options.sinks,
           Tensor::copy_of(narrowed(*options.sinks, 1, part.head_begin, box.kv_heads * group)));
    if (options.kv_lengths)
      take(options.kv_lengths, Tensor::copy_of(narrowed(*options.kv_lengths, 1, box.batch, box.batches)));
  }

  /// The part of a whole call's result that belongs to this box.
  [[nodiscard]] Tensor share_of(const Tensor& result, bool has_rows, int axes) const {
    const Box box{part.batch_begin, query.rank() > 3 ? query.size(-4) : 1, part.head_begin,
                  query.rank() > 2 ? query.size(-3) : 1, rows_};
    const int missing = 4 - query.rank();
    TensorView view = result.view();
    if (missing < 1) view = view.narrow(0, box.batch, box.batches);
    if (missing < 2) view = view.narrow(view.rank() - axes - 1, box.kv_head, box.kv_heads);
    if (!has_rows) return Tensor::copy_of(view);
    std::vector<TensorView> ranges;
    const int axis = view.rank() - axes;
    for (const PositionRange& range : rows_)
      ranges.push_back(view.narrow(axis, range.begin, range.end - range.begin));
    return detail::concatenated(ranges, axis);
  }

  Tensor query, key, value;
  AttentionOptions options;
  CallPart part;

 private:
  std::vector<PositionRange> rows_;
  std::vector<Tensor> memory_;
};

inline std::vector<PositionRange> some_rows(Draw& draw, std::int64_t length) {
  std::vector<PositionRange> rows;
  for (std::int64_t at = 0; at < length;) {
    const std::int64_t end = draw.between(at + 1, length);
    if (draw.chance(0.6)) rows.push_back({at, end});
    at = end;
  }
  if (rows.empty()) rows.push_back({0, length});
  return rows;
}

/// The number of a result's axes after [B, H].
inline int axes_of(ResultShape shape) {
  switch (shape) {
    case ResultShape::row:
    case ResultShape::key:
    case ResultShape::key_last:
      return 1;
    default:
      return 2;
  }
}

/// Some rows of a call, and sometimes only some of its batch entries and heads.
inline Box random_box(Draw& draw, const RandomCall& call, bool cuts_rows) {
  const std::int64_t batch = call.query.rank() > 3 ? call.query.size(-4) : 1;
  const std::int64_t kv_heads = call.key.rank() > 2 ? call.key.size(-3) : 1;
  const std::int64_t length = call.query.size(-2);
  Box box{0, batch, 0, kv_heads, {{0, length}}};
  if (cuts_rows && draw.chance(0.7)) box.rows = some_rows(draw, length);
  if (draw.chance(0.5) && !call.options.query_segments) {
    box.batch = draw.between(0, batch - 1);
    box.batches = draw.between(1, batch - box.batch);
  }
  if (draw.chance(0.5)) {
    box.kv_head = draw.between(0, kv_heads - 1);
    box.kv_heads = draw.between(1, kv_heads - box.kv_head);
  }
  return box;
}

}  // namespace heed::test
