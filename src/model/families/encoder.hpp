// The common encoder of BERT, DistilBERT, RoBERTa, ELECTRA and others: all tokens see one another, norms
// after attention and MLP.
//
//   x = norm(E[id] + T[0] + P[position]), without P where queries and keys are rotated
//   x = norm(x + attention(x) W_O),   x = norm(x + mlp(x))
//   logits = norm(act(x W_T)) W_U^T + b, where there is a head for tokens
//
// The family's own file has the names of the weights.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "model/families/family.hpp"
#include "model/layers/linear.hpp"
#include "model/layers/mlp.hpp"
#include "model/layers/norms.hpp"
#include "model/layers/rope.hpp"

namespace heed::detail {

struct EncoderBlock {
  LinearWeights query, key, value, output;
  LayerNormWeights attention_norm, mlp_norm;  ///< each after its part
  MlpWeights feed_forward;
};

/// The number of buckets of distances between two tokens (MPNet).
inline constexpr std::int64_t kDistanceBuckets = 32;

struct EncoderHead {
  LinearWeights transform;
  Activation activation = Activation::gelu;
  LayerNormWeights norm;
  LinearWeights unembedding;
};

struct EncoderWeights {
  WeightMatrix tokens;
  std::optional<WeightMatrix> positions, types;
  std::optional<Rope> rope;
  LayerNormWeights norm;
  std::optional<std::int64_t> padding;        ///< the id of padding, from which positions count (RoBERTa)
  std::optional<WeightMatrix> distance_bias;  ///< [kDistanceBuckets, H]: a bias of scores by distance (MPNet)
  std::optional<LinearWeights> projection;    ///< of the embeddings (ELECTRA)
  std::vector<EncoderBlock> blocks;
  std::optional<EncoderHead> head;
};

/// hidden [R, D] → [R, vocabulary].
[[nodiscard]] Tensor head_logits(const EncoderHead& head, const TensorView& hidden, int threads);

/// Sets the properties of all encoders in `info`: fixed context, not causal, whether it predicts.
[[nodiscard]] std::unique_ptr<const Family> make_encoder(EncoderWeights weights, ModelInfo& info);

}  // namespace heed::detail
