// A Problem as the plain Call that target take, and what else the fused passes' drivers share.
#pragma once

#include "attention/call/problem.hpp"
#include "attention/cpu/kernel/arguments.hpp"

namespace heed::detail {

cpu::Input input_of(const Operand& from);
cpu::Output output_of(const Target& to);

/// A number for each query row: [B, H, Lq], row-major.
cpu::Output output_of_rows(const Problem& problem, float* data);

/// All of it: inputs, options and results.
cpu::Arguments lower(const Problem& problem);

/// How many threads are worth it for so many pieces of work: one where the forward pass has fewer
/// multiply-adds than `small_work`.
int threads_for(const Problem& problem, std::int64_t pieces, double small_work);

}  // namespace heed::detail
