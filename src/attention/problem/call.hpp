// What a call is made of, from its check to the kernels. Plain data: a target compiled for one instruction
// set must share no inline function with code that runs anywhere.
#pragma once

#include <cstdint>

#include "attention/problem/mask_source.hpp"
#include "heed/attention/result_set.hpp"
#include "heed/element_type.hpp"

namespace heed::detail {

/// A tensor read as [B, H, L, C] (or [B, H, Lq, Lk], …). `stride` counts elements and is 0 on broadcast axes.
/// data == nullptr means that the tensor is not given.
struct Operand {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t stride[4] = {0, 0, 0, 0};
  [[gnu::always_inline]] constexpr explicit operator bool() const { return data != nullptr; }
};

/// A tensor to write, described like an Operand.
struct Output {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t stride[4] = {0, 0, 0, 0};
  [[gnu::always_inline]] constexpr explicit operator bool() const { return data != nullptr; }
};

struct ProblemShape {
  std::int64_t batch = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t query_length = 0;
  std::int64_t key_length = 0;
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;
  DType dtype = DType::f32;  ///< dtype of query, key and value
};

/// The formula of a score, and the rules that allow or forbid it (score_rules.hpp).
struct ScoreRules {
  double scale = 1;
  double softcap = 0;  ///< 0: off
  ScoreModSource score_mod;
  Operand bias;                   ///< [B, H, Lq, Lk]
  Operand alibi_slopes;           ///< [B, H]
  Operand decay;                  ///< c [B, H, positions]
  std::int64_t decay_length = 0;  ///< positions of a batch entry; 0: of packed sequences, one after the other
  Operand sinks;                  ///< [1, H]
  Operand mask;                   ///< bool as bytes, [B, H, Lq, Lk]
  bool causal = false;
  std::int64_t window_left = -1;   ///< -1: no limit
  std::int64_t window_right = -1;  ///< -1: no limit
};

/// Where the results go, whose shapes the table of results gives, and the settings that belong to them.
struct ResultOutputs : ResultSet<Output> {
  DType output_dtype = DType::f32;
  ScoresStage scores_stage = ScoresStage::bias;
  std::int64_t top_k = 0;  ///< 0 if not wanted; likewise map_size
  std::int64_t received_last_rows = 0;
  MapSize map_size;
};

}  // namespace heed::detail
