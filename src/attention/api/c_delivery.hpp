// Results of C calls that are computed in memory of their own and copied to the caller's.
#pragma once

#include <vector>

#include "attention/api/c_attention.hpp"
#include "attention/api/seen_results.hpp"
#include "attention/check/overlap.hpp"

namespace heed::detail::c_api {

/// Requests the results that differential attention allocates for `call`.
[[nodiscard]] AttentionOptions requests_of(const ForwardCall& call);
/// Checks the caller's memory for the results of a differential call with `query`, and `halves` unless it is
/// NULL. The returned function is called before the work begins.
[[nodiscard]] SeeResults check_of(const ForwardCall& call, const TensorView& query,
                                  const heed_tensor* halves);
/// Copies results to the caller's memory, and the outputs of both halves to `halves`, unless it is NULL.
void deliver(const DifferentialResult& result, const ForwardCall& call, const heed_tensor* halves);

/// Checks the caller's memory for a tensor of that shape and dtype, if it is given. Throws if it overlaps
/// `others`, and adds it to them.
void expect_memory(const char* name, const MutableTensorView& to, const Dims& shape, DType dtype,
                   std::vector<MemoryUse>& others);
/// Copies a tensor to the memory that is given for it.
void deliver(const Tensor& from, const MutableTensorView& to);

}  // namespace heed::detail::c_api
