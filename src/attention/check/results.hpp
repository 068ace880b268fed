// Results: their shapes, their memory, and the Outputs that kernels write to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "attention/problem/problem.hpp"

namespace heed::detail {

/// Returns [B, H, sizes…] without the axes that inputs of this rank lack.
Dims shape_of(const Problem& problem, int rank, std::initializer_list<std::int64_t> sizes);
/// Returns a result's axes after [B, H].
Dims axes_of(const Problem& problem, ResultShape shape);
/// The dtype of all results except the output.
DType summary_dtype(const Problem& problem);
/// Whether the caller passed a view, not the default one.
bool is_given(const MutableTensorView& view);

/// Allocates the output and all results that the options ask for, and sets their sizes in the problem. `rank`
/// is the rank of the inputs.
AttentionResult allocate_results(Problem& problem, const AttentionOptions& options, int rank);

/// Sets Outputs without memory for all results that the options ask for: enough for a plan, which writes
/// nothing. Returns the bytes that the results would take.
std::size_t expect_results(Problem& problem, const AttentionOptions& options);

/// Returns views of the allocated members of the result.
AttentionOutputs views_of(AttentionResult& result);

/// Sets the problem's Outputs. Throws if a view lacks the shape and dtype that AttentionResult documents.
void bind_outputs(const AttentionOutputs& outputs, const AttentionOptions& options, int rank,
                  Problem& problem);

}  // namespace heed::detail
