// The chat template of a model's folder.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "text/folder_settings.hpp"
#include "text/settings_tokens.hpp"

namespace heed::detail {

/// A chat template and the special tokens that it may name, or the reason why there is none.
struct ChatSettings {
  std::string source = {};  ///< the file with the template, as messages name it
  std::string text = {};
  std::string lack = "has no chat template";
  std::vector<std::pair<std::string, std::string>> tokens = {};  ///< "bos_token", "<s>"
};

/// Reads chat_template.jinja, or chat_template in tokenizer_config.json: a text, or a list or object of
/// named ones, of which it takes "default". Throws Error (io) for a broken file.
[[nodiscard]] ChatSettings chat_settings_in(const std::string& folder, const FolderSettings& config,
                                            const SettingsTokens& tokens);

}  // namespace heed::detail
