// ELECTRA (Clark et al. 2020): BERT's layers, with embeddings of embedding_size numbers, projected to
// hidden_size.
//
//   x = norm(E[id] + T[0] + P[position]) W_E + b
//   logits = norm(gelu(x W_T)) E^T + b, for the generator; the discriminator's head is for whole texts and
//   ignored
//
// families/encoder.hpp has the rest.
#include <utility>

#include "model/families/bert_weights.hpp"

namespace heed::detail {
namespace {

EncoderHead read_electra_head(const ModelConfig& config, Weights& weights, const WeightMatrix& tokens,
                              std::int64_t dim) {
  EncoderHead head;
  head.transform = linear_weights(weights, "generator_predictions.dense", tokens.columns, dim, true);
  head.activation = Activation::gelu;
  head.norm = layer_norm_weights(weights, "generator_predictions.LayerNorm", tokens.columns,
                                 epsilon_of(config, "layer_norm_eps"));
  head.unembedding = {unembedding_weight(config, weights, "generator_lm_head.weight", tokens),
                      weights.vector("generator_lm_head.bias", tokens.rows), false};
  return head;
}

std::unique_ptr<const Family> make_electra(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  const std::string root = root_of(weights, "electra.");
  const std::int64_t embedding_dim = config.integer("embedding_size", 1, kMaxWidth);
  EncoderWeights made = read_bert_weights(config, weights, info, root, embedding_dim);
  if (embedding_dim != info.model_dim)
    made.projection =
        linear_weights(weights, root + "embeddings_project", info.model_dim, embedding_dim, true);
  if (weights.contains("generator_predictions.dense.weight"))
    made.head = read_electra_head(config, weights, made.tokens, info.model_dim);
  leave_heads(weights, root,
              {"discriminator_predictions.dense", "discriminator_predictions.dense_prediction",
               "classifier.dense", "classifier.out_proj", "classifier", "qa_outputs"});
  return make_encoder(std::move(made), info);
}

}  // namespace

// The summary_ settings belong to heads for whole texts.
const FamilyEntry kElectra = {
    .model_type = "electra",
    .keys = {.read =
                 R"({"vocab_size": 30522, "embedding_size": 128, "hidden_size": 256, "num_hidden_layers": 12,
                 "num_attention_heads": 4, "intermediate_size": 1024, "max_position_embeddings": 512,
                 "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
                 "tie_word_embeddings": true})",
             .only = kBertOnly,
             .unused = "summary_type summary_use_proj summary_activation summary_last_dropout"},
    .make = make_electra};

}  // namespace heed::detail
