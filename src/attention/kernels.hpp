// The kernels. Each takes a checked Problem and writes every result that it has a Target for; none decides,
// checks or allocates results. A kernel returns how many threads it used. A new one is a new file, a line
// here and a line in plan.cpp.
#pragma once

#include "attention/backward_problem.hpp"
#include "attention/problem.hpp"

namespace heed::detail {

/// In f64, one row at a time, on one thread: the oracle that the others are tested against.
int run_reference(const Problem& problem);
/// The same for one head of one batch entry.
void run_reference_head(const Problem& problem, std::int64_t batch, std::int64_t head);

/// Tiled, vectorised, on many threads, for f32, bf16 and f16; memory O(L).
int run_fused(const Problem& problem);
/// Whether run_fused does this call: not for f64, and sizes that its working memory does not hold.
bool fused_supports(const Problem& problem);
/// The instruction set that run_fused takes on this machine: "avx512", "avx2", "neon" or "plain".
const char* fused_isa();

/// The backward pass in f64, one row at a time; the key heads are shared out among threads.
int run_reference_backward(const BackwardProblem& problem);
/// The same for one key head of one batch entry and the query heads that read it, but for bias and sinks.
void run_reference_backward_head(const BackwardProblem& problem, std::int64_t batch, std::int64_t kv_head);

/// Tiled, vectorised, on many threads, for f32, bf16 and f16; memory O(L).
int run_fused_backward(const BackwardProblem& problem);
/// Whether run_fused_backward does this call: what run_fused does, without the weights' gradient.
bool fused_backward_supports(const BackwardProblem& problem);

}  // namespace heed::detail
