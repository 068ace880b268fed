// The parts of a Model.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "heed/io/trained_tokenizer.hpp"
#include "heed/model/model.hpp"
#include "model/families/family.hpp"
#include "model/files/weights.hpp"
#include "text/chat_settings.hpp"

namespace heed::detail {

struct ModelParts {
  ModelInfo info;
  std::shared_ptr<Weights> weights;
  std::unique_ptr<const Family> family;  ///< its matrices point into `weights`
  std::optional<Tokenizer> tokenizer;
  std::string lack = {};  ///< the reason if there is no tokenizer: "has no tokenizer.json"
  ChatSettings chat = {};
  double repetition_penalty = 1;                    ///< from generation_config.json, as are the next two
  std::int64_t min_length = 0;                      ///< no EOS token follows fewer tokens, prompt and text
  std::optional<std::int64_t> min_new_tokens = {};  ///< the same for the text alone; replaces min_length
  std::string no_generation = {};  ///< a setting of generation that heed does not have; empty if none
  std::string no_sampling = {};    ///< the same for sampling
  std::optional<TrainedTokenizer> own_tokenizer;  ///< replaces `tokenizer` in a model that heed trained
};

}  // namespace heed::detail
