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

std::unique_ptr<const Family> make_electra(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  const std::string root = root_of(weights, "electra.");
  const std::int64_t embedding_dim = config.integer("embedding_size", 1, kMaxWidth);
  EncoderWeights made = read_bert_weights(config, weights, info, root, embedding_dim);
  if (embedding_dim != info.model_dim)
    made.projection =
        linear_weights(weights, root + "embeddings_project", info.model_dim, embedding_dim, true);
  if (weights.contains("generator_predictions.dense.weight"))
    made.head = read_encoder_head(
        config, weights, made.tokens,
        {"generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head"},
        info.model_dim, epsilon_of(config, "layer_norm_eps"), Activation::gelu);
  leave_heads(weights, root,
              {"discriminator_predictions.dense", "discriminator_predictions.dense_prediction",
               "classifier.dense", "classifier.out_proj", "classifier", "qa_outputs"});
  return make_encoder(std::move(made), info);
}

}  // namespace

// The summary_ settings belong to heads for whole texts.
const FamilyEntry kElectra = {
    .model_type = "electra",
    .keys = {.shared = &kBertKeys,
             .read = R"({"embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4,
                 "intermediate_size": 1024})",
             .unused = "summary_type summary_use_proj summary_activation summary_last_dropout"},
    .make = make_electra};

}  // namespace heed::detail
