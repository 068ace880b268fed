#include "attention/plan/backward_plan.hpp"

#include <algorithm>
#include <utility>

#include "attention/isa/dispatch.hpp"
#include "attention/plan/backward_tasks.hpp"
#include "attention/plan/execution_plan.hpp"
#include "attention/plan/lower.hpp"
#include "core/message.hpp"

namespace heed::detail {
namespace {

using cpu::BackwardArguments;
using cpu::BackwardTask;

// Work of fewer forward multiply-adds than this is not worth a second thread. It is half of the forward's
// limit, because a backward pass has 2.5 times as many.
constexpr double kSmallBackwardWork = 1e6;

BackwardArguments lower(const BackwardProblem& p) {
  BackwardArguments call{};
  call.forward = lower(p.forward);
  call.forward.keeps_row_sums = true;
  call.scale = static_cast<float>(p.forward.scale);
  call.output = p.output;
  call.lse = p.lse;
  call.grad_output = p.grad_output;
  call.grad_lse = p.grad_lse;
  call.grad_query = p.grad_query;
  call.grad_key = p.grad_key;
  call.grad_value = p.grad_value;
  call.heads = p.forward.heads;
  return call;
}

// Whether each score has a bias of its own.
bool has_own_bias(const BackwardProblem& p) {
  const std::int64_t whole[4] = {p.forward.batch, p.forward.heads, p.forward.query_length,
                                 p.forward.key_length};
  return std::equal(whole, whole + 4, p.grad_bias_size);
}

std::vector<std::size_t> phases_of(const BackwardProblem& p, const std::vector<BackwardTask>& tasks) {
  const bool by_batch = shares_bias(p, 0, p.forward.batch);
  const bool by_head = shares_bias(p, 1, p.forward.heads);
  // Rows of different segments of a batch entry share a bias only if all rows, or all keys, do.
  const bool by_segment =
      shares_bias(p, 2, p.forward.query_length) && shares_bias(p, 3, p.forward.key_length);
  std::vector<std::size_t> phases{0};
  for (std::size_t t = 1; t < tasks.size(); ++t) {
    const BackwardTask &before = tasks[t - 1], &task = tasks[t];
    if ((by_batch && task.rows.batch != before.rows.batch) || (by_head && task.split == 0) ||
        (by_segment && task.segment != before.segment))
      phases.push_back(t);
  }
  if (!tasks.empty()) phases.push_back(tasks.size());
  return phases;
}

}  // namespace

BackwardPlan::BackwardPlan(const BackwardProblem& problem, Kernel wanted) {
  const bool fused = wanted != Kernel::reference && fused_supports(problem.forward) && !problem.grad_weights;
  if (wanted == Kernel::fused && !fused)
    refuse(
        "kernel is fused, whose backward pass supports f32, f16 and bf16, head and value dimensions from 1 "
        "to 1024, but no gradient of the weights; automatic or reference is expected for this call");
  if (!fused) return;
  tasks = backward_tasks(problem);
  phases = phases_of(problem, tasks);
  plan_fused(problem);
}

BackwardPlan::BackwardPlan(const BackwardProblem& problem, std::vector<BackwardTask> some_tasks)
    : tasks(std::move(some_tasks)), phases{0, tasks.size()} {
  plan_fused(problem);
}

void BackwardPlan::plan_fused(const BackwardProblem& p) {
  kernel = Kernel::fused;
  isa = fused_isa();
  threads = threads_for(p.forward, kSmallBackwardWork);
  call = lower(p);
  if (p.grad_bias && has_own_bias(p)) {
    call.grad_bias = p.grad_bias;
  } else if (p.grad_bias) {
    sums_bias = true;
    std::int64_t stride = 1;
    for (int axis = 3; axis >= 0; --axis) {
      call.bias_stride[axis] = p.grad_bias_size[axis] == 1 ? 0 : stride;
      stride *= p.grad_bias_size[axis];
    }
  }
  if (tasks.empty()) return;
  for (const BackwardTask& task : tasks) {
    tiling.rows = std::max(tiling.rows, task.rows.row_end - task.rows.row_begin);
    tiling.keys = std::max(tiling.keys, task.key_end - task.key_begin);
  }
  const cpu::TargetKernels& target = cpu::kernels();
  unit = &target.backward(call);
  unit_of_failed = &target.all();
  tiling_of_failed = tiling;
  tiling.bytes = unit->backward_bytes(call, tiling.rows, tiling.keys);
  tiling_of_failed.bytes =
      std::max(tiling.bytes, unit_of_failed->backward_bytes(call, tiling.rows, tiling.keys));
  lse_unit = &target.forward(call.forward);
  lse_tiling = lse_unit->plan_tiling(call.forward);
}

}  // namespace heed::detail
