// What BERT and DistilBERT have in common: tokens that all see one another, norms behind attention and MLP.
//
//   x = norm(E[id] + T[0] + P[position])
//   x = norm(x + attention(x) W_O),   x = norm(x + mlp(x))
//   logits = norm(act(x W_T)) W_U^T + b, where there is a head for tokens
//
// Their own files say what the weights are called.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "model/families/family.hpp"
#include "model/layers/linear.hpp"
#include "model/layers/mlp.hpp"
#include "model/layers/norms.hpp"

namespace heed::detail {

struct EncoderBlock {
  LinearWeights query, key, value, output;
  LayerNormWeights attention_norm, mlp_norm;  ///< each behind its part
  MlpWeights feed_forward;
};

struct EncoderHead {
  LinearWeights transform;
  Activation activation = Activation::gelu;
  LayerNormWeights norm;
  LinearWeights unembedding;
};

struct EncoderWeights {
  WeightMatrix tokens, positions;
  std::optional<WeightMatrix> types;
  LayerNormWeights norm;
  std::vector<EncoderBlock> blocks;
  std::optional<EncoderHead> head;
};

/// Sets of `info` what all encoders are: fixed context, not causal, whether it predicts.
[[nodiscard]] std::unique_ptr<const Family> make_encoder(EncoderWeights weights, ModelInfo& info);

}  // namespace heed::detail
