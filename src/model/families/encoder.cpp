#include "model/families/encoder.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "heed/parallel.hpp"

namespace heed::detail {
namespace {

// The bucket of distance j - i (T5): 8 exact distances on each side, then 8 whose bounds grow by a constant
// factor up to 128. In f32, as transformers computes it.
std::int64_t distance_bucket(std::int64_t distance) {
  constexpr std::int64_t kSide = kDistanceBuckets / 2, kExact = kSide / 2;
  const std::int64_t size = std::abs(distance);
  std::int64_t bucket = size;
  if (size >= kExact) {
    const float growth = std::log(static_cast<float>(size) / kExact) / std::log(128.0F / kExact);
    bucket = std::min(kSide - 1, kExact + static_cast<std::int64_t>(growth * (kSide - kExact)));
  }
  return distance > 0 ? kSide + bucket : bucket;
}

// [H, L, L]: the bias of each pair of tokens.
Tensor bias_by_distance(const WeightMatrix& table, std::int64_t length, int threads) {
  std::vector<float> by_bucket(static_cast<std::size_t>(table.rows * table.columns));
  for (std::int64_t b = 0; b < table.rows; ++b)
    read_weight_row(table, b, by_bucket.data() + b * table.columns);
  std::vector<std::int64_t> buckets;  // of distances 1 - L to L - 1
  for (std::int64_t distance = 1 - length; distance < length; ++distance)
    buckets.push_back(distance_bucket(distance));
  Tensor bias = Tensor::uninitialized({table.columns, length, length}, DType::f32);
  float* to = bias.values<float>().data();
  parallel_for(table.columns * length, threads, [&](std::int64_t row, int /*worker*/) {
    const std::int64_t head = row / length, i = row % length;
    for (std::int64_t j = 0; j < length; ++j) {
      const std::int64_t bucket = buckets[static_cast<std::size_t>(j - i + length - 1)];
      to[row * length + j] = by_bucket[static_cast<std::size_t>(bucket * table.columns + head)];
    }
  });
  return bias;
}

class Encoder final : public Family {
 public:
  Encoder(EncoderWeights weights, const ModelInfo& info)
      : weights_(std::move(weights)), heads_(info.heads), head_dim_(info.head_dim) {}

  Tensor embed(std::span<const std::int64_t> ids, std::int64_t begin, int threads) const override {
    Tensor x = rows_of(weights_.tokens, ids, threads);
    if (weights_.types) {
      // All tokens of a single text have the first type.
      const std::vector<std::int64_t> first(ids.size(), 0);
      add_to(x, rows_of(*weights_.types, first, threads), threads);
    }
    if (weights_.positions) add_to(x, rows_of(*weights_.positions, places_of(ids, begin), threads), threads);
    Tensor normed = layer_norm(x, weights_.norm, threads);
    return weights_.projection ? linear(normed, *weights_.projection, threads) : std::move(normed);
  }

  Projected project(std::int64_t layer, const Tensor& stream, std::int64_t begin,
                    int threads) const override {
    const EncoderBlock& block = weights_.blocks[static_cast<std::size_t>(layer)];
    Projected made;
    made.memory.push_back(linear(stream, block.query, threads));
    made.memory.push_back(linear(stream, block.key, threads));
    made.memory.push_back(linear(stream, block.value, threads));
    const auto heads = [&](std::size_t n) { return as_heads(made.memory[n], 0, heads_, head_dim_); };
    if (weights_.rope) rotate(*weights_.rope, heads(0), heads(1), begin, threads);
    made.query = heads(0);
    made.key = heads(1);
    made.value = heads(2);
    if (weights_.distance_bias) {
      made.memory.push_back(bias_by_distance(*weights_.distance_bias, stream.size(0), threads));
      made.options.bias = made.memory.back();
    }
    return made;  // the options' own scale is BERT's, 1 / sqrt(d)
  }

  void finish(std::int64_t layer, const Tensor& heads, Tensor& stream, int threads) const override {
    const EncoderBlock& block = weights_.blocks[static_cast<std::size_t>(layer)];
    add_to(stream, linear(heads, block.output, threads), threads);
    stream = layer_norm(stream, block.attention_norm, threads);
    add_to(stream, mlp(stream, block.feed_forward, threads), threads);
    stream = layer_norm(stream, block.mlp_norm, threads);
  }

  // The last layer's output is already normalised.
  Tensor last_norm(const Tensor& stream, int /*threads*/) const override { return Tensor::copy_of(stream); }

  Tensor logits(const TensorView& hidden, int threads) const override {
    return head_logits(*weights_.head, hidden, threads);
  }

  const LinearWeights& output_projection(std::int64_t layer) const override {
    return weights_.blocks[static_cast<std::size_t>(layer)].output;
  }

  HeadInput head_input(std::int64_t layer, InputKind kind, std::int64_t head,
                       const Tensor& /*row*/) const override {
    const EncoderBlock& block = weights_.blocks[static_cast<std::size_t>(layer)];
    return {std::nullopt,
            kind == InputKind::query ? &block.query
            : kind == InputKind::key ? &block.key
                                     : &block.value,
            head * head_dim_,
            {},
            weights_.rope && kind != InputKind::value ? &*weights_.rope : nullptr};
  }

  std::optional<Tensor> position_share(std::span<const std::int64_t> ids, std::int64_t at) const override {
    if (!weights_.positions) return std::nullopt;
    const auto one = static_cast<std::size_t>(at);
    Tensor share = rows_of(*weights_.positions, {{places_of(ids, 0)[one]}}, 1);
    Tensor sum = rows_of(weights_.tokens, {{ids[one]}}, 1);
    if (weights_.types) add_to(sum, rows_of(*weights_.types, {{0}}, 1), 1);
    add_to(sum, share, 1);
    std::vector<double> values(share.values<float>().begin(), share.values<float>().end());
    apply_held(held_norm(weights_.norm, sum.values<float>()), values);
    std::ranges::copy(values, share.values<float>().begin());
    if (!weights_.projection) return share;
    return linear(share, {weights_.projection->weight, {}, weights_.projection->transposed}, 1);
  }

  std::optional<StreamNorms> stream_norms(std::int64_t layer, const Tensor& row,
                                          const Tensor& heads) const override {
    const EncoderBlock& block = weights_.blocks[static_cast<std::size_t>(layer)];
    Tensor x = Tensor::copy_of(row);
    add_to(x, linear(heads, block.output, 1), 1);
    StreamNorms norms{held_norm(block.attention_norm, x.values<float>()), {}};
    x = layer_norm(x, block.attention_norm, 1);
    add_to(x, mlp(x, block.feed_forward, 1), 1);
    norms.mlp = held_norm(block.mlp_norm, x.values<float>());
    return norms;
  }

 private:
  // Rows of the table of positions.
  [[nodiscard]] std::vector<std::int64_t> places_of(std::span<const std::int64_t> ids,
                                                    std::int64_t begin) const {
    std::vector<std::int64_t> places(ids.size());
    std::iota(places.begin(), places.end(), begin);
    if (!weights_.padding) return places;
    std::int64_t next = *weights_.padding + 1;
    for (std::size_t i = 0; i < ids.size(); ++i) places[i] = ids[i] == *weights_.padding ? ids[i] : next++;
    return places;
  }

  EncoderWeights weights_;
  std::int64_t heads_, head_dim_;
};

}  // namespace

Tensor head_logits(const EncoderHead& head, const TensorView& hidden, int threads) {
  Tensor x = linear(hidden, head.transform, threads);
  activate(head.activation, x, threads);
  return linear(layer_norm(x, head.norm, threads), head.unembedding, threads);
}

std::unique_ptr<const Family> make_encoder(EncoderWeights weights, ModelInfo& info) {
  info.fixed_context = true;
  info.causal = false;
  info.predicts = weights.head.has_value();
  return std::make_unique<Encoder>(std::move(weights), info);
}

}  // namespace heed::detail
