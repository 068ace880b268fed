// Special and added tokens that a folder's settings have beside its vocabulary, as transformers adds them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/folder_settings.hpp"

namespace heed::detail {

/// Where the tokens come from.
struct TokenSources {
  const std::string& folder;
  const FolderSettings& config;      ///< tokenizer_config.json
  const nlohmann::json& vocabulary;  ///< {token: id}, or a list of [token, score]
  const nlohmann::json& special;     ///< special tokens without being said: {name: content}
  const JsonPart* file = nullptr;    ///< tokenizer.json
  bool keeps_file = false;           ///< they come first, as they are
};

/// The order is transformers': tokens with ids by these, then special tokens. special_tokens_map.json,
/// added_tokens.json and tokenizer.json's own are read only where tokenizer_config.json has no
/// added_tokens_decoder.
class SettingsTokens {
 public:
  explicit SettingsTokens(const TokenSources& sources);

  /// The added_tokens of a tokenizer.json. The later one of two with the same content counts.
  [[nodiscard]] const nlohmann::json& list() const { return list_; }
  [[nodiscard]] bool has(const char* name) const;
  /// A special token by its name. Without one it is "None", which is what Python writes into a tokenizer.
  [[nodiscard]] std::string content(const char* name) const;
  /// The id of a token of the list.
  [[nodiscard]] std::int64_t id(const std::string& content) const;
  /// Contents of all special tokens: those with names, then the others.
  [[nodiscard]] std::vector<std::string> special() const;

  /// The first token whose id is not the one that a file says.
  struct Contradiction {
    std::string file;
    std::string what;
  };
  [[nodiscard]] const std::optional<Contradiction>& contradiction() const { return contradiction_; }

 private:
  struct NumberedToken {
    std::int64_t id;
    nlohmann::json token;
    std::string file;  // what says so
  };

  void read_special(const FolderSettings& file, bool takes_older);
  void read_special_map(const FolderSettings& file);
  void read_named(const FolderSettings& file);
  [[nodiscard]] std::vector<NumberedToken> tokens_of_file() const;
  [[nodiscard]] std::vector<NumberedToken> tokens_of_decoder() const;
  void add_ids_of(const FolderSettings& file, std::vector<NumberedToken>& tokens) const;
  void add_by_id(std::vector<NumberedToken> tokens);
  void add_unless_known(const nlohmann::json& token);
  void add(nlohmann::json token);

  TokenSources sources_;
  std::int64_t next_;
  std::vector<std::pair<std::string, nlohmann::json>> named_;  // null for those that there are not
  nlohmann::json others_ = nlohmann::json::array();
  nlohmann::json list_ = nlohmann::json::array();
  nlohmann::json ids_ = nlohmann::json::object();
  std::optional<Contradiction> contradiction_;
};

}  // namespace heed::detail
