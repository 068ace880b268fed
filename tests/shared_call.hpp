// A call of the backward pass whose tasks are distributed at random over ranks, and whose parts are then
// added up.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "attention_support.hpp"
#include "heed/attention/backward_share.hpp"
#include "random_call.hpp"

namespace heed::test {

template <class View>
View with_four_axes(View view) {
  while (view.rank() < 4) view = view.unsqueeze(0);
  return view;
}

inline MutableTensorView keys_of(Tensor& tensor, const GradientTask& task) {
  return with_four_axes(tensor.mutable_view())
      .select(0, task.batch)
      .select(0, task.kv_head)
      .narrow(0, task.keys.begin, task.keys.end - task.keys.begin);
}

inline void fill(const MutableTensorView& view, double value) {
  for_each_index(view.shape(), [&](const Dims& at) { put(view, at, value); });
}

inline CallPart whole_call(const TensorView& query) {
  const TensorView q = with_four_axes(query);
  return {q.size(0), q.size(1), q.size(2), 0, 0, {}};
}

/// Counts over all calls.
struct SharesOutcome {
  std::uint64_t joined = 0, split = 0, needs_all_keys = 0, poisoned = 0, out_of_range = 0;
};

/// One call, distributed at random.
class SharedCall {
 public:
  SharedCall(const AttentionBackwardInputs& inputs, const AttentionOptions& options, CallPart part,
             Draw& draw)
      : inputs_(inputs), options_(options), part_(part), draw_(draw), rows_{{0, part.query_length}} {
    gradients_.query = Tensor(inputs.query.shape(), inputs.query.dtype());
    gradients_.key = Tensor(inputs.key.shape(), inputs.key.dtype());
    gradients_.value = Tensor(inputs.value.shape(), inputs.value.dtype());
    part_.rows = rows_;
    tasks_ = gradient_tasks(inputs.query.shape(), inputs.key.shape(), inputs.value.shape(),
                            inputs.query.dtype(), options, part_);
    parts_.resize(tasks_.size());
  }

  [[nodiscard]] const std::vector<GradientTask>& tasks() const { return tasks_; }

  /// Returns false if f32 cannot hold the call.
  bool join(std::int64_t ranks, SharesOutcome& outcome) {
    std::vector<std::int64_t> rank_of;
    for (std::size_t t = 0; t < tasks_.size(); ++t) rank_of.push_back(draw_.between(0, ranks - 1));
    bool in_range = true;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      std::vector<std::int64_t> mine;
      for (std::size_t t = 0; t < tasks_.size(); ++t)
        if (rank_of[t] == rank) mine.push_back(static_cast<std::int64_t>(t));
      in_range = compute(mine, outcome) && in_range;
    }
    if (!in_range) return false;
    for (std::size_t t = 0; t < tasks_.size(); t += static_cast<std::size_t>(tasks_[t].splits)) add_rows(t);
    return true;
  }

  [[nodiscard]] AttentionGradients& gradients() { return gradients_; }

 private:
  bool compute(const std::vector<std::int64_t>& mine, SharesOutcome& outcome) {
    AttentionBackwardInputs inputs = inputs_;
    Tensor key = Tensor::copy_of(inputs.key), value = Tensor::copy_of(inputs.value);
    const bool all_keys = share_needs_all_keys(inputs, options_, part_, mine);
    if (!all_keys) {
      leave_keys_of(mine, key);
      leave_keys_of(mine, value);
      ++outcome.poisoned;
    }
    outcome.needs_all_keys += all_keys;
    inputs.key = key;
    inputs.value = value;
    Tensor grad_key(key.shape(), key.dtype()), grad_value(value.shape(), value.dtype());
    fill(grad_key.mutable_view(), 77);
    fill(grad_value.mutable_view(), 77);
    std::vector<float> memory(part_floats(mine));
    const GradientShareRun run = attention_backward_share_into(
        inputs, options_, part_, mine, {grad_key.mutable_view(), grad_value.mutable_view(), memory});
    if (run.out_of_range) return false;
    std::size_t at = 0;
    for (const std::int64_t t : mine) {
      const GradientTask& task = tasks_[static_cast<std::size_t>(t)];
      take_keys(grad_key, gradients_.key, task);
      take_keys(grad_value, gradients_.value, task);
      const std::size_t size = part_floats({t});
      parts_[static_cast<std::size_t>(t)].assign(memory.data() + at, memory.data() + at + size);
      at += size;
    }
    // Nothing else was written.
    Tensor untouched(key.shape(), key.dtype()), values(value.shape(), value.dtype());
    fill(untouched.mutable_view(), 77);
    fill(values.mutable_view(), 77);
    EXPECT_TRUE(same_bits(grad_key, untouched));
    EXPECT_TRUE(same_bits(grad_value, values));
    return true;
  }

  void leave_keys_of(const std::vector<std::int64_t>& mine, Tensor& tensor) const {
    Tensor left(tensor.shape(), tensor.dtype());
    fill(left.mutable_view(), std::numeric_limits<double>::quiet_NaN());
    for (const std::int64_t t : mine) {
      const GradientTask& task = tasks_[static_cast<std::size_t>(t)];
      heed::copy(keys_of(tensor, task), keys_of(left, task));
    }
    tensor = left;
  }

  static void take_keys(Tensor& from, Tensor& to, const GradientTask& task) {
    heed::copy(keys_of(from, task), keys_of(to, task));
    fill(keys_of(from, task), 77);
  }

  [[nodiscard]] std::int64_t group() const {
    return inputs_.query.rank() > 2 ? inputs_.query.size(-3) / inputs_.key.size(-3) : 1;
  }

  [[nodiscard]] std::size_t part_floats(const std::vector<std::int64_t>& tasks) const {
    std::int64_t floats = 0;
    for (const std::int64_t t : tasks) {
      const PositionRange& rows = tasks_[static_cast<std::size_t>(t)].rows;
      floats += (rows.end - rows.begin) * group() * inputs_.query.size(-1);
    }
    return static_cast<std::size_t>(floats);
  }

  // Adds up the parts of the splits from `first` on. Several owners each add a range of rows.
  void add_rows(std::size_t first) {
    const GradientTask& task = tasks_[first];
    for (std::int64_t begin = task.rows.begin; begin < task.rows.end;) {
      const std::int64_t end = draw_.between(begin + 1, task.rows.end);
      const std::int64_t row_floats = group() * inputs_.query.size(-1);
      Tensor parts({task.splits, end - begin, group(), inputs_.query.size(-1)}, DType::f32);
      float* to = parts.values<float>().data();
      for (std::int64_t split = 0; split < task.splits; ++split) {
        const float* from =
            parts_[first + static_cast<std::size_t>(split)].data() + (begin - task.rows.begin) * row_floats;
        to = std::copy(from, from + (end - begin) * row_floats, to);
      }
      const MutableTensorView rows = with_four_axes(gradients_.query.mutable_view())
                                         .select(0, task.batch)
                                         .narrow(0, task.kv_head * group(), group())
                                         .narrow(1, begin, end - begin);
      add_gradient_parts(parts, inputs_.grad_output.dtype(), options_, part_, rows);
      begin = end;
    }
  }

  AttentionBackwardInputs inputs_;
  AttentionOptions options_;
  CallPart part_;
  Draw& draw_;
  std::vector<PositionRange> rows_;
  std::vector<GradientTask> tasks_;
  std::vector<std::vector<float>> parts_;
  AttentionGradients gradients_;
};

}  // namespace heed::test
