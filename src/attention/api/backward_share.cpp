// A share of the gradients, by keys: inputs, options -> checks -> plan -> kernel.
#include "heed/attention/backward_share.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "attention/check/backward_checks.hpp"
#include "attention/check/checks.hpp"
#include "attention/check/overlap.hpp"
#include "attention/execute/backward.hpp"
#include "attention/plan/backward_tasks.hpp"
#include "attention/problem/operands.hpp"
#include "core/message.hpp"
#include "heed/parallel.hpp"

namespace heed {
namespace {

using detail::BackwardProblem;
using detail::refuse;
using detail::cpu::BackwardTask;

void require_all_rows(const BackwardProblem& problem, const CallPart& part) {
  if (problem.forward.query_length != part.query_length)
    refuse("part.rows are ", problem.forward.query_length, " of ", part.query_length,
           " rows; all rows are expected for gradients");
}

std::vector<BackwardTask> tasks_of(const BackwardProblem& problem, Kernel wanted) {
  return detail::BackwardPlan(problem, wanted).tasks;
}

GradientTask described(const BackwardTask& task, std::int64_t work) {
  const std::int64_t first_key = task.rows.key_begin;
  return {task.rows.batch,
          task.rows.head_begin / task.rows.head_count,
          {first_key + task.key_begin, first_key + task.key_end},
          {task.rows.row_begin, task.rows.row_end},
          task.split,
          task.splits,
          work};
}

/// A share's checked call, whose gradients have no places yet, and its tasks.
struct Share {
  BackwardProblem problem;
  std::vector<BackwardTask> tasks;
};

Share check_share(const AttentionBackwardInputs& inputs, const AttentionOptions& options,
                  const CallPart& part, std::span<const std::int64_t> places) {
  if (inputs.grad_weights)
    refuse(
        "grad_weights is given; no gradient of the weights is expected when keys are divided among shares");
  Share share{detail::check_backward(inputs, options, &part), {}};
  require_all_rows(share.problem, part);
  const std::vector<BackwardTask> all = tasks_of(share.problem, options.kernel);
  std::int64_t least = 0;
  for (std::size_t n = 0; n < places.size(); ++n) {
    const auto count = std::ssize(all);
    if (places[n] < least || places[n] >= count)
      refuse("tasks[", n, "] is ", places[n], "; ascending numbers from ", least, ", below ", count,
             ", are expected");
    share.tasks.push_back(all[static_cast<std::size_t>(places[n])]);
    least = places[n] + 1;
  }
  return share;
}

void place_query_parts(std::span<float> memory, const detail::Problem& p, std::vector<BackwardTask>& tasks) {
  if (memory.empty()) return;
  std::int64_t at = 0;
  for (BackwardTask& task : tasks) {
    task.query_part = memory.data() + at;
    at += detail::query_part_size(task, p.head_dim);
  }
  if (at != std::ssize(memory))
    refuse("gradients.query_parts has ", memory.size(), " floats; ", at, " floats for the parts of ",
           tasks.size(), " tasks are expected");
}

// Checks that the parts are [splits, rows, H, D]; only the last stride must be 1.
void check_parts(const TensorView& parts, const MutableTensorView& grad_query) {
  if (grad_query.rank() != 3)
    refuse("grad_query has shape ", grad_query.shape(), "; 3 axes, [H, rows, D], are expected");
  if (!is_floating(grad_query.dtype()) || grad_query.dtype() == DType::f64)
    refuse("grad_query has dtype ", grad_query.dtype(), "; f32, f16 or bf16 is expected");
  if (parts.dtype() != DType::f32) refuse("parts has dtype ", parts.dtype(), "; f32 is expected");
  const Dims expected{parts.rank() > 0 ? std::max<std::int64_t>(parts.size(0), 1) : 1, grad_query.size(1),
                      grad_query.size(0), grad_query.size(2)};
  if (parts.shape() != expected)
    refuse("parts has shape ", parts.shape(), "; ", expected, ", [splits, rows, H, D], is expected");
  if (parts.strides()[3] != 1)
    refuse("parts has strides ", parts.strides(), "; stride 1 is expected for the last axis");
  detail::check_memory("parts", parts);
}

void check_numbers(double scale, int threads, DType grad_output) {
  if (!std::isfinite(scale)) refuse("scale is ", scale, "; a finite number is expected");
  if (threads < 0) refuse("threads is ", threads, "; 0 (all of the machine) or more is expected");
  if (!is_floating(grad_output))
    refuse("grad_output has dtype ", grad_output, "; f64, f32, f16 or bf16 is expected");
}

}  // namespace

std::vector<GradientTask> gradient_tasks(const Dims& query, const Dims& key, const Dims& value, DType dtype,
                                         const AttentionOptions& options, const CallPart& part) {
  return detail::with_memory_errors([&] {
    BackwardProblem problem;
    const detail::CallTensor q = detail::tensor_of("query", query, dtype);  // checked in this order
    const detail::CallTensor k = detail::tensor_of("key", key, dtype);
    problem.forward = detail::check_call(q, k, detail::tensor_of("value", value, dtype), options, &part);
    require_all_rows(problem, part);
    std::vector<GradientTask> tasks;
    for (const BackwardTask& task : tasks_of(problem, options.kernel)) {
      // All key heads of a sequence have the same amount of work.
      const auto head_before = static_cast<std::size_t>(task.rows.head_begin == 0 ? 0 : task.splits);
      tasks.push_back(described(task, head_before == 0 ? detail::visible_cells(problem.forward, task)
                                                       : tasks[tasks.size() - head_before].work));
    }
    detail::recycle(problem.forward);
    return tasks;
  });
}

GradientShareRun attention_backward_share_into(const AttentionBackwardInputs& inputs,
                                               const AttentionOptions& options, const CallPart& part,
                                               std::span<const std::int64_t> tasks,
                                               const GradientShareViews& gradients) {
  return detail::with_memory_errors([&] {
    Share share = check_share(inputs, options, part, tasks);
    detail::bind_gradients({{}, gradients.key, gradients.value, {}, {}}, inputs, options, share.problem);
    detail::check_overlaps(share.problem);
    place_query_parts(gradients.query_parts, share.problem.forward, share.tasks);
    const detail::BackwardPlan plan(share.problem, std::move(share.tasks));
    const detail::ShareRun run = detail::run_fused_share(share.problem, plan);
    detail::recycle(share.problem.forward);
    return GradientShareRun{plan.isa, run.threads, run.out_of_range};
  });
}

bool share_needs_all_keys(const AttentionBackwardInputs& inputs, const AttentionOptions& options,
                          const CallPart& part, std::span<const std::int64_t> tasks) {
  return detail::with_memory_errors([&] {
    const Share share = check_share(inputs, options, part, tasks);
    return std::ranges::any_of(share.tasks, [&](const BackwardTask& task) {
      const auto& segment = share.problem.forward.segments[static_cast<std::size_t>(task.segment)];
      for (std::int64_t h = 0; h < task.rows.head_count; ++h)
        if (task.splits > 1 && detail::recomputes_lse(share.problem, segment, task.rows.head_begin + h))
          return true;
      return false;
    });
  });
}

void add_gradient_parts(const TensorView& parts, DType grad_output, const AttentionOptions& options,
                        const CallPart& part, const MutableTensorView& grad_query) {
  check_parts(parts, grad_query);
  if (grad_query.count() == 0) return;
  detail::QueryPartsProblem problem{
      {parts.data(), DType::f32, {}},
      detail::target_of("grad_query", grad_query, grad_query.shape(), grad_query.dtype(), 1),
      parts.size(0),
      parts.size(1),
      parts.size(2),
      parts.size(3),
      options.scale.value_or(1 / std::sqrt(static_cast<double>(parts.size(3)))),
      grad_output,
      part.query_length,
      options.threads > 0 ? options.threads : default_threads()};
  check_numbers(problem.scale, options.threads, grad_output);
  for (int axis = 0; axis < 4; ++axis) problem.parts.stride[axis] = parts.strides()[axis];
  const auto& [data, dtype, stride] = problem.grad_query;
  detail::check_overlap(
      {"grad_query",
       {data, dtype, {0, stride[1], stride[2], stride[3]}},
       {1, problem.heads, problem.rows, problem.head_dim}},
      {"parts", problem.parts, {problem.splits, problem.rows, problem.heads, problem.head_dim}});
  detail::add_query_parts(problem);
}

}  // namespace heed
