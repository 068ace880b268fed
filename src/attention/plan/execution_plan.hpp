// The plan of a call: every decision that is made before it runs. A plan depends on shapes, rules, results,
// memory layouts and the machine, and on no number in the tensors. Kernels, and the code
// that runs them (execute/), obey the plan.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "attention/kernels/shared/arguments.hpp"
#include "attention/problem/problem.hpp"
#include "core/recycled.hpp"

namespace heed::detail {

/// The way in which threads go over the keys of a pass's tasks. A row's bits are the same in all of them.
enum class Schedule : std::uint8_t {
  whole_tasks,    ///< one thread computes a task from its first key to its last
  split_kv,       ///< threads share the spans of a task's keys, whose partial results are merged in order
  shared_spans,   ///< the same; tasks that read the same rows go over a span side by side
  keeps_weights,  ///< tasks keep their weights until the sums of their rows are known, for `received`
};

/// A span of a task's keys. Spans with the same `rows` read the same memory.
struct PlannedSpan {
  std::size_t task;
  std::int64_t span;
  std::array<std::int64_t, 3> rows{};  ///< the first and the last row number, and the key head
};

/// A pass over all keys of some segments' rows, with one unit. All results that need no final sums come from
/// it.
struct ForwardPass {
  cpu::Arguments call;  ///< without the memory that belongs to a run
  const cpu::Kernels* unit;
  cpu::Tiling tiling;
  Schedule schedule;
  bool keeps_rows_weights;  ///< keeps all weights of its rows, so they need no weights pass
  std::vector<Segment> segments;
  std::vector<cpu::Task> tasks;
  /// First task of each work item, and the end. A thread runs the tasks of an item in order.
  std::vector<std::size_t> items;
  /// With split_kv and shared_spans:
  std::vector<PlannedSpan> spans;       ///< of all tasks
  std::vector<std::size_t> first_span;  ///< of each task, and the end
  std::vector<std::size_t> span_order;  ///< spans in the order of computation
  std::vector<std::size_t> span_items;  ///< first element of each work item in span_order, and the end
};

/// A pass over queries and keys alone, for results that need the final sums, or for scores.
struct WeightsPass {
  cpu::Arguments call;  ///< without the memory that belongs to a run
  const cpu::Kernels* unit;
  cpu::Tiling tiling;
  std::vector<cpu::WeightsTask> tasks;
};

struct UnmaskedCall;

class ExecutionPlan {
 public:
  /// Throws if the kernel asked for cannot take this call.
  ExecutionPlan(const Problem& problem, Kernel wanted);
  ~ExecutionPlan();
  ExecutionPlan(const ExecutionPlan&) = delete;
  ExecutionPlan& operator=(const ExecutionPlan&) = delete;

  Kernel kernel = Kernel::reference;
  std::string_view isa = "f64 reference";

  // The rest is for the fused kernel.
  int threads = 1;          ///< most threads of a pass
  bool keeps_rows = false;  ///< the forward passes note the shift and the sum of each row
  std::optional<WeightsPass> weights, scores;
  std::unique_ptr<const UnmaskedCall> unmasked;  ///< the call without masks, if their masked mass is wanted
  /// In the order of execution: one pass, or one for each class of packed sequences.
  [[nodiscard]] std::span<const ForwardPass> forward() const { return {passes_->data(), pass_count_}; }

 private:
  void add_pass(const Problem& problem, const cpu::Arguments& call, std::span<const Segment> segments);

  Recycled<std::vector<ForwardPass>> passes_;
  std::size_t pass_count_ = 0;
};

/// Chooses the unit and the tiling of `call`, and plans the pass for these segments and at most `threads`
/// threads (forward_passes.cpp). `pass` may hold an older plan, whose memory is reused.
void plan_pass(const Problem& problem, const cpu::Arguments& call, std::span<const Segment> segments,
               int threads, ForwardPass& pass);

/// A call without its masks and results, of which only the rows' sums are computed.
struct UnmaskedCall {
  explicit UnmaskedCall(const Problem& masked);
  Problem problem;
  ExecutionPlan plan;
};

/// Whether the fused kernel takes this call. It refuses f64, and sizes beyond its working memory.
bool fused_supports(const Problem& problem);
/// The target that the fused kernel uses on this machine: "avx512", "avx2", "neon", "plain", …
std::string_view fused_isa();

}  // namespace heed::detail
