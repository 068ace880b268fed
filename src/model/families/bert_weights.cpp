#include "model/families/bert_weights.hpp"

namespace heed::detail {
namespace {

EncoderBlock read_block(Weights& weights, const std::string& at, std::int64_t dim, std::int64_t inner,
                        double epsilon, Activation activation) {
  EncoderBlock block;
  block.query = linear_weights(weights, at + "attention.self.query", dim, dim, true);
  block.key = linear_weights(weights, at + "attention.self.key", dim, dim, true);
  block.value = linear_weights(weights, at + "attention.self.value", dim, dim, true);
  block.output = linear_weights(weights, at + "attention.output.dense", dim, dim, true);
  block.attention_norm = layer_norm_weights(weights, at + "attention.output.LayerNorm", dim, epsilon);
  block.feed_forward.up = linear_weights(weights, at + "intermediate.dense", inner, dim, true);
  block.feed_forward.down = linear_weights(weights, at + "output.dense", dim, inner, true);
  block.feed_forward.activation = activation;
  block.mlp_norm = layer_norm_weights(weights, at + "output.LayerNorm", dim, epsilon);
  return block;
}

}  // namespace

const char* const kBertOnly = R"({"is_causal": false, "is_decoder": false, "add_cross_attention": false,
                 "position_embedding_type": "absolute"})";

std::string root_of(const Weights& weights, const std::string& root) {
  return weights.contains(root + "embeddings.word_embeddings.weight") ? root : "";
}

std::int64_t read_encoder_sizes(const ModelConfig& config, ModelInfo& info) {
  info.layers = config.integer("num_hidden_layers", 1, kMaxLayers);
  info.heads = config.integer("num_attention_heads", 1, kMaxHeads);
  info.model_dim = config.integer("hidden_size", 1, kMaxWidth);
  info.vocabulary = config.integer("vocab_size", 1, kMaxVocabulary);
  require_multiple(config, "hidden_size", info.model_dim, "num_attention_heads", info.heads);
  return config.integer("intermediate_size", 1, kMaxWidth);
}

EncoderWeights read_bert_weights(const ModelConfig& config, Weights& weights, ModelInfo& info,
                                 const std::string& root, std::int64_t embedding_dim) {
  const std::int64_t inner = read_encoder_sizes(config, info);
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
  for (std::int64_t n = 0; n < info.layers; ++n)
    made.blocks.push_back(read_block(weights, root + "encoder.layer." + std::to_string(n) + ".",
                                     info.model_dim, inner, epsilon, activation));
  weights.leave(at + "position_ids");
  weights.leave(at + "token_type_ids");
  return made;
}

EncoderHead read_prediction_head(const ModelConfig& config, Weights& weights, const WeightMatrix& tokens,
                                 const std::string& norm) {
  const std::string at = "cls.predictions.";
  const std::int64_t dim = tokens.columns;
  EncoderHead head;
  head.transform = linear_weights(weights, at + "transform.dense", dim, dim, true);
  head.activation = activation_of(config, "hidden_act");
  head.norm =
      layer_norm_weights(weights, at + "transform." + norm, dim, epsilon_of(config, "layer_norm_eps"));
  head.unembedding.weight = unembedding_weight(config, weights, at + "decoder.weight", tokens);
  // One bias under two names.
  const bool own = weights.contains(at + "decoder.bias");
  head.unembedding.bias = weights.vector(at + (own ? "decoder.bias" : "bias"), tokens.rows);
  weights.leave(at + "bias");
  return head;
}

EncoderHead read_lm_head(const ModelConfig& config, Weights& weights, const WeightMatrix& tokens) {
  const std::int64_t dim = tokens.columns;
  EncoderHead head;
  head.transform = linear_weights(weights, "lm_head.dense", dim, dim, true);
  head.activation = Activation::gelu;
  head.norm = layer_norm_weights(weights, "lm_head.layer_norm", dim, epsilon_of(config, "layer_norm_eps"));
  head.unembedding.weight = unembedding_weight(config, weights, "lm_head.decoder.weight", tokens);
  // One bias under two names.
  const bool own = weights.contains("lm_head.decoder.bias");
  head.unembedding.bias = weights.vector(own ? "lm_head.decoder.bias" : "lm_head.bias", tokens.rows);
  weights.leave("lm_head.bias");
  return head;
}

void leave_heads(Weights& weights, const std::string& root, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    for (const char* kind : {".weight", ".bias"}) {
      weights.leave(root + part + kind);
      weights.leave(part + kind);
    }
}

}  // namespace heed::detail
