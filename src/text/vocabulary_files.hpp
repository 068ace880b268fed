// The tokenizer of a model's folder: its tokenizer.json, or one made of the files that came before it.
#pragma once

#include <optional>
#include <string>

#include "heed/text_tokenizer.hpp"

namespace heed::detail {

/// A tokenizer, or why there is none.
struct FolderTokenizer {
  std::optional<TextTokenizer> tokenizer;
  std::string lack;  ///< where there is none, what messages say of the model: "has no tokenizer.json"
};

/// tokenizer.json; without it BERT's vocab.txt (Devlin et al. 2018) or GPT-2's vocab.json and merges.txt
/// (Radford et al. 2019), with what tokenizer_config.json, special_tokens_map.json and added_tokens.json say.
/// Which of them is said by tokenizer_config.json's tokenizer_class, else by `tokenizer_class` (that of
/// config.json, or empty), else by `family`. Throws Error (io) for a file that is not as it should be.
[[nodiscard]] FolderTokenizer tokenizer_in_folder(const std::string& folder, const std::string& family,
                                                  const std::string& tokenizer_class);

}  // namespace heed::detail
