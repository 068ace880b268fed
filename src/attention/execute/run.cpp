#include "attention/execute/run.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "attention/execute/backward.hpp"
#include "attention/plan/decay_skips.hpp"
#include "attention/plan/gathered_gradients.hpp"
#include "attention/plan/gathered_keys.hpp"
#include "attention/reference/reference.hpp"
#include "core/index.hpp"
#include "heed/parallel.hpp"

namespace heed::detail {

AttentionRun run(const Problem& problem, const ExecutionPlan& plan) {
  const KernelRun done = plan.kernel == Kernel::fused ? run_fused(problem, plan) : run_reference(problem);
  return {plan.kernel, plan.isa, done.threads, done.recomputed_rows};
}

AttentionRun run(const BackwardProblem& problem, const BackwardPlan& plan) {
  const KernelRun done =
      plan.kernel == Kernel::fused ? run_fused_backward(problem, plan) : run_reference_backward(problem);
  return {plan.kernel, plan.isa, done.threads, done.recomputed_rows};
}

namespace {

// Threads take pieces; fewer pieces than threads are computed one after the other, each by all threads.
AttentionRun run_gathered(const GatherPlan& plan, Kernel wanted) {
  const auto pieces = std::ssize(plan.pieces);
  const bool together = pieces >= plan.call.threads;
  AttentionRun all{Kernel::fused, fused_isa()};
  std::mutex lock;
  std::int64_t done = 0;
  parallel_for(pieces, together ? plan.call.threads : 1, [&](std::int64_t n, int) {
    const GatheredPiece call(plan, plan.pieces[index(n)], together ? 1 : plan.call.threads);
    const AttentionRun run = detail::run(call.problem(), ExecutionPlan(call.problem(), wanted));
    call.place_top_keys();
    const std::lock_guard guard(lock);
    all.threads = std::max(all.threads, run.threads);
    all.recomputed_rows += run.recomputed_rows;
    if (plan.call.progress)
      plan.call.progress("forward", static_cast<double>(++done) / static_cast<double>(pieces));
  });
  if (together) all.threads = plan.call.threads;
  return all;
}

// Threads first take some pieces. Then they take ranges of keys, which add up the pieces' gradients in order.
// So bits do not depend on the threads.
AttentionRun run_gathered(const BackwardProblem& problem, const GatherPlan& plan, Kernel wanted) {
  GatheredSums sums(problem);
  const int threads = plan.call.threads;
  std::span<const GatheredRows> left = plan.pieces;
  AttentionRun all{Kernel::fused, fused_isa(), static_cast<int>(std::min(left.size(), index(threads)))};
  std::mutex lock;
  std::vector<GatheredMemory> memory(pieces_at_once(plan));
  while (!left.empty()) {
    std::vector<std::unique_ptr<GatheredGradients>> some(std::min(left.size(), memory.size()));
    parallel_for(std::ssize(some), threads, [&](std::int64_t n, int) {
      some[index(n)] = std::make_unique<GatheredGradients>(problem, plan, left[index(n)], memory[index(n)]);
      const BackwardProblem& call = some[index(n)]->problem();
      const AttentionRun run = detail::run(call, BackwardPlan(call, wanted));
      const std::lock_guard guard(lock);
      all.recomputed_rows += run.recomputed_rows;
    });
    for_each_key_range(plan.call, [&](const KeyRange& range) {
      for (const auto& piece : some) piece->add_keys(range, sums);
    });
    for (const auto& piece : some) piece->add_sinks(sums);
    left = left.subspan(some.size());
  }
  sums.write(problem);
  return all;
}

bool has_rows(const Problem& p) { return p.batch > 0 && p.heads > 0 && p.query_length > 0; }

}  // namespace

AttentionRun run(const Problem& problem, Kernel wanted) {
  // Without rows, sums over rows alone have elements. The batch then needs no memory, and may be of any size.
  if (!has_rows(problem) && !problem.received && !problem.received_last && !problem.map) {
    Problem none = problem;
    none.batch = 0;
    none.segments.clear();
    const ExecutionPlan plan(none, wanted);
    return {plan.kernel, plan.isa};
  }
  if (const std::optional<GatherPlan> gathers = plan_gather(problem, wanted))
    return run_gathered(*gathers, wanted);
  const DecaySkips skips(problem, wanted);
  if (!skips) return run(problem, ExecutionPlan(problem, wanted));
  Problem shorter = problem;
  shorter.sparse_masks.push_back(skips.mask());
  return run(shorter, ExecutionPlan(shorter, wanted));
}

AttentionRun run(const BackwardProblem& problem, Kernel wanted) {
  const Problem& forward = problem.forward;
  const bool has_gradients = forward.key_length > 0 || problem.grad_bias || problem.grad_decay;
  if (forward.batch > 0 && !has_rows(forward) && !has_gradients) {
    BackwardProblem none = problem;
    none.forward.batch = 0;
    none.forward.segments.clear();
    return run(none, wanted);
  }
  if (const std::optional<GatherPlan> gathers = plan_gather(problem, wanted))
    return run_gathered(problem, *gathers, wanted);
  const DecaySkips skips(problem, wanted);
  if (!skips) return run(problem, BackwardPlan(problem, wanted));
  BackwardProblem shorter = problem;
  shorter.forward.sparse_masks.push_back(skips.mask());
  return run(shorter, BackwardPlan(shorter, wanted));
}

}  // namespace heed::detail
