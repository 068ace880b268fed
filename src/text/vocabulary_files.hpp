// The tokenizer of a model's folder: its tokenizer.json, or one made from older files.
#pragma once

#include <optional>
#include <string>

#include "heed/model/tokenizer.hpp"
#include "text/chat_settings.hpp"

namespace heed::detail {

/// A tokenizer, or the reason why there is none.
struct FolderTokenizer {
  std::optional<Tokenizer> tokenizer;
  std::string lack;  ///< the reason, as messages state it: "has no tokenizer.json"
  ChatSettings chat = {};
};

/// Reads tokenizer.json; without it BERT's vocab.txt (Devlin et al. 2018) or GPT-2's vocab.json and
/// merges.txt (Radford et al. 2019), with the settings of tokenizer_config.json, special_tokens_map.json and
/// added_tokens.json. The kind follows from tokenizer_config.json's tokenizer_class, else from
/// `tokenizer_class` (config.json's, or empty), else from `family`. Throws Error (io) for a broken file.
[[nodiscard]] FolderTokenizer tokenizer_in_folder(const std::string& folder, const std::string& family,
                                                  const std::string& tokenizer_class);

}  // namespace heed::detail
