// DistilBERT (Sanh et al. 2019): BERT's layers without types of tokens.
//
// families/encoder.hpp has the formulas; this file has the names. Heads for whole texts are ignored.
#include <utility>

#include "model/families/bert_weights.hpp"

namespace heed::detail {
namespace {

constexpr double kDistilBertEpsilon = 1e-12;

constexpr EncoderBlockNames kDistilBertBlock = {"attention.q_lin",   "attention.k_lin",  "attention.v_lin",
                                                "attention.out_lin", "sa_layer_norm",    "ffn.lin1",
                                                "ffn.lin2",          "output_layer_norm"};

std::unique_ptr<const Family> make_distilbert(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  read_sizes(config, info, {.layers = "n_layers", .heads = "n_heads", .width = "dim"});
  info.context = config.integer("max_position_embeddings", 1, kMaxContext);
  const std::int64_t inner = config.integer("hidden_dim", 1, kMaxWidth), dim = info.model_dim;
  const Activation activation = activation_of(config, "activation");

  const std::string root = root_of(weights, "distilbert.");
  const std::string at = root + "embeddings.";
  EncoderWeights made;
  made.tokens = weights.matrix(at + "word_embeddings.weight", info.vocabulary, dim);
  made.positions = weights.matrix(at + "position_embeddings.weight", info.context, dim);
  made.norm = layer_norm_weights(weights, at + "LayerNorm", dim, kDistilBertEpsilon);
  made.blocks = read_encoder_blocks(weights, root + "transformer.layer.", kDistilBertBlock, info, inner,
                                    kDistilBertEpsilon, activation);
  if (weights.contains("vocab_transform.weight"))
    made.head = read_encoder_head(config, weights, made.tokens,
                                  {"vocab_transform", "vocab_layer_norm", "vocab_projector"}, dim,
                                  kDistilBertEpsilon, activation);
  leave_heads(weights, "", {"pre_classifier", "classifier", "qa_outputs"});
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
