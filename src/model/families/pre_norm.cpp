#include "model/families/pre_norm.hpp"

#include <numeric>
#include <utility>

namespace heed::detail {
namespace {

class PreNorm final : public Family {
 public:
  PreNorm(PreNormWeights weights, const ModelInfo& info)
      : weights_(std::move(weights)), heads_(info.heads), head_dim_(info.head_dim), causal_(info.causal) {}

  Tensor embed(std::span<const std::int64_t> ids, std::int64_t begin, int threads) const override {
    Tensor x = rows_of(weights_.tokens, ids, threads);
    if (weights_.positions) {
      std::vector<std::int64_t> places(ids.size());
      std::iota(places.begin(), places.end(), begin);
      add_to(x, rows_of(*weights_.positions, places, threads), threads);
    }
    return weights_.embedding_norm ? layer_norm(x, *weights_.embedding_norm, threads) : std::move(x);
  }

  Projected project(std::int64_t layer, const Tensor& stream, std::int64_t begin,
                    int threads) const override {
    const PreNormBlock& block = block_of(layer);
    Projected made;
    made.memory.push_back(
        linear(block.attention_norm ? layer_norm(stream, *block.attention_norm, threads) : stream.view(),
               block.query_key_value, threads));
    float* const fused = made.memory.back().values<float>().data();
    const auto heads_of = [&](InputKind kind) {
      return MutableTensorView(fused + column_of(kind, 0), {heads_, stream.size(0), head_dim_},
                               {column_of(kind, 1) - column_of(kind, 0), 3 * heads_ * head_dim_, 1});
    };
    const MutableTensorView query = heads_of(InputKind::query), key = heads_of(InputKind::key);
    if (const Rope* rope = rope_of(block)) rotate(*rope, query, key, begin, threads);
    made.query = query;
    made.key = key;
    made.value = heads_of(InputKind::value);
    made.options.causal = causal_;
    made.options.scale = block.scale;
    made.options.window = {.left = block.reach, .right = block.reach};
    return made;
  }

  void finish(std::int64_t layer, const Tensor& heads, Tensor& stream, int threads) const override {
    const PreNormBlock& block = block_of(layer);
    const Tensor attended = linear(heads, block.output, threads);
    if (!weights_.parallel) add_to(stream, attended, threads);
    const Tensor fed = mlp(layer_norm(stream, block.mlp_norm, threads), block.feed_forward, threads);
    if (weights_.parallel) add_to(stream, attended, threads);
    add_to(stream, fed, threads);
  }

  Tensor last_norm(const Tensor& stream, int threads) const override {
    return layer_norm(stream, weights_.last_norm, threads);
  }
  Tensor logits(const TensorView& hidden, int threads) const override {
    return weights_.head ? head_logits(*weights_.head, hidden, threads)
                         : linear(hidden, weights_.unembedding, threads);
  }

  const LinearWeights& output_projection(std::int64_t layer) const override { return block_of(layer).output; }

  HeadInput head_input(std::int64_t layer, InputKind kind, std::int64_t head,
                       const Tensor& row) const override {
    const PreNormBlock& block = block_of(layer);
    HeadInput input;
    if (block.attention_norm) input.norm = held_norm(*block.attention_norm, row.values<float>());
    input.weights = &block.query_key_value;
    input.first = column_of(kind, head);
    if (kind != InputKind::value) input.rope = rope_of(block);
    return input;
  }

  std::optional<Tensor> position_share(std::span<const std::int64_t> /*ids*/,
                                       std::int64_t at) const override {
    if (!weights_.positions) return std::nullopt;
    return rows_of(*weights_.positions, {{at}}, 1);
  }

  std::optional<HeldNorm> held_last_norm(std::span<const float> row) const override {
    if (weights_.head) return std::nullopt;
    return held_norm(weights_.last_norm, row);
  }
  const LinearWeights* unembedding() const override {
    return weights_.head ? nullptr : &weights_.unembedding;
  }

 private:
  [[nodiscard]] const PreNormBlock& block_of(std::int64_t layer) const {
    return weights_.blocks[static_cast<std::size_t>(layer)];
  }
  // The first column of a head in the product.
  [[nodiscard]] std::int64_t column_of(InputKind kind, std::int64_t head) const {
    const auto part = static_cast<std::int64_t>(kind);
    return (weights_.by_head ? 3 * head + part : part * heads_ + head) * head_dim_;
  }
  [[nodiscard]] const Rope* rope_of(const PreNormBlock& block) const {
    const std::optional<Rope>& rope = block.reach >= 0 ? weights_.window_rope : weights_.rope;
    return rope ? &*rope : nullptr;
  }

  PreNormWeights weights_;
  std::int64_t heads_, head_dim_;
  bool causal_;
};

}  // namespace

std::unique_ptr<const Family> make_pre_norm(PreNormWeights weights, const ModelInfo& info) {
  return std::make_unique<PreNorm>(std::move(weights), info);
}

}  // namespace heed::detail
