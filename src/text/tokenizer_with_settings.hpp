// A tokenizer.json beside a tokenizer_config.json, which may say otherwise.
#pragma once

#include <string>

#include "text/vocabulary_files.hpp"

namespace heed::detail {

/// The tokenizer of a folder with a tokenizer.json. Beside a tokenizer_config.json its ids are the ids of
/// transformers' AutoTokenizer, or there is no tokenizer. `family` and `config_class` come from config.json
/// (model_type, tokenizer_class). Throws Error (io) for a file that is not as it should be.
[[nodiscard]] FolderTokenizer tokenizer_with_settings(const std::string& folder, const std::string& family,
                                                      const std::string& config_class);

}  // namespace heed::detail
