#include "attention/check/overlap.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>

#include "attention/check/results.hpp"
#include "core/message.hpp"

namespace heed::detail {
namespace {

// The bytes from a view's lowest element to its highest; `dense` if it has an element at every place in
// between. Its first row, or its first element, has the bytes [first, row_end).
struct Extent {
  const char* name;
  std::uintptr_t begin, end;
  bool dense;
  std::uintptr_t first, row_end;
};

using Sizes = std::array<std::int64_t, 4>;

// Axes of stride 0 are skipped, because they repeat elements. A view is dense if some order of its axes fills
// the memory: each axis steps over exactly what the axes before it cover.
Extent extent_of(const char* name, const void* data, DType dtype, const std::int64_t* stride,
                 const Sizes& sizes) {
  const auto width = static_cast<std::int64_t>(size_of(dtype));
  std::int64_t low = 0;
  std::int64_t high = 0;
  std::int64_t covered = 1;
  for (std::size_t pass = 0; pass < sizes.size(); ++pass)
    for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
      if (sizes[axis] <= 1 || stride[axis] == 0) continue;
      if (std::abs(stride[axis]) == covered) covered *= sizes[axis];
      if (pass > 0) continue;
      const std::int64_t reach = stride[axis] * (sizes[axis] - 1);
      (reach < 0 ? low : high) += reach;
    }
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  return {name,
          at + static_cast<std::uintptr_t>(low * width),
          at + static_cast<std::uintptr_t>((high + 1) * width),
          covered == high - low + 1,
          at,
          at + static_cast<std::uintptr_t>((stride[3] == 1 ? sizes[3] : 1) * width)};
}
Extent extent_of(const MemoryUse& use) {
  return extent_of(use.name, use.view.data, use.view.dtype, use.view.stride, use.size);
}

bool reaches_meet(const Extent& a, const Extent& b) { return a.begin < b.end && b.begin < a.end; }

// A view has an element at both of its ends; a dense view has every byte in between.
bool surely_overlap(const Extent& a, const Extent& b) {
  if (!reaches_meet(a, b)) return false;
  if (a.begin == b.begin || a.end == b.end) return true;
  if (a.first < b.row_end && b.first < a.row_end) return true;
  const auto holds_an_end = [](const Extent& dense, const Extent& other) {
    const bool first = other.begin >= dense.begin && other.begin < dense.end;
    const bool last = other.end > dense.begin && other.end <= dense.end;
    return dense.dense && (first || last);
  };
  return holds_an_end(a, b) || holds_an_end(b, a);
}

// Has a fixed size, because a call of attention_into() must not allocate.
class Extents {
 public:
  void add(const char* name, const void* data, DType dtype, const std::int64_t* stride, const Sizes& sizes) {
    if (data == nullptr || *std::ranges::min_element(sizes) == 0) return;
    extents_[count_++] = extent_of(name, data, dtype, stride, sizes);
  }
  template <class View>
  void add(const char* name, const View& view, const Sizes& sizes) {
    add(name, view.data, view.dtype, view.stride, sizes);
  }
  [[nodiscard]] std::span<const Extent> list() const { return std::span(extents_).first(count_); }

 private:
  static constexpr std::size_t kBackwardInputs = 13;
  static constexpr std::size_t kMax = std::max(kResultCount, kBackwardInputs);
  std::array<Extent, kMax> extents_{};
  std::size_t count_ = 0;
};

Extents inputs_of(const Problem& p) {
  Extents inputs;
  const Sizes scores{p.batch, p.heads, p.query_length, p.key_length};
  inputs.add("query", p.query, {p.batch, p.heads, p.query_length, p.head_dim});
  inputs.add("key", p.key, {p.batch, p.kv_heads, p.key_length, p.head_dim});
  inputs.add("value", p.value, {p.batch, p.kv_heads, p.key_length, p.value_dim});
  inputs.add("mask", p.mask, scores);
  inputs.add("bias", p.bias, scores);
  inputs.add("alibi_slopes", p.alibi_slopes, {p.batch, p.heads, 1, 1});
  inputs.add("sinks", p.sinks, {1, p.heads, 1, 1});
  inputs.add("decay", p.decay, {p.batch, p.heads, p.decay_positions(), 1});
  return inputs;
}

Extents outputs_of(const Problem& p) {
  Extents outputs;
  for (std::size_t i = 0; i < kResultCount; ++i) {
    const ResultEntry& entry = result_entry(i);
    const Dims axes = axes_of(p, entry.shape);
    outputs.add(entry.path, result<Output>(p, i), {p.batch, p.heads, axes[0], axes.size() > 1 ? axes[1] : 1});
  }
  return outputs;
}

Extents inputs_of(const BackwardProblem& problem) {
  const Problem& p = problem.forward;
  Extents inputs = inputs_of(p);
  const Sizes rows{p.batch, p.heads, p.query_length, 1};
  const Sizes output{p.batch, p.heads, p.query_length, p.value_dim};
  inputs.add("output", problem.output, output);
  inputs.add("lse", problem.lse, rows);
  inputs.add("grad_output", problem.grad_output, output);
  inputs.add("grad_lse", problem.grad_lse, rows);
  inputs.add("grad_weights", problem.grad_weights, {p.batch, p.heads, p.query_length, p.key_length});
  return inputs;
}

Extents outputs_of(const BackwardProblem& problem) {
  const Problem& p = problem.forward;
  const auto& bias = problem.grad_bias_size;
  Extents outputs;
  outputs.add("gradients.query", problem.grad_query, {p.batch, p.heads, p.query_length, p.head_dim});
  outputs.add("gradients.key", problem.grad_key, {p.batch, p.kv_heads, p.key_length, p.head_dim});
  outputs.add("gradients.value", problem.grad_value, {p.batch, p.kv_heads, p.key_length, p.value_dim});
  outputs.add("gradients.bias", problem.grad_bias, {bias[0], bias[1], bias[2], bias[3]});
  outputs.add("gradients.sinks", problem.grad_sinks, {1, p.heads, 1, 1});
  outputs.add("gradients.decay", problem.grad_decay, {p.batch, p.heads, p.decay_positions(), 1});
  return outputs;
}

void refuse_overlaps(const Extents& inputs, const Extents& outputs) {
  const std::span<const Extent> all = outputs.list();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto refuse_overlap_with = [&](const Extent& other) {
      if (surely_overlap(all[i], other))
        refuse(all[i].name, " overlaps ", other.name, " in memory; separate memory is expected");
    };
    std::ranges::for_each(inputs.list(), refuse_overlap_with);
    std::for_each(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(i), refuse_overlap_with);
  }
}

}  // namespace

void check_overlap(const MemoryUse& written, const MemoryUse& other) {
  Extents inputs, outputs;
  inputs.add(other.name, other.view, other.size);
  outputs.add(written.name, written.view, written.size);
  refuse_overlaps(inputs, outputs);
}

bool may_overlap(const MemoryUse& a, const MemoryUse& b) { return reaches_meet(extent_of(a), extent_of(b)); }

void check_overlaps(const Problem& problem, std::span<const MemoryUse> more) {
  Extents inputs = inputs_of(problem);
  for (const MemoryUse& memory : more) inputs.add(memory.name, memory.view, memory.size);
  refuse_overlaps(inputs, outputs_of(problem));
}

void check_overlaps(const BackwardProblem& problem) {
  refuse_overlaps(inputs_of(problem), outputs_of(problem));
}

}  // namespace heed::detail
