// Scaled dot-product attention (Vaswani et al. 2017, equation 1) that can also return its weights.
//
// For each query row i at position p_i = i + offset and each key j, these steps run in order:
//
//   s_ij = scale * <q_i, k_j>
//   s_ij = softcap * tanh(s_ij / softcap)                where softcap > 0
//   s_ij = f(s_ij, b, h, i, j)                           where there is a ScoreMod f
//   s_ij = s_ij + bias_ij - slope_h * |p_i - j| + c_i - c_j      c: the decay, by position
//   s_ij = -inf                                          where a mask forbids j
//   p_ij = exp(s_ij - lse_i),  lse_i = log(sum_j exp(s_ij) [+ exp(sink_h)])
//   out_i = sum_j dropout(p_ij) * v_j
//
// A row with no allowed key gives output 0, weights 0 and lse -inf. With a sink, its lse is the sink. A mask
// or a bias of -inf forbids a key. The key and value of a forbidden key never affect the result, whatever
// they hold. An allowed NaN affects only its own row. A row whose largest score is +inf gets NaN weights,
// output and lse, as in PyTorch. The result has the same bits for every number of threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "heed/attention/masks.hpp"
#include "heed/attention/results.hpp"
#include "heed/attention/score_mod.hpp"
#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// The position of query i among the keys: p_i = i + offset.
enum class Align {
  top_left,      ///< offset 0: PyTorch's is_causal, ONNX without a cache
  bottom_right,  ///< offset = valid keys of the batch entry or segment - Lq: FlashAttention, decoding with a
                 ///< cache
};

/// The implementation that runs a call.
enum class Kernel { automatic, reference, fused };

/// Keys p_i - left <= j <= p_i + right are allowed; -1 leaves a side open.
struct Window {
  std::int64_t left = -1;
  std::int64_t right = -1;
};

/// Sets each weight to 0 with this probability and divides the others by 1 - probability. Whether a weight is
/// dropped depends only on (seed, offset, batch, head, i, j).
struct Dropout {
  double probability = 0;  ///< in [0, 1)
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
};

/// Options of a call. Tensors are read in place and must outlive the call. A tensor marked "to [...]"
/// broadcasts to that shape by NumPy's rules.
struct AttentionOptions {
  std::optional<double> scale{};  ///< finite; default 1 / sqrt(D)
  bool causal = false;            ///< allow j <= p_i only
  Align align = Align::top_left;
  /// Sets the offset directly and overrides `align`; -2^60 to 2^60.
  std::optional<std::int64_t> query_offset{};
  Window window{};
  std::optional<TensorView> mask{};  ///< bool, to [B, H, Lq, Lk]; true allows
  SparseMask sparse_mask{};          ///< in O(L) memory (heed/attention/masks.hpp); lengths must match
  std::optional<TensorView> bias{};  ///< floating, to [B, H, Lq, Lk]; -inf forbids
  double softcap = 0;                ///< finite, >= 0; 0 is off
  ScoreMod score_mod{};              ///< changes each score before the bias is added
  std::optional<TensorView> alibi_slopes{};  ///< floating, to [B, H]
  /// c, the running sum of the log forget gates (Lin et al. 2025, Forgetting Transformer): floating, finite,
  /// to [B, H, L] with L >= Lk. Position p has c[p]; positions of packed sequences lie one after the other
  /// (L = Lk). A query beyond the ends of c takes the nearest number, which moves its lse. With a sink it
  /// moves the output, too.
  std::optional<TensorView> decay{};
  std::optional<TensorView> sinks{};  ///< floating, [H]: an extra logit per head, in the denominator only
  /// i64 or i32, [B], in [0, Lk]: keys from this index on are forbidden.
  std::optional<TensorView> kv_lengths{};
  /// Packed sequences (B = 1): offsets [S + 1], i64 or i32, non-decreasing, from 0 to Lq and from 0 to Lk.
  /// Query segment s attends only key segment s; positions count from the start of the segment. Set both or
  /// neither, and not together with kv_lengths.
  std::optional<TensorView> query_segments{};
  std::optional<TensorView> key_segments{};
  Dropout dropout{};

  Need need = Need::none;
  ScoresStage scores_stage = ScoresStage::bias;
  std::int64_t top_k = 0;          ///< returns the K most attended keys of each row; 0 is off
  std::int64_t received_last = 0;  ///< also `received` over each sequence's last W rows; 0 is off
  MapSize map{};                   ///< sums the weights into rows x columns bins; 0 x 0 is off

  std::optional<DType> output_dtype{};  ///< dtype of `output`: the inputs' dtype (the default) or f32
  Kernel kernel = Kernel::automatic;
  int threads = 0;  ///< upper limit; 0 uses all processors
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

/// The output and the requested results; all others stay empty (shape [0]). Inputs of rank 2 ([L, D]) or 3
/// ([H, L, D]) give results without the missing axes. All results but `output` and `top_k_index` are f64 for
/// f64 inputs and f32 otherwise.
struct AttentionResult : ResultSet<Tensor> {
  Kernel kernel = Kernel::reference;  ///< the implementation that ran
  std::string_view isa;               ///< its instruction set: "f64 reference", "avx512", …
  int threads = 1;                    ///< number of threads used
  /// Number of rows that f32 cannot represent: NaN, infinities, scores beyond 2^19, or sums that overflow.
  /// The fused kernel skipped these rows; they were computed in f64.
  std::int64_t recomputed_rows = 0;
};

/// Views of caller memory for the results of AttentionResult, with any strides. An empty (default) view is
/// skipped. A given view must have the shape and dtype that AttentionResult documents. A view must not
/// overlap itself, another view or an input. Overlaps are refused, but two tensors with gaps whose elements
/// interleave are not detected.
using AttentionOutputs = ResultSet<MutableTensorView>;

/// How a call was run.
struct AttentionRun {
  Kernel kernel = Kernel::reference;
  std::string_view isa;
  int threads = 1;
  std::int64_t recomputed_rows = 0;  ///< as AttentionResult::recomputed_rows
};

/// query [B, H, Lq, D], key [B, Hkv, Lk, D], value [B, Hkv, Lk, Dv]. All have the same floating dtype and the
/// same rank, 2 to 4; [L, D] and [H, L, D] mean B = 1 and H = 1. H is a multiple of Hkv; query head h reads
/// key head h / (H / Hkv). Strides are arbitrary. Every size but D may be 0. Throws Error (invalid_argument)
/// before anything is computed or written if an argument is wrong, and out_of_memory if the results do not
/// fit in memory.
[[nodiscard]] HEED_API AttentionResult attention(const TensorView& query, const TensorView& key,
                                                 const TensorView& value,
                                                 const AttentionOptions& options = {});

/// Writes the results into caller memory. Computes exactly the results that `outputs` has views for:
/// options.need is ignored, and options.top_k and map may stay 0 because the views' shapes give them. A view
/// for received_last needs options.received_last.
HEED_API AttentionRun attention_into(const TensorView& query, const TensorView& key, const TensorView& value,
                                     const AttentionOptions& options, const AttentionOutputs& outputs);

}  // namespace heed
