// Converts a Problem to the plain Arguments that targets take.
#pragma once

#include "attention/kernels/shared/arguments.hpp"
#include "attention/problem/problem.hpp"

namespace heed::detail {

/// An output with one number per query row: [B, H, Lq], row-major.
Output output_of_rows(const Problem& problem, float* data);

/// Converts all inputs, options and results. The memory of a run is not set: row notes, kept weights, path
/// counts.
cpu::Arguments lower(const Problem& problem);

/// The most threads worth using: one, if the forward pass has fewer multiply-adds than `small_work`.
int threads_for(const Problem& problem, double small_work);

}  // namespace heed::detail
