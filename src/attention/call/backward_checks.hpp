// What a caller of the backward pass gave, turned into a BackwardProblem in which nothing can be wrong; or an
// Error that says what is.
#pragma once

#include "attention/call/backward_problem.hpp"

namespace heed::detail {

/// Everything but the gradients' places.
BackwardProblem check_backward(const AttentionBackwardInputs& inputs, const AttentionOptions& options,
                               const CallPart* part = nullptr);

/// Memory for the gradients that are asked for.
AttentionGradients allocate_gradients(const AttentionBackwardInputs& inputs, const AttentionOptions& options,
                                      const GradientRequest& request);

/// Sets the problem's Targets. Throws where a view has not the shape and dtype that AttentionGradientViews
/// documents, or where there is no bias or sinks to differentiate by.
void bind_gradients(const AttentionGradientViews& gradients, const AttentionBackwardInputs& inputs,
                    const AttentionOptions& options, BackwardProblem& problem);

}  // namespace heed::detail
