// Converts a Problem to the plain Arguments that targets take, and holds helpers of the fused passes'
// drivers.
#pragma once

#include "attention/kernels/shared/arguments.hpp"
#include "attention/problem/problem.hpp"

namespace heed::detail {

cpu::Input input_of(const Operand& from);
cpu::Output output_of(const Target& to);

/// An output with one number per query row: [B, H, Lq], row-major.
cpu::Output output_of_rows(const Problem& problem, float* data);

/// Converts all inputs, options and results.
cpu::Arguments lower(const Problem& problem);

/// Number of threads worth using for `pieces` pieces of work. One, if the forward pass has fewer
/// multiply-adds than `small_work`.
int threads_for(const Problem& problem, std::int64_t pieces, double small_work);

}  // namespace heed::detail
