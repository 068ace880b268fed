// The reference: attention and its gradients in f64, row by row. The fused kernel is tested against it.
#pragma once

#include "attention/problem/backward_problem.hpp"
#include "attention/problem/problem.hpp"

namespace heed::detail {

/// Writes every result that has an Output, on one thread.
KernelRun run_reference(const Problem& problem);
/// Writes every gradient that has an Output; threads share the key heads.
KernelRun run_reference_backward(const BackwardProblem& problem);

}  // namespace heed::detail
