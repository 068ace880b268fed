#include "model/families/bert_weights.hpp"

namespace heed::detail {
namespace {

constexpr EncoderBlockNames kBertBlock = {
    "attention.self.query",       "attention.self.key", "attention.self.value", "attention.output.dense",
    "attention.output.LayerNorm", "intermediate.dense", "output.dense",         "output.LayerNorm"};

}  // namespace

const SharedKeys kBertKeys = {
    .read = R"({"vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
                 "intermediate_size": 3072, "max_position_embeddings": 512, "type_vocab_size": 2,
                 "hidden_act": "gelu", "layer_norm_eps": 1e-12, "tie_word_embeddings": true})",
    .only = R"({"is_causal": false, "is_decoder": false, "add_cross_attention": false,
                 "position_embedding_type": "absolute"})"};

std::string root_of(const Weights& weights, const std::string& root) {
  return weights.contains(root + "embeddings.word_embeddings.weight") ? root : "";
}

EncoderWeights read_bert_weights(const ModelConfig& config, Weights& weights, ModelInfo& info,
                                 const std::string& root, std::int64_t embedding_dim) {
  read_sizes(config, info);
  const std::int64_t inner = config.integer("intermediate_size", 1, kMaxWidth);
  info.context = config.integer("max_position_embeddings", 1, kMaxContext);
  const double epsilon = epsilon_of(config, "layer_norm_eps");
  const Activation activation = activation_of(config, "hidden_act");
  const std::string at = root + "embeddings.";
  EncoderWeights made;
  made.tokens = weights.matrix(at + "word_embeddings.weight", info.vocabulary, embedding_dim);
  made.positions = weights.matrix(at + "position_embeddings.weight", info.context, embedding_dim);
  made.types = weights.matrix(at + "token_type_embeddings.weight",
                              config.integer("type_vocab_size", 1, kMaxVocabulary), embedding_dim);
  made.norm = layer_norm_weights(weights, at + "LayerNorm", embedding_dim, epsilon);
  made.blocks =
      read_encoder_blocks(weights, root + "encoder.layer.", kBertBlock, info, inner, epsilon, activation);
  weights.leave(at + "position_ids");
  weights.leave(at + "token_type_ids");
  return made;
}

std::vector<EncoderBlock> read_encoder_blocks(Weights& weights, const std::string& at,
                                              const EncoderBlockNames& names, const ModelInfo& info,
                                              std::int64_t inner, double epsilon, Activation activation) {
  const std::int64_t dim = info.model_dim;
  std::vector<EncoderBlock> blocks;
  for (std::int64_t n = 0; n < info.layers; ++n) {
    const std::string own = at + std::to_string(n) + ".";
    const auto linear_named = [&](const char* name, std::int64_t outputs, std::int64_t inputs) {
      return linear_weights(weights, own + name, outputs, inputs, true);
    };
    EncoderBlock& block = blocks.emplace_back();
    block.query = linear_named(names.query, dim, dim);
    block.key = linear_named(names.key, dim, dim);
    block.value = linear_named(names.value, dim, dim);
    block.output = linear_named(names.output, dim, dim);
    block.attention_norm = layer_norm_weights(weights, own + names.attention_norm, dim, epsilon);
    block.feed_forward.up = linear_named(names.up, inner, dim);
    block.feed_forward.down = linear_named(names.down, dim, inner);
    block.feed_forward.activation = activation;
    block.mlp_norm = layer_norm_weights(weights, own + names.mlp_norm, dim, epsilon);
  }
  return blocks;
}

EncoderHead read_encoder_head(const ModelConfig& config, Weights& weights, const WeightMatrix& tokens,
                              const EncoderHeadNames& names, std::int64_t dim, double epsilon,
                              Activation activation) {
  EncoderHead head;
  head.transform = linear_weights(weights, names.transform, tokens.columns, dim, true);
  head.activation = activation;
  head.norm = layer_norm_weights(weights, names.norm, tokens.columns, epsilon);
  head.unembedding.weight = unembedding_weight(config, weights, names.decoder + ".weight", tokens);
  const std::string own = names.decoder + ".bias";
  const bool is_own = names.bias.empty() || weights.contains(own);
  head.unembedding.bias = weights.vector(is_own ? own : names.bias, tokens.rows);
  if (!names.bias.empty()) weights.leave(names.bias);
  return head;
}

std::optional<EncoderHead> read_prediction_head(const ModelConfig& config, Weights& weights,
                                                const WeightMatrix& tokens, const std::string& norm) {
  const std::string at = "cls.predictions.";
  if (!weights.contains(at + "transform.dense.weight")) return std::nullopt;
  return read_encoder_head(config, weights, tokens,
                           {at + "transform.dense", at + "transform." + norm, at + "decoder", at + "bias"},
                           tokens.columns, epsilon_of(config, "layer_norm_eps"),
                           activation_of(config, "hidden_act"));
}

std::optional<EncoderHead> read_lm_head(const ModelConfig& config, Weights& weights,
                                        const WeightMatrix& tokens) {
  if (!weights.contains("lm_head.dense.weight")) return std::nullopt;
  return read_encoder_head(config, weights, tokens,
                           {"lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias"},
                           tokens.columns, epsilon_of(config, "layer_norm_eps"), Activation::gelu);
}

void leave_heads(Weights& weights, const std::string& root, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    for (const char* kind : {".weight", ".bias"}) {
      weights.leave(root + part + kind);
      weights.leave(part + kind);
    }
}

}  // namespace heed::detail
