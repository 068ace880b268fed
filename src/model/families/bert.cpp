// BERT (Devlin et al. 2019) and models with its structure: MiniLM, E5, BGE.
//
// families/encoder.hpp has the formulas; this file has the names. A folder holds the encoder, with or without
// the head for masked tokens (cls.predictions). Heads for whole texts are ignored.
#include <utility>

#include "model/families/encoder.hpp"

namespace heed::detail {
namespace {

EncoderBlock read_bert_block(Weights& weights, const std::string& at, std::int64_t dim, std::int64_t inner,
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

EncoderHead read_bert_head(const ModelConfig& config, Weights& weights, const WeightMatrix& tokens,
                           double epsilon, Activation activation) {
  const std::string at = "cls.predictions.";
  const std::int64_t dim = tokens.columns;
  EncoderHead head;
  head.transform = linear_weights(weights, at + "transform.dense", dim, dim, true);
  head.activation = activation;
  head.norm = layer_norm_weights(weights, at + "transform.LayerNorm", dim, epsilon);
  head.unembedding.weight = unembedding_weight(config, weights, at + "decoder.weight", tokens);
  // One bias under two names.
  const bool own = weights.contains(at + "decoder.bias");
  head.unembedding.bias = weights.vector(at + (own ? "decoder.bias" : "bias"), tokens.rows);
  weights.leave(at + "bias");
  return head;
}

std::unique_ptr<const Family> make_bert(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  info.layers = config.integer("num_hidden_layers", 1, kMaxLayers);
  info.heads = config.integer("num_attention_heads", 1, kMaxHeads);
  info.model_dim = config.integer("hidden_size", 1, kMaxWidth);
  info.vocabulary = config.integer("vocab_size", 1, kMaxVocabulary);
  info.context = config.integer("max_position_embeddings", 1, kMaxContext);
  require_multiple(config, "hidden_size", info.model_dim, "num_attention_heads", info.heads);
  const std::int64_t inner = config.integer("intermediate_size", 1, kMaxWidth), dim = info.model_dim;
  const double epsilon = epsilon_of(config, "layer_norm_eps");
  const Activation activation = activation_of(config, "hidden_act");

  const std::string root = weights.contains("bert.embeddings.word_embeddings.weight") ? "bert." : "";
  const std::string at = root + "embeddings.";
  EncoderWeights made;
  made.tokens = weights.matrix(at + "word_embeddings.weight", info.vocabulary, dim);
  made.positions = weights.matrix(at + "position_embeddings.weight", info.context, dim);
  made.types = weights.matrix(at + "token_type_embeddings.weight",
                              config.integer("type_vocab_size", 1, kMaxVocabulary), dim);
  made.norm = layer_norm_weights(weights, at + "LayerNorm", dim, epsilon);
  for (std::int64_t n = 0; n < info.layers; ++n)
    made.blocks.push_back(read_bert_block(weights, root + "encoder.layer." + std::to_string(n) + ".", dim,
                                          inner, epsilon, activation));
  if (weights.contains("cls.predictions.transform.dense.weight"))
    made.head = read_bert_head(config, weights, made.tokens, epsilon, activation);
  for (const char* part : {"pooler.dense", "cls.seq_relationship", "classifier", "qa_outputs"})
    for (const char* kind : {".weight", ".bias"}) {
      weights.leave(root + part + kind);
      weights.leave(part + std::string(kind));
    }
  weights.leave(at + "position_ids");
  return make_encoder(std::move(made), info);
}

}  // namespace

const FamilyEntry kBert = {
    .model_type = "bert",
    .keys = {.read = R"({"vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12,
                 "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 512,
                 "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
                 "tie_word_embeddings": true})",
             .only = R"({"is_causal": false, "is_decoder": false, "add_cross_attention": false,
                 "position_embedding_type": "absolute"})"},
    .make = make_bert};

}  // namespace heed::detail
