// The results of C calls of differential attention.
#pragma once

#include "attention/api/c_attention.hpp"
#include "heed/attention/differential.hpp"

namespace heed::detail::c_api {

/// The arguments of a C call of differential attention.
struct DifferentialCall {
  TensorView query, lambda;
  ForwardCall whole;  ///< the signed results, and the options of both softmaxes
  ForwardCall halves;
  /// Copies the results to the caller's memory. Throws before it writes.
  void deliver(const DifferentialResult& result) const;
};
[[nodiscard]] DifferentialCall differential_call(const heed_tensor* query, const heed_tensor* lambda,
                                                 const heed_attention_options* options,
                                                 const heed_attention_outputs* outputs,
                                                 const heed_attention_outputs* halves);

}  // namespace heed::detail::c_api
