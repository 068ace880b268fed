// A tokenizer.json with a tokenizer_config.json that may change it.
#pragma once

#include <string>

#include "text/vocabulary_files.hpp"

namespace heed::detail {

/// Reads the tokenizer of a folder with a tokenizer.json. If there is a tokenizer_config.json, the ids are
/// those of transformers' AutoTokenizer, or no tokenizer is returned. `family` and `config_class` come from
/// config.json (model_type, tokenizer_class). Throws Error (io) for a broken file.
[[nodiscard]] FolderTokenizer tokenizer_with_settings(const std::string& folder, const std::string& family,
                                                      const std::string& config_class);

}  // namespace heed::detail
