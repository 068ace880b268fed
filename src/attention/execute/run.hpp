// Runs a checked call by its plan.
#pragma once

#include "attention/plan/backward_plan.hpp"
#include "attention/plan/execution_plan.hpp"
#include "heed/attention/attention.hpp"

namespace heed::detail {

/// Writes every result, or gradient, that has an Output.
AttentionRun run(const Problem& problem, const ExecutionPlan& plan);
AttentionRun run(const BackwardProblem& problem, const BackwardPlan& plan);

/// Plans and runs. Throws if `wanted` cannot take this call.
AttentionRun run(const Problem& problem, Kernel wanted);
AttentionRun run(const BackwardProblem& problem, Kernel wanted);

}  // namespace heed::detail
