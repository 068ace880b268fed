// Gates on the output of attention (Qiu et al. 2025, arXiv:2505.06708; Qwen3-Next): with p_ij as in
// heed/attention/attention.hpp,
//
//   out_i = g_i * sum_j p_ij v_j
//
// The gate g is the caller's, such as the sigmoid of a projection of the token. It acts on finished rows, so
// it goes with every call: over tensors, a cache, ranges of keys, the rows of a rank, two softmaxes. The
// backward pass of the call reads the output before the gate. With dO, the gradient by the gated output, it
// takes gated(dO, gate) as grad_output, and gate_gradient() is the gradient by the gate.
// heed/inspect/moved.hpp measures how far a gated row moves the residual stream.
#pragma once

#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// rows [B, H, Lq, Dv], or without the first axes, times gate, which broadcasts to that shape: a number for
/// each channel [B, H, Lq, Dv] or for each row [B, H, Lq, 1], for example. Both are floating. The products
/// are computed in f64 and rounded to the dtype of `rows`. `threads`: upper limit; 0 uses all processors.
/// Throws Error (invalid_argument) for another dtype or shape.
[[nodiscard]] HEED_API Tensor gated(const TensorView& rows, const TensorView& gate, int threads = 0);

/// The gradient by the gate, in its shape and dtype: `output`, which the gate multiplied, times
/// `grad_output`, which is the gradient by the gated output and has the same shape. It is summed in f64 over
/// the axes that the gate broadcasts. The same bits for every number of threads.
[[nodiscard]] HEED_API Tensor gate_gradient(const TensorView& gate, const TensorView& output,
                                            const TensorView& grad_output, int threads = 0);

}  // namespace heed
