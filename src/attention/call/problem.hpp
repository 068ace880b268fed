// A checked call, as kernels see it: pointers, strides and sizes, nothing that can still be wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "attention/kv_cache/cache_rows.hpp"
#include "attention/masks/mask_source.hpp"
#include "attention/rules/dropout.hpp"
#include "attention/rules/visible_keys.hpp"
#include "heed/attention.hpp"

namespace heed::detail {

/// A tensor read as [B, H, L, C] (or [B, H, Lq, Lk], …); `stride` counts elements, 0 where it broadcasts.
/// data == nullptr: not given.
struct Operand {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t stride[4] = {0, 0, 0, 0};
  explicit operator bool() const { return data != nullptr; }
};

/// The same to write to.
struct Target {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t stride[4] = {0, 0, 0, 0};
  explicit operator bool() const { return data != nullptr; }
};

/// Rows [query_begin, query_end) of batch entry `batch` see keys [key_begin, key_end) only. A plain batch has
/// one an entry (key_end is its key length); packed sequences have several in batch 0. Row i stands at
/// position (i - query_begin) + offset, key j at positions[j - key_begin], or at j - key_begin.
struct Segment {
  std::int64_t batch = 0;
  std::int64_t query_begin = 0;
  std::int64_t query_end = 0;
  std::int64_t key_begin = 0;
  std::int64_t key_end = 0;
  std::int64_t offset = 0;
  std::int64_t sequence = 0;                ///< of the cache, where there is one
  const std::int64_t* positions = nullptr;  ///< of its keys; nullptr: they count from 0
  std::int64_t whole_rows = 0;              ///< of the sequence, where these are some of them; else 0

  [[nodiscard]] std::int64_t rows_of_whole() const {
    return whole_rows > 0 ? whole_rows : query_end - query_begin;
  }
  [[nodiscard]] KeyPositions keys() const { return {key_end - key_begin, positions}; }
};

struct ProblemShape {
  std::int64_t batch = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t query_length = 0;
  std::int64_t key_length = 0;
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;
  DType dtype = DType::f32;  ///< of query, key and value
};

/// The call that this one is a part of, or this one.
struct WholeCall {
  std::int64_t batch = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t query_length = 0;
  std::int64_t sequences = 0;  ///< batch entries, or packed sequences
  std::int64_t most_rows = 0;  ///< of a sequence
};

/// What becomes of a score, and which scores there are (rules/score_rules.hpp).
struct ScoreRules {
  double scale = 1;
  double softcap = 0;  ///< 0: off
  ScoreModSource score_mod;
  Operand bias;                          ///< [B, H, Lq, Lk]
  Operand alibi_slopes;                  ///< [B, H]
  Operand sinks;                         ///< [1, H]
  Operand mask;                          ///< bool as bytes, [B, H, Lq, Lk]
  std::vector<MaskSource> sparse_masks;  ///< their parts belong to the caller's options
  bool causal = false;
  std::int64_t window_left = -1;   ///< -1: open
  std::int64_t window_right = -1;  ///< -1: open
};

/// Where results go, of the shapes that the table of results says, and what is to be known beside them.
struct ResultTargets : ResultSet<Target> {
  ScoresStage scores_stage = ScoresStage::bias;
  std::int64_t top_k = 0;  ///< 0 where nobody takes them; of the map, too
  std::int64_t received_last_rows = 0;
  MapSize map_size;
};

struct Problem : ProblemShape, ScoreRules, ResultTargets {
  Operand query, key, value;
  /// Of a cache: key and value then hold its rows by their numbers, and strides are of [-, Hkv, row, D].
  const CacheRows* cache = nullptr;
  std::vector<Segment> segments;  ///< in order of batch and query_begin; they cover every query row once
  PlacedDropout dropout;
  WholeCall whole;
  std::vector<std::int64_t> rows_of_part;  ///< what PartPlace::rows points to

  int threads = 1;  ///< at most; 1 or more
  /// Told after pieces of the work: which pass, and how much of it is done (0 to 1). From any thread.
  std::function<void(std::string_view pass, double share)> progress;
};

}  // namespace heed::detail
