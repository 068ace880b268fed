// What a caller passed, turned into a Problem in which nothing can be wrong; or an Error that says what is.
#pragma once

#include "attention/call/problem.hpp"
#include "heed/part.hpp"

namespace heed::detail {

/// Everything but the outputs. Reads kv_lengths and the segments, computes nothing. With a `part`, query, key
/// and value are those of the part.
Problem check_call(const TensorView& query, const TensorView& key, const TensorView& value,
                   const AttentionOptions& options, const CallPart* part = nullptr);

/// Keeps what the Problem allocated for the next one on this thread, so that calls in a row allocate nothing.
void recycle(Problem& problem);

}  // namespace heed::detail
