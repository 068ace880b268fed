// Results of C calls that are computed in memory of their own and copied to the caller's.
#pragma once

#include <vector>

#include "attention/api/c_attention.hpp"
#include "heed/attention/differential.hpp"

namespace heed::detail::c_api {

/// Requests the results that differential attention allocates for `call`.
[[nodiscard]] AttentionOptions requests_of(const ForwardCall& call);
/// Copies results to the caller's memory, and the outputs of both halves to `halves`, unless it is NULL.
void deliver(const DifferentialResult& result, const ForwardCall& call, const heed_tensor* halves);
/// Copies tensors to the memory that is given, once all of it is checked.
struct Delivery {
  const char* name;
  const Tensor& from;
  MutableTensorView to;
};
void deliver(const std::vector<Delivery>& all);

}  // namespace heed::detail::c_api
