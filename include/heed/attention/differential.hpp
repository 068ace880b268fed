// Differential attention (Ye et al. 2024, arXiv:2410.05258): two softmaxes attend the same values, and the
// second is subtracted with a learned factor. With p and p' the weights of query heads 2h and 2h + 1, as in
// heed/attention/attention.hpp,
//
//   a_ij = p_ij - lambda_hi p'_ij
//   out_i = sum_j a_ij v_j
//
// A signed weight a_ij may be negative; a row sums to 1 - lambda_hi. Entropy, top-k and the other results of
// a softmax belong to the halves. The norm of each head and the factor 1 - lambda_init that follow in the
// paper are the caller's.
#pragma once

#include "heed/attention/attention.hpp"
#include "heed/attention/kv_cache.hpp"
#include "heed/attention/plan.hpp"
#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// The signed results of H heads, and the results of their halves.
struct DifferentialResult {
  Tensor output;   ///< [B, H, Lq, Dv], in the dtype of AttentionResult::output
  Tensor weights;  ///< [B, H, Lq, Lk]: a_ij, if options.need has Need::weights
  // Sums of a_ij, if the options ask for them:
  Tensor received, received_last;  ///< [B, H, Lk]
  Tensor map;                      ///< [B, H, R, C]
  /// The two softmaxes, [B, H, …] each: lse always, and all results that the options ask for. Their `output`
  /// is f32 for f16 and bf16.
  AttentionResult first, second;
};

/// query [B, 2 H, Lq, D], of which heads 2h and 2h + 1 are the halves of head h; value [B, Hkv, Lk, Dv]. key
/// has halves likewise, [B, 2 Hkv, Lk, D], or both halves read the same [B, Hkv, Lk, D]. lambda is f64 or
/// f32, [H] or [B, H, Lq]. Options hold for both halves, and sinks and slopes have an entry for each of the H
/// heads. Dropout drops the same weights of both. Throws Error (invalid_argument) as attention() does, and if
/// received, received_last or map is asked for with a lambda of rows.
[[nodiscard]] HEED_API DifferentialResult differential_attention(const TensorView& query,
                                                                 const TensorView& key,
                                                                 const TensorView& value,
                                                                 const TensorView& lambda,
                                                                 const AttentionOptions& options = {});

/// Plans it, and computes nothing: the passes of each softmax, which are the same for both; the multiply-adds
/// of both, and the memory of all results. Throws as differential_attention() does.
[[nodiscard]] HEED_API AttentionPlan plan_differential_attention(const TensorView& query,
                                                                 const TensorView& key,
                                                                 const TensorView& value,
                                                                 const TensorView& lambda,
                                                                 const AttentionOptions& options = {});

/// Differential attention over a cache with Hkv key heads, and its plan. Both halves read the cache's keys if
/// they have D channels. If they have 2 D, a key is the first half's followed by the second's.
[[nodiscard]] HEED_API DifferentialResult differential_attention(const TensorView& query,
                                                                 const KvCache& cache,
                                                                 const TensorView& lambda,
                                                                 const AttentionOptions& options = {},
                                                                 const CacheQuery& which = {});
[[nodiscard]] HEED_API AttentionPlan plan_differential_attention(const TensorView& query,
                                                                 const KvCache& cache,
                                                                 const TensorView& lambda,
                                                                 const AttentionOptions& options = {},
                                                                 const CacheQuery& which = {});

/// The signed results [B, H, …], and the other results of both softmaxes, [B, 2 H, …] in the order of the
/// query's heads.
[[nodiscard]] HEED_API AttentionResult joined(const DifferentialResult& result);

/// Gradients in the shape and dtype of their tensors.
struct DifferentialGradients {
  Tensor query, key, value, lambda;
};

/// The gradients of a loss with the gradient `grad_output` [B, H, Lq, Dv] by the output. Pass the result and
/// the options of the forward call with the same tensors. dO is the gradient by p's output, and -lambda dO
/// that by the output of p'; dLambda_hi = -<dO_i, sum_j p'_ij v_j>.
[[nodiscard]] HEED_API DifferentialGradients differential_attention_backward(
    const TensorView& query, const TensorView& key, const TensorView& value, const TensorView& lambda,
    const DifferentialResult& result, const TensorView& grad_output, const AttentionOptions& options = {});

}  // namespace heed
