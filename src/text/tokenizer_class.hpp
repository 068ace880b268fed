// Tokenizer classes of transformers. Most classes keep only the vocabulary, merges and post-processor of a
// tokenizer.json, and derive the rest from rules and settings of their own.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "text/settings_tokens.hpp"

namespace heed::detail {

struct ClassInput {
  const JsonPart& settings;  ///< tokenizer_config.json
  const SettingsTokens& tokens;
  const nlohmann::json& normalizer;  ///< of tokenizer.json, or null
};

struct TokenizerClass {
  std::string_view name;   ///< without "Fast"
  std::string_view model;  ///< the type of its model
  /// Special tokens by default, by name; a list of others under additional_special_tokens. An object also has
  /// the flags of a token that the settings name by its text alone.
  nlohmann::json special;
  /// Completes a tokenizer.json that has a vocabulary, merges and a post-processor, if any.
  void (*complete)(const ClassInput& input, nlohmann::json& made);
};

/// Returns nullptr for an unknown name. A final "Fast" is ignored.
[[nodiscard]] const TokenizerClass* tokenizer_class_named(std::string_view name);

/// A token before or after a text.
struct TextEnd {
  std::string content;
  std::int64_t id = 0;
};
/// The special token of that name, if any.
[[nodiscard]] std::optional<TextEnd> end_named(const SettingsTokens& tokens, const char* name);

/// A post-processor that adds these tokens.
[[nodiscard]] nlohmann::json text_between(const std::optional<TextEnd>& before,
                                          const std::optional<TextEnd>& behind);

/// The class that transformers' AutoTokenizer takes.
struct ChosenClass {
  const TokenizerClass* rules = nullptr;  ///< nullptr: the class that keeps all of tokenizer.json
  std::string unknown{};                  ///< the name of an unknown class, or empty
};

/// `family` is the model's model_type. `settings_class` and `config_class` are the tokenizer_class of
/// tokenizer_config.json and of config.json, or empty. `is_byte_level`: the tokenizer.json has a ByteLevel.
[[nodiscard]] ChosenClass auto_class(std::string_view family, const std::string& settings_class,
                                     const std::string& config_class, bool is_byte_level);

}  // namespace heed::detail
