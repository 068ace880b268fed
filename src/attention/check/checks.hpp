// Checks the arguments of a call. Returns a valid Problem, or throws an Error that says what is wrong.
#pragma once

#include "attention/problem/operands.hpp"
#include "attention/problem/problem.hpp"
#include "heed/attention/part.hpp"

namespace heed::detail {

/// Checks everything except the outputs. Reads kv_lengths and the segments, but computes nothing. If `part`
/// is given, query, key and value are the part's tensors.
Problem check_call(const TensorView& query, const TensorView& key, const TensorView& value,
                   const AttentionOptions& options, const CallPart* part = nullptr);

/// The same for tensors whose memory is a cache's, or comes later.
Problem check_call(const CallTensor& query, const CallTensor& key, const CallTensor& value,
                   const AttentionOptions& options, const CallPart* part = nullptr);

/// Keeps the Problem's allocations for the next call on this thread, so that repeated calls allocate nothing.
void recycle(Problem& problem);

}  // namespace heed::detail
