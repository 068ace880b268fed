// The blocks of GPT-2, GPT-NeoX and ModernBERT: norms before attention and MLP, as many key heads as heads,
// and one product for queries, keys and values.
//
//   x = norm(E[id] + P[position])
//   x = x + attention(rope(q), rope(k), v) W_O with q, k, v = W_QKV norm(x),   x = x + mlp(norm(x))
//   logits = norm(x) W_U^T
//
// The family's own file says which norms and positions it has.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "model/families/encoder.hpp"

namespace heed::detail {

struct PreNormBlock {
  std::optional<LayerNormWeights> attention_norm;
  LayerNormWeights mlp_norm;
  LinearWeights query_key_value, output;
  MlpWeights feed_forward;
  std::optional<double> scale;  ///< for scores; nothing: 1 / sqrt(d)
  std::int64_t reach = -1;      ///< keys that a token sees on each side; -1: all
};

struct PreNormWeights {
  WeightMatrix tokens;
  std::optional<WeightMatrix> positions;
  std::optional<LayerNormWeights> embedding_norm;
  std::optional<Rope> rope, window_rope;  ///< for blocks that see all keys, and for the others
  bool by_head = false;                   ///< W_QKV has rows [H, 3, d] instead of [3, H, d]
  bool parallel = false;                  ///< attention and MLP read the same stream
  std::vector<PreNormBlock> blocks;
  LayerNormWeights last_norm;
  std::optional<EncoderHead> head;  ///< in place of the unembedding
  LinearWeights unembedding;        ///< if the model predicts
};

[[nodiscard]] std::unique_ptr<const Family> make_pre_norm(PreNormWeights weights, const ModelInfo& info);

}  // namespace heed::detail
