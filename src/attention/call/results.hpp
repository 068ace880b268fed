// Where results go: their shapes, their memory, and the Targets that kernels write to.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "attention/call/problem.hpp"

namespace heed::detail {

/// [B, H, sizes…] without the axes that inputs of this rank lack.
Dims shape_of(const Problem& problem, int rank, std::initializer_list<std::int64_t> sizes);
/// A result's axes after [B, H].
Dims axes_of(const Problem& problem, ResultShape shape);
/// Of all that a call returns but its output.
DType summary_dtype(const Problem& problem);
/// Whether a caller's view is more than the default one.
bool is_given(const MutableTensorView& view);

/// Memory for the output and for all that the options ask for, whose sizes the problem then knows. `rank` is
/// that of the inputs.
AttentionResult allocate_results(Problem& problem, const AttentionOptions& options, int rank);

/// Views of what the result has memory for.
AttentionOutputs views_of(AttentionResult& result);

/// Sets the problem's Targets. Throws where a view has not the shape and dtype that AttentionResult
/// documents.
void bind_outputs(const AttentionOutputs& outputs, const AttentionOptions& options, int rank,
                  Problem& problem);

}  // namespace heed::detail
