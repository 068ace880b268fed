// The vocabulary of a token model: tokens by id and ids by token.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/models/token_trie.hpp"

namespace heed::detail {

/// The upper limit of ids in a file. No real vocabulary exceeds it.
inline constexpr std::int64_t kMaxTokenIds = std::int64_t{1} << 24;

/// Immutable; not copyable, because views point into it.
class TokenTable {
 public:
  /// If several tokens share an id, the id stands for the last one.
  TokenTable(std::vector<std::string> tokens, const std::vector<std::int32_t>& ids);
  TokenTable(const TokenTable&) = delete;
  TokenTable& operator=(const TokenTable&) = delete;

  [[nodiscard]] std::optional<std::int64_t> id(std::string_view token) const;
  [[nodiscard]] std::optional<std::string_view> token(std::int64_t id) const;
  /// Ids are in [0, size()).
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(by_id_.size()); }
  [[nodiscard]] const TokenTrie& trie() const { return trie_; }
  /// All tokens, each with its id.
  [[nodiscard]] const std::vector<TokenTrie::Entry>& entries() const { return entries_; }

 private:
  std::vector<std::string> tokens_;
  std::vector<TokenTrie::Entry> entries_;
  std::vector<std::int32_t> by_id_;  // the index into tokens_, or -1
  TokenTrie trie_;
};

}  // namespace heed::detail
