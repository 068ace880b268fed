// The backward pass of attention: from gradients of a loss by the results of attention() to gradients by its
// inputs. Symbols are as in heed/attention/attention.hpp. d<x> is the derivative of the loss by x, and m_ij
// is the dropout factor: 0 for a dropped weight, else 1 / (1 - P).
//
//   dV_j    = sum_i m_ij p_ij dO_i
//   dP_ij   = m_ij <dO_i, v_j> + dWeights_ij
//   D_i     = sum_j p_ij dP_ij                           = <dO_i, out_i> without dWeights
//   dS_ij   = p_ij (dP_ij - D_i + dLse_i)                by the score after bias, ALiBi and masks
//   dBias   = dS, summed over what the bias broadcasts over
//   dSink_h = sum_bi p_i,sink (dLse_i - D_i),            p_i,sink = exp(sink_h - lse_i)
//   dC_p    = sum_j dS_pj - sum_i dS_ip                  where p is the position of row i; of key j
//   dT_ij   = dS_ij (1 - tanh^2(scale <q_i, k_j> / softcap))      where softcap > 0, else dS_ij
//   dQ_i    = scale sum_j dT_ij k_j
//   dK_j    = scale sum_i dT_ij q_i                      over the query heads of the key head too
//
// docs/backward.md derives the formulas. The Lq x Lk matrix is never stored: rows are recomputed from query
// and key, as in Dao 2023 (FlashAttention-2), algorithm 2. The result has the same bits for every number of
// threads.
//
// A key that a row may not attend does not affect it, whatever key, value and gradients hold there. A key
// that no row attends has gradient 0. A row with no allowed key has gradient 0 and adds nothing. With a sink,
// it adds its dLse to dSink. A NaN in a row's query or grad_output, or in a key or value that it attends,
// makes its dQ NaN. The row then adds NaN to dK of every key that it attends. It adds NaN to their dV only
// where its weights or its grad_output are NaN.
#pragma once

#include <optional>
#include <string_view>

#include "heed/attention/attention.hpp"
#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// Inputs and results of the forward pass, and the gradients of its results. Strides are arbitrary; a view of
/// stride 0 over a single 0 is a gradient of zeros. If the inputs have rank 3 or 2, all tensors lack the axes
/// B, or B and H.
struct AttentionBackwardInputs {
  TensorView query;  ///< [B, H, Lq, D], as attention() takes it
  TensorView key;    ///< [B, Hkv, Lk, D]
  TensorView value;  ///< [B, Hkv, Lk, Dv]
  /// [B, H, Lq, Dv] and [B, H, Lq] (Need::lse), results of the forward call with the same tensors and
  /// options. They save the fused kernel a pass. The reference recomputes each row in f64 and reads neither.
  TensorView output;
  TensorView lse;
  TensorView grad_output;  ///< dO [B, H, Lq, Dv]; like `output` of the inputs' dtype or f32
  /// Gradients by AttentionResult::lse [B, H, Lq] and AttentionResult::weights [B, H, Lq, Lk], in the dtype
  /// of those results.
  std::optional<TensorView> grad_lse{};
  std::optional<TensorView> grad_weights{};
};

/// The gradients that attention_backward() computes.
struct GradientRequest {
  bool query = true;
  bool key = true;
  bool value = true;
  bool bias = false;   ///< needs AttentionOptions::bias
  bool sinks = false;  ///< needs AttentionOptions::sinks
  bool decay = false;  ///< needs AttentionOptions::decay
};

/// Gradients in the shape and dtype of their tensors; those not requested stay empty (shape [0]). Axes that a
/// bias, sinks or a decay repeat (stride 0) are summed over and have size 1 here.
struct AttentionGradients {
  Tensor query;                       ///< [B, H, Lq, D]
  Tensor key;                         ///< [B, Hkv, Lk, D]
  Tensor value;                       ///< [B, Hkv, Lk, Dv]
  Tensor bias;                        ///< like options.bias
  Tensor sinks;                       ///< [H], like options.sinks
  Tensor decay;                       ///< like options.decay
  Kernel kernel = Kernel::reference;  ///< the implementation that ran
  std::string_view isa;               ///< its instruction set: "f64 reference", "avx512", …
  int threads = 1;                    ///< number of threads used
  std::int64_t recomputed_rows = 0;   ///< query rows that f32 cannot represent, computed in f64
};

/// Views of caller memory for the gradients of AttentionGradients, with any strides. An empty (default) view
/// is skipped. `bias` may have any shape that broadcasts to [B, H, Lq, Lk], `sinks` any that broadcasts to
/// [H], `decay` any that broadcasts to [B, H, L]; the gradient is summed to that shape. They may be f64, for
/// callers that accumulate. A view must not overlap itself, another view or an input. Overlaps are refused,
/// but two tensors with gaps whose elements interleave are not detected.
struct AttentionGradientViews {
  MutableTensorView query{};
  MutableTensorView key{};
  MutableTensorView value{};
  MutableTensorView bias{};
  MutableTensorView sinks{};
  MutableTensorView decay{};
};

/// Computes the gradients. `options` must equal the forward call's: everything that determines p_ij is read,
/// and `kernel` and `threads`. Requests for other results (need, top_k, …) are ignored. Throws Error
/// (invalid_argument) before anything is computed or written if an argument is wrong, and out_of_memory if
/// the results do not fit in memory.
[[nodiscard]] HEED_API AttentionGradients attention_backward(const AttentionBackwardInputs& inputs,
                                                             const AttentionOptions& options = {},
                                                             const GradientRequest& request = {});

/// Writes the gradients into caller memory. Computes exactly those that `gradients` has views for.
HEED_API AttentionRun attention_backward_into(const AttentionBackwardInputs& inputs,
                                              const AttentionOptions& options,
                                              const AttentionGradientViews& gradients);

}  // namespace heed
