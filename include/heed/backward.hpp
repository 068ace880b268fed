// The backward pass of attention: from the gradient of a loss with respect to what a call of attention()
// returned, that with respect to what it was given. In the terms of heed/attention.hpp, with d<x> for the
// derivative of the loss by x and m_ij for dropout (0 for a weight that is dropped, else 1 / (1 - P)):
//
//   dV_j    = sum_i m_ij p_ij dO_i
//   dP_ij   = m_ij <dO_i, v_j> + dWeights_ij
//   D_i     = sum_j p_ij dP_ij                           = <dO_i, out_i> without dWeights
//   dS_ij   = p_ij (dP_ij - D_i + dLse_i)                by the score after bias, ALiBi and masks
//   dBias   = dS, summed over what the bias broadcasts over
//   dSink_h = sum_bi p_i,sink (dLse_i - D_i),            p_i,sink = exp(sink_h - lse_i)
//   dT_ij   = dS_ij (1 - tanh^2(scale <q_i, k_j> / softcap))      where softcap > 0, else dS_ij
//   dQ_i    = scale sum_j dT_ij k_j
//   dK_j    = scale sum_i dT_ij q_i                      over the query heads of the key head too
//
// docs/backward.md derives them. The Lq x Lk matrix is never stored: rows are computed again from query and
// key, as in Dao 2023 (FlashAttention-2), algorithm 2. The result has the same bits for every number of
// threads.
//
// A key that a row may not attend takes no part in it, whatever key, value and gradients hold there: nothing
// leaks, and a key that no row attends has the gradient 0. A row with no allowed key has the gradient 0 and
// adds none. NaN: a row with a NaN among its query, its grad_output, or the keys and values it attends, has
// NaN for dQ, and adds NaN to dK of every key that it attends; to their dV only where its weights or its
// grad_output are NaN.
#pragma once

#include <optional>
#include <string_view>

#include "heed/attention.hpp"
#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// What the forward pass was given and gave, and the gradients of what it returned. Any strides; a view of
/// stride 0 over a single 0 stands for a gradient of zeros. Inputs of rank 2 or 3 lack the axes B, H or B
/// everywhere.
struct AttentionBackwardInputs {
  TensorView query;  ///< [B, H, Lq, D], as attention() takes it
  TensorView key;    ///< [B, Hkv, Lk, D]
  TensorView value;  ///< [B, Hkv, Lk, Dv]
  /// [B, H, Lq, Dv] and [B, H, Lq] (Need::lse), of the forward call with the same tensors and options. They
  /// spare the fused kernel a pass; the reference computes each row anew, in f64, and reads neither.
  TensorView output;
  TensorView lse;
  TensorView grad_output;  ///< dO [B, H, Lq, Dv]; it and `output`: of the inputs' dtype, or f32
  /// By AttentionResult::lse [B, H, Lq] and ::weights [B, H, Lq, Lk], of the dtype of these.
  std::optional<TensorView> grad_lse{};
  std::optional<TensorView> grad_weights{};
};

/// Which gradients attention_backward() computes.
struct GradientRequest {
  bool query = true;
  bool key = true;
  bool value = true;
  bool bias = false;   ///< needs AttentionOptions::bias
  bool sinks = false;  ///< needs AttentionOptions::sinks
};

/// Each in the shape and dtype of its tensor; what was not asked for stays empty (shape [0]). Axes that a
/// bias or sinks repeat (stride 0) are summed over: their size is 1 here.
struct AttentionGradients {
  Tensor query;                       ///< [B, H, Lq, D]
  Tensor key;                         ///< [B, Hkv, Lk, D]
  Tensor value;                       ///< [B, Hkv, Lk, Dv]
  Tensor bias;                        ///< as options.bias
  Tensor sinks;                       ///< [H], as options.sinks
  Kernel kernel = Kernel::reference;  ///< which implementation computed
  std::string_view isa;               ///< its instruction set: "f64 reference", "avx512", …
  int threads = 1;                    ///< how many threads it used
  std::int64_t recomputed_rows = 0;   ///< query rows that f32 could not hold, computed in f64
};

/// Where gradients go: as AttentionGradients, in memory of the caller, any strides. A default view is not
/// computed. `bias` may have any shape that broadcasts to [B, H, Lq, Lk], `sinks` any that broadcasts to
/// [H]: the gradient is summed to it. Both may be f64, for a caller who goes on adding. A view must not
/// overlap itself, nor another of them or an input. (Checked; of the last two what interleaves with gaps is
/// not.)
struct AttentionGradientViews {
  MutableTensorView query{};
  MutableTensorView key{};
  MutableTensorView value{};
  MutableTensorView bias{};
  MutableTensorView sinks{};
};

/// `options` are those of the forward call: all that shapes p_ij is read, and `kernel` and `threads`; what
/// the forward returned besides (need, top_k, …) plays no part. Throws Error (invalid_argument) before
/// anything is computed or written where the call is wrong, and out_of_memory where the results do not fit.
[[nodiscard]] HEED_API AttentionGradients attention_backward(const AttentionBackwardInputs& inputs,
                                                             const AttentionOptions& options = {},
                                                             const GradientRequest& request = {});

/// The same into memory of the caller. What to compute is what `gradients` has views for.
HEED_API AttentionRun attention_backward_into(const AttentionBackwardInputs& inputs,
                                              const AttentionOptions& options,
                                              const AttentionGradientViews& gradients);

}  // namespace heed
