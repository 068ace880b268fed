// The fused kernel's forward pass, as its plan says.
#pragma once

#include "attention/plan/execution_plan.hpp"
#include "attention/problem/problem.hpp"

namespace heed::detail {

/// Writes every result that has an Output. The plan is one for the fused kernel.
KernelRun run_fused(const Problem& problem, const ExecutionPlan& plan);

}  // namespace heed::detail
