#include "model/families/gated_decoder.hpp"

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "model/layers/linear.hpp"
#include "model/layers/mlp.hpp"
#include "model/layers/norms.hpp"

namespace heed::detail {
namespace {

struct GatedBlock {
  std::optional<NormWeights> attention_norm, mlp_norm;    // before attention and MLP
  std::optional<RmsNormWeights> query_norm, key_norm;     // of heads, or of all heads at once
  std::optional<NormWeights> attention_after, mlp_after;  // the second norms of sandwiches
  LinearWeights query, key, value, output;
  std::optional<Tensor> sinks;  // [H]
  std::variant<MlpWeights, MixtureWeights> feed_forward;
};

void multiply(Tensor& x, float factor) {
  if (factor == 1) return;
  for (float& value : x.values<float>()) value *= factor;
}

class GatedDecoder final : public Family {
 public:
  GatedDecoder(const ModelConfig& config, Weights& weights, ModelInfo& info, GatedDecoderRules rules)
      : rules_(std::move(rules)),
        heads_(info.heads),
        kv_heads_(info.kv_heads),
        causal_(info.causal),
        head_dim_(info.head_dim),
        dim_(info.model_dim) {
    // A model without unembedding is stored without the prefix "model.".
    const bool whole = weights.contains("model.embed_tokens.weight");
    const std::string root = whole ? "model." : "";
    tokens_ = weights.matrix(root + "embed_tokens.weight", info.vocabulary, dim_);
    for (std::int64_t n = 0; n < info.layers; ++n)
      blocks_.push_back(read_block(weights, root + "layers." + std::to_string(n) + ".", n));
    last_norm_ = norm(weights, root + "norm");
    info.predicts = whole || config.flag("tie_word_embeddings");
    if (info.predicts) unembedding_.weight = unembedding_weight(config, weights, "lm_head.weight", tokens_);
  }

  Tensor embed(std::span<const std::int64_t> ids, std::int64_t /*begin*/, int threads) const override {
    Tensor x = rows_of(tokens_, ids, threads);
    multiply(x, rules_.embedding_scale);
    return x;
  }

  Projected project(std::int64_t layer, const Tensor& stream, std::int64_t begin,
                    int threads) const override {
    const GatedBlock& block = blocks_[static_cast<std::size_t>(layer)];
    const Tensor normed = before(stream, block.attention_norm, threads);
    Projected made;
    made.memory.push_back(linear(normed, block.query, threads));
    made.memory.push_back(linear(normed, block.key, threads));
    made.memory.push_back(linear(normed, block.value, threads));
    if (rules_.whole_norms) {
      made.memory[0] = rms_norm(made.memory[0], *block.query_norm, threads);
      made.memory[1] = rms_norm(made.memory[1], *block.key_norm, threads);
    }
    const MutableTensorView query = as_heads(made.memory[0], 0, heads_, head_dim_);
    const MutableTensorView key = as_heads(made.memory[1], 0, kv_heads_, head_dim_);
    if (rules_.head_norms) {
      rms_norm_heads(query, *block.query_norm, threads);
      rms_norm_heads(key, *block.key_norm, threads);
    }
    const std::int64_t reach = rules_.reaches[static_cast<std::size_t>(layer)];
    if (rules_.rotates.empty() || rules_.rotates[static_cast<std::size_t>(layer)])
      rotate(reach >= 0 ? rules_.window_rope : rules_.rope, query, key, begin, threads);
    made.query = query;
    made.key = key;
    made.value = as_heads(made.memory[2], 0, kv_heads_, head_dim_);
    made.options.causal = causal_;
    made.options.scale = rules_.scale;
    made.options.softcap = rules_.softcap;
    if (block.sinks) made.options.sinks = block.sinks->view();
    made.options.window = {.left = reach, .right = causal_ ? -1 : reach};
    return made;
  }

  void finish(std::int64_t layer, const Tensor& heads, Tensor& stream, int threads) const override {
    const GatedBlock& block = blocks_[static_cast<std::size_t>(layer)];
    Tensor attended = linear(heads, block.output, threads);
    if (block.attention_after) attended = normed(attended, *block.attention_after, threads);
    multiply(attended, rules_.residual_scale);
    if (!rules_.parallel) add_to(stream, attended, threads);
    Tensor fed = feed(block, stream, threads);
    if (rules_.parallel) add_to(stream, attended, threads);
    if (block.mlp_after) fed = normed(fed, *block.mlp_after, threads);
    multiply(fed, rules_.residual_scale);
    add_to(stream, fed, threads);
  }

  Tensor last_norm(const Tensor& stream, int threads) const override {
    return normed(stream, last_norm_, threads);
  }

  Tensor logits(const TensorView& hidden, int threads) const override {
    Tensor made = linear(hidden, unembedding_, threads);
    multiply(made, rules_.logits_scale);
    if (rules_.logits_cap > 0) cap(made, rules_.logits_cap, threads);
    return made;
  }

  std::optional<std::int64_t> turning_length() const override { return rules_.rope.turning_length(); }

  const LinearWeights& output_projection(std::int64_t layer) const override {
    return blocks_[static_cast<std::size_t>(layer)].output;
  }
  std::optional<HeldNorm> norm_behind_attention(std::int64_t layer, std::span<const float> x) const override {
    const auto& norm = blocks_[static_cast<std::size_t>(layer)].attention_after;
    if (!norm && rules_.residual_scale == 1) return std::nullopt;
    HeldNorm held = norm ? held_norm(*norm, x) : HeldNorm{std::vector<double>(x.size(), 1), {}, false};
    for (double& gain : held.gain) gain *= static_cast<double>(rules_.residual_scale);
    return held;
  }
  HeadInput head_input(std::int64_t layer, InputKind kind, std::int64_t head,
                       const Tensor& row) const override {
    const auto at = static_cast<std::size_t>(layer);
    const GatedBlock& block = blocks_[at];
    const bool is_query = kind == InputKind::query;
    HeadInput input;
    input.weights = is_query ? &block.query : kind == InputKind::key ? &block.key : &block.value;
    input.first = head * head_dim_;
    if (block.attention_norm) input.norm = held_norm(*block.attention_norm, row.values<float>());
    if (kind == InputKind::value) return input;
    const auto& norm = is_query ? block.query_norm : block.key_norm;
    if (norm)
      input.gain = held_gain(*norm, linear(before(row, block.attention_norm, 1), *input.weights, 1), head);
    if (rules_.rotates.empty() || rules_.rotates[at])
      input.rope = rules_.reaches[at] >= 0 ? &rules_.window_rope : &rules_.rope;
    return input;
  }
  std::optional<HeldNorm> held_last_norm(std::span<const float> row) const override {
    return held_norm(last_norm_, row);
  }
  const LinearWeights* unembedding() const override { return &unembedding_; }
  double logits_scale() const override { return static_cast<double>(rules_.logits_scale); }

 private:
  // The input of attention or MLP: the stream, normalised if there is a norm before them.
  static Tensor before(const Tensor& stream, const std::optional<NormWeights>& norm, int threads) {
    return norm ? normed(stream, *norm, threads) : Tensor::copy_of(stream);
  }

  // The gain that the norm on queries or keys x [1, H d] gives one head.
  [[nodiscard]] std::vector<double> held_gain(const RmsNormWeights& norm, const Tensor& x,
                                              std::int64_t head) const {
    const auto first = static_cast<std::size_t>(head * head_dim_), size = static_cast<std::size_t>(head_dim_);
    const auto all = x.values<float>();
    if (rules_.head_norms) return held_norm(norm, all.subspan(first, size)).gain;
    const std::vector<double> gain = held_norm(norm, all).gain;
    return {gain.begin() + head * head_dim_, gain.begin() + (head + 1) * head_dim_};
  }

  Tensor feed(const GatedBlock& block, const Tensor& stream, int threads) const {
    const Tensor x = before(stream, rules_.parallel ? block.attention_norm : block.mlp_norm, threads);
    if (const auto* experts = std::get_if<MixtureWeights>(&block.feed_forward))
      return mixture(x, *experts, threads);
    return mlp(x, std::get<MlpWeights>(block.feed_forward), threads);
  }

  NormWeights norm(Weights& weights, const std::string& name) const {
    if (rules_.layer_norms) return layer_norm_weights(weights, name, dim_, rules_.epsilon);
    return rms_norm_weights(weights, name, dim_, rules_.epsilon, rules_.norm_offset);
  }

  GatedBlock read_block(Weights& weights, const std::string& at, std::int64_t layer) const {
    GatedBlock block;
    if (!rules_.post_norms) block.attention_norm = norm(weights, at + "input_layernorm");
    read_projections(weights, at + "self_attn.", block);
    if (!rules_.post_norms && !rules_.parallel)
      block.mlp_norm = norm(
          weights, at + (rules_.sandwich_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm"));
    if (rules_.post_norms || rules_.sandwich_norms) {
      block.attention_after = norm(weights, at + "post_attention_layernorm");
      block.mlp_after = norm(weights, at + "post_feedforward_layernorm");
    }
    const MixtureRules& mixture = rules_.mixture;
    if (mixture.experts > 0 && (mixture.layers.empty() || mixture.layers[static_cast<std::size_t>(layer)]))
      block.feed_forward = read_mixture(weights, at + mixture.block);
    else
      block.feed_forward = read_mlp(weights, at + "mlp.");
    weights.leave(at + "self_attn.rotary_emb.inv_freq");  // in old files
    return block;
  }

  void read_projections(Weights& weights, const std::string& at, GatedBlock& block) const {
    const std::int64_t query_dim = heads_ * head_dim_, key_dim = kv_heads_ * head_dim_;
    const bool bias = rules_.query_key_value_bias;
    if (rules_.fused) {
      const WeightMatrix all = weights.matrix(at + "qkv_proj.weight", query_dim + 2 * key_dim, dim_);
      block.query.weight = rows_between(all, 0, query_dim);
      block.key.weight = rows_between(all, query_dim, key_dim);
      block.value.weight = rows_between(all, query_dim + key_dim, key_dim);
    } else {
      block.query = linear_weights(weights, at + "q_proj", query_dim, dim_, bias);
      block.key = linear_weights(weights, at + "k_proj", key_dim, dim_, bias);
      block.value = linear_weights(weights, at + "v_proj", key_dim, dim_, bias);
    }
    block.output = linear_weights(weights, at + "o_proj", dim_, query_dim, rules_.output_bias);
    if (rules_.sinks) block.sinks = weights.vector(at + "sinks", heads_);
    if (!rules_.head_norms && !rules_.whole_norms) return;
    const auto norm_of = [&](const char* name, std::int64_t all) {
      return rms_norm_weights(weights, at + name, rules_.head_norms ? head_dim_ : all, rules_.epsilon,
                              rules_.norm_offset);
    };
    block.query_norm = norm_of("q_norm", query_dim);
    block.key_norm = norm_of("k_norm", key_dim);
  }

  MlpWeights read_mlp(Weights& weights, const std::string& at) const {
    const std::int64_t inner = rules_.inner;
    MlpWeights made;
    made.activation = rules_.activation;
    if (rules_.fused) {
      const WeightMatrix all = weights.matrix(at + "gate_up_proj.weight", 2 * inner, dim_);
      made.gate = LinearWeights{rows_between(all, 0, inner), {}, false};
      made.up.weight = rows_between(all, inner, inner);
    } else {
      if (rules_.gated) made.gate = linear_weights(weights, at + "gate_proj", inner, dim_, rules_.mlp_bias);
      made.up = linear_weights(weights, at + rules_.up, inner, dim_, rules_.mlp_bias);
    }
    made.down = linear_weights(weights, at + rules_.down, dim_, inner, rules_.mlp_bias);
    return made;
  }

  MixtureWeights read_mixture(Weights& weights, const std::string& at) const {
    const MixtureRules& rules = rules_.mixture;
    MixtureWeights made;
    made.router = linear_weights(weights, at + rules.router, rules.experts, dim_, rules.bias);
    made.router.weight.fast = false;  // a rounded score could choose other experts
    made.chosen = rules.chosen;
    made.over_chosen = rules.over_chosen;
    if (rules.read_experts && !weights.contains(at + "experts.0." + rules.gate + ".weight")) {
      made.experts = rules.read_experts(weights, at + "experts.");
      return made;
    }
    for (std::int64_t e = 0; e < rules.experts; ++e) {
      const std::string expert = at + "experts." + std::to_string(e) + ".";
      MlpWeights& one = made.experts.emplace_back();
      one.activation = rules_.activation;
      one.clamped = rules.clamped;
      one.gate = linear_weights(weights, expert + rules.gate, rules.inner, dim_, rules.bias);
      one.up = linear_weights(weights, expert + rules.up, rules.inner, dim_, rules.bias);
      one.down = linear_weights(weights, expert + rules.down, dim_, rules.inner, rules.bias);
    }
    return made;
  }

  GatedDecoderRules rules_;
  std::int64_t heads_, kv_heads_;
  bool causal_;
  std::int64_t head_dim_, dim_;
  WeightMatrix tokens_;
  std::vector<GatedBlock> blocks_;
  NormWeights last_norm_;
  LinearWeights unembedding_;
};

}  // namespace

const SharedKeys kDecoderKeys = {
    .read = R"({"num_key_value_heads": null, "head_dim": null, "hidden_act": "silu",
                 "tie_word_embeddings": false, "is_causal": true, "rope_parameters": null, "rope_scaling": null,
                 "rope_theta": 10000.0, "original_max_position_embeddings": null})",
    .only = R"({"partial_rotary_factor": 1})"};

GatedDecoderRules read_gated_decoder(const ModelConfig& config, ModelInfo& info, const char* activation,
                                     const char* epsilon) {
  info.layers = config.integer("num_hidden_layers", 1, kMaxLayers);
  info.heads = config.integer("num_attention_heads", 1, kMaxHeads);
  info.kv_heads =
      config.has("num_key_value_heads") ? config.integer("num_key_value_heads", 1, info.heads) : info.heads;
  info.model_dim = config.integer("hidden_size", 1, kMaxWidth);
  info.vocabulary = config.integer("vocab_size", 1, kMaxVocabulary);
  info.context = config.integer("max_position_embeddings", 1, kMaxContext);
  info.causal = is_causal(config);
  if (!config.has("head_dim"))
    require_multiple(config, "hidden_size", info.model_dim, "num_attention_heads", info.heads);
  info.head_dim =
      config.has("head_dim") ? config.integer("head_dim", 1, kMaxWidth) : info.model_dim / info.heads;
  require_multiple(config, "num_attention_heads", info.heads, "num_key_value_heads", info.kv_heads);
  if (info.head_dim % 2 != 0)
    config.fail("gives heads ", info.head_dim, " numbers wide; rotary positions need an even number");
  GatedDecoderRules rules;
  rules.inner = config.integer("intermediate_size", 1, kMaxWidth);
  rules.epsilon = epsilon_of(config, epsilon);
  rules.activation = activation_of(config, activation);
  rules.scale = 1 / std::sqrt(static_cast<double>(info.head_dim));
  rules.reaches.assign(static_cast<std::size_t>(info.layers), -1);
  return rules;
}

Rope whole_rope(const ModelConfig& config, const ModelInfo& info, RopeRules rules) {
  if (rules.share != 1)
    config.fail("has partial_rotary_factor other than 1, which heed's ", config.text("model_type"),
                " does not support");
  return {config, std::move(rules), info.head_dim};
}

std::int64_t expert_count(const ModelConfig& config, const char* name) {
  return config.integer(name, 1, kMaxExperts);
}

std::int64_t chosen_experts(const ModelConfig& config, std::int64_t experts) {
  return config.integer("num_experts_per_tok", 1, experts);
}

std::optional<std::int64_t> sliding_window(const ModelConfig& config) {
  if (!config.has("sliding_window")) return std::nullopt;
  return config.integer("sliding_window", 1, kMaxContext);
}

std::vector<std::int64_t> layer_reaches(const ModelConfig& config, std::int64_t layers,
                                        std::optional<std::int64_t> window,
                                        const std::function<bool(std::int64_t)>& slides) {
  const std::vector<std::string> types = config.texts("layer_types");
  if (config.has("layer_types") && types.size() != static_cast<std::size_t>(layers))
    config.fail("has ", types.size(), " layer_types for ", layers, " layers");
  for (const std::string& type : types)
    if (type != "full_attention" && type != "sliding_attention")
      config.fail("has a layer of type '", type, "'; full_attention or sliding_attention is expected");
  std::vector<std::int64_t> reaches(static_cast<std::size_t>(layers), -1);
  for (std::size_t n = 0; n < reaches.size(); ++n) {
    if (types.empty() ? !slides(static_cast<std::int64_t>(n)) : types[n] != "sliding_attention") continue;
    if (!window) config.fail("has a layer of type 'sliding_attention' and no sliding_window for it");
    reaches[n] = is_causal(config) ? *window - 1 : *window;
  }
  return reaches;
}

std::vector<std::int64_t> layer_reaches(const ModelConfig& config, std::int64_t layers,
                                        std::optional<std::int64_t> window) {
  return layer_reaches(config, layers, window, [&](std::int64_t /*layer*/) { return window.has_value(); });
}

std::unique_ptr<const Family> make_gated_decoder(const ModelConfig& config, Weights& weights, ModelInfo& info,
                                                 GatedDecoderRules rules) {
  return std::make_unique<GatedDecoder>(config, weights, info, std::move(rules));
}

}  // namespace heed::detail
