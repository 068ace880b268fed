// Where results go: their shapes, their memory, and the Targets that kernels write to.
#pragma once

#include "attention/problem.hpp"

namespace heed::detail {

/// Memory for the output and for all that the options ask for. `rank` is that of the inputs.
AttentionResult allocate_results(const Problem& problem, const AttentionOptions& options, int rank);

/// Views of what the result has memory for.
AttentionOutputs views_of(AttentionResult& result);

/// Sets the problem's Targets. Throws where a view has not the shape and dtype that AttentionResult
/// documents.
void bind_outputs(const AttentionOutputs& outputs, const AttentionOptions& options, int rank,
                  Problem& problem);

}  // namespace heed::detail
