// Scaled dot-product attention (Vaswani et al. 2017, equation 1) that can show its weights.
//
// For each query row i at position p_i = i + offset, over keys j, in this order:
//
//   s_ij = scale * <q_i, k_j>
//   s_ij = softcap * tanh(s_ij / softcap)                where softcap > 0
//   s_ij = f(s_ij, b, h, i, j)                           where there is a ScoreMod f
//   s_ij = s_ij + bias_ij - slope_h * |p_i - j|
//   s_ij = -inf                                          where a mask forbids j
//   p_ij = exp(s_ij - lse_i),  lse_i = log(sum_j exp(s_ij) [+ exp(sink_h)])
//   out_i = sum_j dropout(p_ij) * v_j
//
// A row with no allowed key gives output 0, weights 0 and lse -inf. A forbidden key (a bias of -inf forbids
// too) never leaks, whatever its key or value holds. An allowed NaN stays within its own row, and a row whose
// largest score is +inf has NaN for weights, output and lse, as in PyTorch. The result has the same bits for
// every number of threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "heed/export.hpp"
#include "heed/masks.hpp"
#include "heed/results.hpp"
#include "heed/score_mod.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// Where query i stands among the keys: its position is p_i = i + offset.
enum class Align {
  top_left,      ///< offset 0: PyTorch's is_causal, ONNX without a cache
  bottom_right,  ///< offset = valid keys of the batch entry or segment - Lq: FlashAttention, decoding with a
                 ///< cache
};

/// Which scores `Need::scores` returns.
enum class ScoresStage {
  raw,      ///< scale * <q, k>, for every key of the tensor: masks, key lengths and segments play no part
  softcap,  ///< the same after the softcap (equal to raw where there is none)
  bias,     ///< after bias and ALiBi, -inf where a key is forbidden
};

/// Which implementation computes.
enum class Kernel { automatic, reference, fused };

/// Keys p_i - left <= j <= p_i + right are allowed; -1 leaves a side open.
struct Window {
  std::int64_t left = -1;
  std::int64_t right = -1;
};

/// Each weight is set to 0 with this probability, and what remains is divided by 1 - probability.
/// The decision for a weight is a function of (seed, offset, batch, head, i, j) alone.
struct Dropout {
  double probability = 0;  ///< in [0, 1)
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
};

/// Rows and columns of a map; rows <= Lq and columns <= Lk is not required (some bins are then empty).
struct MapSize {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

/// Every tensor named here is read in place and must outlive the call. Masks, bias and the like broadcast as
/// NumPy does to the shape given.
struct AttentionOptions {
  std::optional<double> scale{};  ///< finite; default 1 / sqrt(D)
  bool causal = false;            ///< allow j <= p_i only
  Align align = Align::top_left;
  /// The offset outright, in place of `align`: -2^60 to 2^60.
  std::optional<std::int64_t> query_offset{};
  Window window{};
  std::optional<TensorView> mask{};          ///< bool, to [B, H, Lq, Lk]; true allows
  SparseMask sparse_mask{};                  ///< in O(L) memory (heed/masks.hpp); of these lengths
  std::optional<TensorView> bias{};          ///< floating, to [B, H, Lq, Lk]; -inf forbids
  double softcap = 0;                        ///< finite, >= 0; 0 is off
  ScoreMod score_mod{};                      ///< what else becomes of a score, before the bias
  std::optional<TensorView> alibi_slopes{};  ///< floating, to [B, H]
  std::optional<TensorView> sinks{};  ///< floating, [H]: one more logit a head, in the denominator only
  /// i64 or i32, [B], in [0, Lk]: keys at and beyond it are forbidden.
  std::optional<TensorView> kv_lengths{};
  /// Packed sequences (B = 1): offsets [S + 1], i64 or i32, from 0 to Lq and Lk, never falling. Query segment
  /// s sees key segment s only; positions count within the segment. Both or neither; not with kv_lengths.
  std::optional<TensorView> query_segments{};
  std::optional<TensorView> key_segments{};
  Dropout dropout{};

  Need need = Need::none;
  ScoresStage scores_stage = ScoresStage::bias;
  std::int64_t top_k = 0;          ///< the K most attended keys of each row; 0 is off
  std::int64_t received_last = 0;  ///< also `received` over the last W rows of each sequence only; 0 is off
  MapSize map{};                   ///< weights summed into rows x columns bins; 0 x 0 is off

  std::optional<DType> output_dtype{};  ///< of `output`: the inputs' dtype (the default) or f32
  Kernel kernel = Kernel::automatic;
  int threads = 0;  ///< at most this many; 0 takes what the machine has
};

/// Whether a call with these options returns that result.
[[nodiscard]] inline bool is_asked_for(const ResultEntry& entry, const AttentionOptions& options) {
  switch (entry.shape) {
    case ResultShape::output:
      return true;
    case ResultShape::top_k:
      return options.top_k > 0;
    case ResultShape::key_last:
      return options.received_last > 0;
    case ResultShape::map:
      return options.map.rows > 0;
    default:
      return has(options.need, entry.need);
  }
}

/// Output and what was asked for; the rest stays empty (shape [0]). An input of rank 2 ([L, D]) or 3 ([H, L,
/// D]) gives results without the axes that it lacked. All but `output` are f64 for f64 inputs and f32 for all
/// others.
struct AttentionResult : ResultSet<Tensor> {
  Kernel kernel = Kernel::reference;  ///< which implementation computed
  std::string_view isa;               ///< its instruction set: "f64 reference", "avx512", …
  int threads = 1;                    ///< how many threads it used
  /// Rows whose numbers f32 cannot hold (NaN, infinities, scores beyond 2^19, sums that overflow): the fused
  /// kernel left them out, and they were computed in f64.
  std::int64_t recomputed_rows = 0;
};

/// Where results go: as AttentionResult, in memory of the caller, any strides. A default view is not written;
/// a view that is given must have the shape and dtype that AttentionResult documents. It must not overlap
/// itself, nor another of them or an input. (Checked; of the last two what interleaves with gaps is not.)
using AttentionOutputs = ResultSet<MutableTensorView>;

/// Which implementation a call took.
struct AttentionRun {
  Kernel kernel = Kernel::reference;
  std::string_view isa;
  int threads = 1;
  std::int64_t recomputed_rows = 0;  ///< as AttentionResult::recomputed_rows
};

/// query [B, H, Lq, D], key [B, Hkv, Lk, D], value [B, Hkv, Lk, Dv]; all of one floating dtype and of one
/// rank, 2 to 4 ([L, D] and [H, L, D] stand for B = 1, H = 1). H is a multiple of Hkv; query head h reads key
/// head h / (H / Hkv). Any strides. Every size may be 0 but D. Throws Error (invalid_argument) before
/// anything is computed or written where the call is wrong, and out_of_memory where the results do not fit.
[[nodiscard]] HEED_API AttentionResult attention(const TensorView& query, const TensorView& key,
                                                 const TensorView& value,
                                                 const AttentionOptions& options = {});

/// The same into memory of the caller. What to compute is what `outputs` has views for: options.need is not
/// read, and options.top_k and map may be left 0 (their views' shapes say them). A view for received_last
/// needs options.received_last.
HEED_API AttentionRun attention_into(const TensorView& query, const TensorView& key, const TensorView& value,
                                     const AttentionOptions& options, const AttentionOutputs& outputs);

}  // namespace heed
