// Special and added tokens from the settings beside a vocabulary, added as transformers does.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/folder_settings.hpp"

namespace heed::detail {

struct TokenSources {
  const std::string& folder;
  const FolderSettings& config;      ///< tokenizer_config.json
  const nlohmann::json& vocabulary;  ///< {token: id}, or a list of [token, score]
  const nlohmann::json& special;     ///< special tokens by default: {name: content}
  const JsonPart* file = nullptr;    ///< tokenizer.json
  bool keeps_file = false;           ///< the file's tokens come first, unchanged
};

/// The order is transformers': tokens with ids by id, then special tokens. special_tokens_map.json,
/// added_tokens.json and tokenizer.json's own tokens are read only if tokenizer_config.json has no
/// added_tokens_decoder.
class SettingsTokens {
 public:
  explicit SettingsTokens(const TokenSources& sources);

  /// The added_tokens of a tokenizer.json. If two have the same content, the later one counts.
  [[nodiscard]] const nlohmann::json& list() const { return list_; }
  [[nodiscard]] bool has(const char* name) const;
  /// The content of a named special token; "None" if missing, as Python writes it into a tokenizer.
  [[nodiscard]] std::string content(const char* name) const;
  /// The names and contents of all special tokens with a name: "bos_token", "<s>".
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> named() const;
  [[nodiscard]] std::int64_t id(const std::string& content) const;
  /// The contents of all special tokens: first the named ones, then the others.
  [[nodiscard]] std::vector<std::string> special() const;

  /// The first token whose id contradicts a file.
  struct Contradiction {
    std::string file;
    std::string what;
  };
  [[nodiscard]] const std::optional<Contradiction>& contradiction() const { return contradiction_; }

 private:
  struct NumberedToken {
    std::int64_t id;
    nlohmann::json token;
    std::string file;  // the file with this id
  };

  void read_special(const FolderSettings& file, bool takes_older);
  void read_special_map(const FolderSettings& file);
  void read_named(const FolderSettings& file);
  [[nodiscard]] std::vector<NumberedToken> tokens_of_file() const;
  [[nodiscard]] std::vector<NumberedToken> tokens_of_decoder() const;
  void add_ids_of(const FolderSettings& file, std::vector<NumberedToken>& tokens) const;
  void add_by_id(std::vector<NumberedToken> tokens);
  void add(nlohmann::json token);

  TokenSources sources_;
  std::int64_t next_;
  std::vector<std::pair<std::string, nlohmann::json>> named_;  // null for missing tokens
  nlohmann::json others_ = nlohmann::json::array();
  nlohmann::json list_ = nlohmann::json::array();
  nlohmann::json ids_ = nlohmann::json::object();
  std::optional<Contradiction> contradiction_;
};

}  // namespace heed::detail
