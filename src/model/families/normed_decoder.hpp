// GPT-2 and GPT-NeoX share this: LayerNorms before attention and MLP and at the end, and one product for
// queries, keys and values.
#pragma once

#include <vector>

#include "model/families/family.hpp"
#include "model/layers/linear.hpp"
#include "model/layers/mlp.hpp"
#include "model/layers/norms.hpp"

namespace heed::detail {

struct NormedBlock {
  LayerNormWeights attention_norm, mlp_norm;
  LinearWeights query_key_value, output;
  MlpWeights feed_forward;
};

class NormedDecoder : public Family {
 public:
  Tensor last_norm(const Tensor& stream, int threads) const override {
    return layer_norm(stream, last_norm_, threads);
  }
  Tensor logits(const TensorView& hidden, int threads) const override {
    return linear(hidden, unembedding_, threads);
  }
  const LinearWeights& output_projection(std::int64_t layer) const override { return block_of(layer).output; }
  std::optional<HeldNorm> held_last_norm(std::span<const float> row) const override {
    return held_norm(last_norm_, row);
  }
  const LinearWeights* unembedding() const override { return &unembedding_; }

 protected:
  [[nodiscard]] const NormedBlock& block_of(std::int64_t layer) const {
    return blocks_[static_cast<std::size_t>(layer)];
  }
  // The product of a layer, which belongs to `made`.
  Tensor& fused(std::int64_t layer, const Tensor& stream, int threads, Projected& made) const {
    const Tensor normed = layer_norm(stream, block_of(layer).attention_norm, threads);
    made.options.causal = causal_;
    return made.memory.emplace_back(linear(normed, block_of(layer).query_key_value, threads));
  }

  std::int64_t dim_ = 0, heads_ = 0, head_dim_ = 0;
  bool causal_ = true;
  WeightMatrix tokens_;
  std::vector<NormedBlock> blocks_;
  LayerNormWeights last_norm_;
  LinearWeights unembedding_;
};

}  // namespace heed::detail
