// BERT (Devlin et al. 2019) and models with its structure: MiniLM, E5, BGE.
//
// families/encoder.hpp has the formulas; this file has the names. A folder holds the encoder, with or without
// the head for masked tokens (cls.predictions). Heads for whole texts are ignored.
#include <utility>

#include "model/families/bert_weights.hpp"

namespace heed::detail {
namespace {

EncoderHead read_bert_head(const ModelConfig& config, Weights& weights, const WeightMatrix& tokens) {
  const std::string at = "cls.predictions.";
  const std::int64_t dim = tokens.columns;
  EncoderHead head;
  head.transform = linear_weights(weights, at + "transform.dense", dim, dim, true);
  head.activation = activation_of(config, "hidden_act");
  head.norm =
      layer_norm_weights(weights, at + "transform.LayerNorm", dim, epsilon_of(config, "layer_norm_eps"));
  head.unembedding.weight = unembedding_weight(config, weights, at + "decoder.weight", tokens);
  // One bias under two names.
  const bool own = weights.contains(at + "decoder.bias");
  head.unembedding.bias = weights.vector(at + (own ? "decoder.bias" : "bias"), tokens.rows);
  weights.leave(at + "bias");
  return head;
}

std::unique_ptr<const Family> make_bert(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  const std::string root = root_of(weights, "bert.");
  EncoderWeights made =
      read_bert_weights(config, weights, info, root, config.integer("hidden_size", 1, kMaxWidth));
  if (weights.contains("cls.predictions.transform.dense.weight"))
    made.head = read_bert_head(config, weights, made.tokens);
  leave_heads(weights, root, {"pooler.dense", "cls.seq_relationship", "classifier", "qa_outputs"});
  return make_encoder(std::move(made), info);
}

}  // namespace

const FamilyEntry kBert = {
    .model_type = "bert",
    .keys = {.read = R"({"vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12,
                 "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 512,
                 "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
                 "tie_word_embeddings": true})",
             .only = kBertOnly},
    .make = make_bert};

}  // namespace heed::detail
