// BERT (Devlin et al. 2019) and models with its structure: MiniLM, E5, BGE.
//
// families/encoder.hpp has the formulas; this file has the names. A folder holds the encoder, with or without
// the head for masked tokens (cls.predictions). Heads for whole texts are ignored.
#include <utility>

#include "model/families/bert_weights.hpp"

namespace heed::detail {
namespace {

std::unique_ptr<const Family> make_bert(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  const std::string root = root_of(weights, "bert.");
  EncoderWeights made =
      read_bert_weights(config, weights, info, root, config.integer("hidden_size", 1, kMaxWidth));
  made.head = read_prediction_head(config, weights, made.tokens, "LayerNorm");
  leave_heads(weights, root, {"pooler.dense", "cls.seq_relationship", "classifier", "qa_outputs"});
  return make_encoder(std::move(made), info);
}

}  // namespace

const FamilyEntry kBert = {.model_type = "bert", .keys = {.shared = &kBertKeys}, .make = make_bert};

}  // namespace heed::detail
