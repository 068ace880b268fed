// What a Model is made of.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "heed/model.hpp"
#include "heed/trained_tokenizer.hpp"
#include "model/families/family.hpp"
#include "model/files/weights.hpp"

namespace heed::detail {

struct ModelParts {
  ModelInfo info;
  std::shared_ptr<Weights> weights;
  std::unique_ptr<const Family> family;  ///< its matrices lie in `weights`
  std::optional<TextTokenizer> tokenizer;
  std::string lack = {};                   ///< where there is none, why: "has no tokenizer.json"
  std::optional<Tokenizer> own_tokenizer;  ///< of a model that heed trained, in place of `tokenizer`
};

}  // namespace heed::detail
