// Checks the arguments of the backward pass. Returns a valid BackwardProblem, or throws an Error that says
// what is wrong.
#pragma once

#include "attention/problem/problem.hpp"
#include "heed/attention/backward.hpp"
#include "heed/attention/part.hpp"

namespace heed::detail {

/// Checks everything except the gradient views.
BackwardProblem check_backward(const AttentionBackwardInputs& inputs, const AttentionOptions& options,
                               const CallPart* part = nullptr);

/// Allocates the requested gradients and binds them.
AttentionGradients allocate_gradients(const AttentionBackwardInputs& inputs, const AttentionOptions& options,
                                      const GradientRequest& request, BackwardProblem& problem);

/// Sets the problem's Outputs. Throws if a view lacks the shape and dtype that AttentionGradientViews
/// documents, or if there is no bias or no sinks to differentiate with respect to.
void bind_gradients(const AttentionGradientViews& gradients, const AttentionBackwardInputs& inputs,
                    const AttentionOptions& options, BackwardProblem& problem);

}  // namespace heed::detail
