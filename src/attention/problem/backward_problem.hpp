// A checked call of the backward pass, as its kernels see it: the forward's Problem, the additional operands,
// and the places of the gradients.
#pragma once

#include <cstdint>

#include "attention/problem/problem.hpp"
#include "heed/attention/backward.hpp"

namespace heed::detail {

struct BackwardProblem {
  Problem forward;  ///< none of its Outputs is set

  Operand output;        ///< [B, H, Lq, Dv]
  Operand lse;           ///< [B, H, Lq]
  Operand grad_output;   ///< [B, H, Lq, Dv]
  Operand grad_lse;      ///< [B, H, Lq]; may be missing
  Operand grad_weights;  ///< [B, H, Lq, Lk]; may be missing

  /// Outputs of gradients that are not wanted stay empty.
  Output grad_query;                              ///< [B, H, Lq, D]
  Output grad_key;                                ///< [B, Hkv, Lk, D]
  Output grad_value;                              ///< [B, Hkv, Lk, Dv]
  Output grad_bias;                               ///< [B, H, Lq, Lk], with the sizes below
  std::int64_t grad_bias_size[4] = {1, 1, 1, 1};  ///< 1, with stride 0, on summed axes
  Output grad_sinks;                              ///< [1, H]; stride 0 if the gradient is summed over H
  Output grad_decay;                              ///< [B, H, positions]; stride 0 on summed axes
};

}  // namespace heed::detail
