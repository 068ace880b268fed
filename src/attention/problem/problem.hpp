// A checked call, as kernels see it: pointers, strides and sizes, all valid.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "attention/problem/cache_rows.hpp"
#include "attention/problem/call.hpp"
#include "attention/problem/dropout.hpp"
#include "attention/problem/visible_keys.hpp"
#include "heed/attention/attention.hpp"

namespace heed::detail {

/// Rows [query_begin, query_end) of batch entry `batch` see only keys [key_begin, key_end). A plain batch has
/// one segment per entry, whose key_end is its key length; packed sequences have several segments in batch 0.
/// Row i stands at position (i - query_begin) + offset. Key j stands at positions[j - key_begin], or at j -
/// key_begin.
struct Segment {
  std::int64_t batch = 0;
  std::int64_t query_begin = 0;
  std::int64_t query_end = 0;
  std::int64_t key_begin = 0;
  std::int64_t key_end = 0;
  std::int64_t offset = 0;
  std::int64_t sequence = 0;                ///< index in the cache, if there is one
  const std::int64_t* positions = nullptr;  ///< key positions; nullptr: 0, 1, 2, …
  std::int64_t whole_rows = 0;  ///< rows of the whole sequence, if these are only some of them; else 0

  [[nodiscard]] std::int64_t rows_of_whole() const {
    return whole_rows > 0 ? whole_rows : query_end - query_begin;
  }
  [[nodiscard]] KeyPositions keys() const { return {key_end - key_begin, positions}; }
};

/// Sizes of the whole call that this one is a part of; of this call if it is no part.
struct WholeCall {
  std::int64_t batch = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t query_length = 0;
  std::int64_t sequences = 0;  ///< batch entries, or packed sequences
  std::int64_t most_rows = 0;  ///< rows of the longest sequence
};

struct Problem : ProblemShape, ScoreRules, ResultOutputs {
  Operand query, key, value;
  /// Set for a call on a cache. Then key and value hold its rows by row number, with strides of [-, Hkv, row,
  /// D].
  const CacheRows* cache = nullptr;
  std::vector<MaskSource> sparse_masks;  ///< they point into the caller's options
  std::vector<Segment> segments;  ///< in order of batch and query_begin; every query row is in exactly one
  PlacedDropout dropout;
  WholeCall whole;
  std::vector<std::int64_t> rows_of_part;  ///< memory that PartPlace::rows points to

  int threads = 1;  ///< upper limit, at least 1
  [[nodiscard]] std::int64_t decay_positions() const { return decay_length > 0 ? decay_length : key_length; }

  /// Called after pieces of the work, from any thread, with the pass and the share of it that is done (0 to
  /// 1).
  std::function<void(std::string_view pass, double share)> progress;
};

/// A checked call of the backward pass: the forward's Problem, the additional operands, and the places of the
/// gradients.
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

/// Statistics of a finished call.
struct KernelRun {
  int threads = 1;
  std::int64_t recomputed_rows = 0;  ///< rows whose values f32 could not hold
};

}  // namespace heed::detail
