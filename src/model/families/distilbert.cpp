// DistilBERT (Sanh et al. 2019): BERT's layers without types of tokens.
//
// families/encoder.hpp has the formulas; this file has the names. Heads for whole texts are ignored.
#include <utility>

#include "model/families/encoder.hpp"

namespace heed::detail {
namespace {

constexpr double kDistilBertEpsilon = 1e-12;

EncoderBlock read_distilbert_block(Weights& weights, const std::string& at, std::int64_t dim,
                                   std::int64_t inner, Activation activation) {
  EncoderBlock block;
  block.query = linear_weights(weights, at + "attention.q_lin", dim, dim, true);
  block.key = linear_weights(weights, at + "attention.k_lin", dim, dim, true);
  block.value = linear_weights(weights, at + "attention.v_lin", dim, dim, true);
  block.output = linear_weights(weights, at + "attention.out_lin", dim, dim, true);
  block.attention_norm = layer_norm_weights(weights, at + "sa_layer_norm", dim, kDistilBertEpsilon);
  block.feed_forward.up = linear_weights(weights, at + "ffn.lin1", inner, dim, true);
  block.feed_forward.down = linear_weights(weights, at + "ffn.lin2", dim, inner, true);
  block.feed_forward.activation = activation;
  block.mlp_norm = layer_norm_weights(weights, at + "output_layer_norm", dim, kDistilBertEpsilon);
  return block;
}

std::unique_ptr<const Family> make_distilbert(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  info.layers = config.integer("n_layers", 1, kMaxLayers);
  info.heads = config.integer("n_heads", 1, kMaxHeads);
  info.model_dim = config.integer("dim", 1, kMaxWidth);
  info.vocabulary = config.integer("vocab_size", 1, kMaxVocabulary);
  info.context = config.integer("max_position_embeddings", 1, kMaxContext);
  require_multiple(config, "dim", info.model_dim, "n_heads", info.heads);
  const std::int64_t inner = config.integer("hidden_dim", 1, kMaxWidth), dim = info.model_dim;
  const Activation activation = activation_of(config, "activation");

  const std::string root =
      weights.contains("distilbert.embeddings.word_embeddings.weight") ? "distilbert." : "";
  const std::string at = root + "embeddings.";
  EncoderWeights made;
  made.tokens = weights.matrix(at + "word_embeddings.weight", info.vocabulary, dim);
  made.positions = weights.matrix(at + "position_embeddings.weight", info.context, dim);
  made.norm = layer_norm_weights(weights, at + "LayerNorm", dim, kDistilBertEpsilon);
  for (std::int64_t n = 0; n < info.layers; ++n)
    made.blocks.push_back(read_distilbert_block(
        weights, root + "transformer.layer." + std::to_string(n) + ".", dim, inner, activation));
  if (weights.contains("vocab_transform.weight")) {
    EncoderHead head;
    head.transform = linear_weights(weights, "vocab_transform", dim, dim, true);
    head.activation = activation;
    head.norm = layer_norm_weights(weights, "vocab_layer_norm", dim, kDistilBertEpsilon);
    head.unembedding = {unembedding_weight(config, weights, "vocab_projector.weight", made.tokens),
                        weights.vector("vocab_projector.bias", info.vocabulary), false};
    made.head = std::move(head);
  }
  for (const char* part : {"pre_classifier", "classifier", "qa_outputs"})
    for (const char* kind : {".weight", ".bias"}) weights.leave(part + std::string(kind));
  weights.leave(at + "position_ids");
  return make_encoder(std::move(made), info);
}

}  // namespace

// The file contains the positions even with sinusoidal_pos_embds. Old files have tie_weights_.
const FamilyEntry kDistilBert = {
    .model_type = "distilbert",
    .keys = {.read = R"({"vocab_size": 30522, "dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072,
                 "max_position_embeddings": 512, "activation": "gelu", "tie_word_embeddings": true})",
             .only = R"({"is_causal": false})",
             .unused = "sinusoidal_pos_embds tie_weights_",
             .renamed = R"({"hidden_size": "dim", "num_hidden_layers": "n_layers",
                 "num_attention_heads": "n_heads"})"},
    .make = make_distilbert};

}  // namespace heed::detail
