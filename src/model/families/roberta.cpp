// RoBERTa (Liu et al. 2019), XLM-RoBERTa (Conneau et al. 2020) and CamemBERT (Martin et al. 2020): BERT's
// layers.
//
// Position i of a text is row p + 1 + i of the table of positions, where p is the id of the padding token;
// such a token has row p itself and is not counted. The head for tokens is lm_head, always with GELU.
// families/encoder.hpp has the formulas. Heads for whole texts are ignored.
#include <utility>

#include "model/families/bert_weights.hpp"

namespace heed::detail {
namespace {

std::unique_ptr<const Family> make_roberta(const ModelConfig& config, Weights& weights, ModelInfo& info) {
  const std::string root = root_of(weights, "roberta.");
  EncoderWeights made =
      read_bert_weights(config, weights, info, root, config.integer("hidden_size", 1, kMaxWidth));
  made.padding = config.integer("pad_token_id", 0, info.vocabulary - 1);
  if (*made.padding + 1 >= info.context)
    config.fail("has max_position_embeddings ", info.context, "; more than pad_token_id + 1, ",
                *made.padding + 1, ", is expected");
  info.context -= *made.padding + 1;
  made.head = read_lm_head(config, weights, made.tokens);
  leave_heads(weights, root,
              {"pooler.dense", "classifier.dense", "classifier.out_proj", "classifier", "qa_outputs"});
  return make_encoder(std::move(made), info);
}

}  // namespace

const FamilyEntry kRoberta = {
    .model_type = "roberta",
    .keys = {.shared = &kBertKeys, .read = R"({"vocab_size": 50265, "pad_token_id": 1})"},
    .make = make_roberta};

const FamilyEntry kXlmRoberta = {.model_type = "xlm-roberta",
                                 .keys = {.shared = &kBertKeys, .read = R"({"pad_token_id": 1})"},
                                 .make = make_roberta};

const FamilyEntry kCamembert = {.model_type = "camembert",
                                .keys = {.shared = &kBertKeys, .read = R"({"pad_token_id": 1})"},
                                .make = make_roberta};

}  // namespace heed::detail
