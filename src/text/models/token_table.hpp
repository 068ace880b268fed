// The vocabulary of a token model: tokens by id and ids by token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heed::detail {

/// A trie of tokens: exact lookup, and the tokens that a text begins with. A tree whose edges hold as many
/// bytes as possible, so that it has fewer than two nodes per token, however long tokens are. It does not
/// hash, so no choice of tokens makes it slow.
class TokenTrie {
 public:
  struct Entry {
    std::string_view bytes;
    std::int32_t id = 0;
  };

  TokenTrie() = default;
  /// The bytes must outlive the trie. The last of equal entries counts; empty ones are ignored.
  explicit TokenTrie(std::vector<Entry> entries);

  [[nodiscard]] std::optional<std::int32_t> find(std::string_view bytes) const {
    std::optional<std::int32_t> found;
    each_prefix(bytes, [&](std::size_t length, std::int32_t id) {
      if (length == bytes.size()) found = id;
    });
    return found;
  }

  /// Calls visit(length, id) for each token that the text begins with, the shortest first.
  template <class Visit>
  void each_prefix(std::string_view text, Visit visit) const {
    std::size_t at = 0;
    for (const Node* node = child(0, text, at); node != nullptr;
         node = child(static_cast<std::size_t>(node - nodes_.data()), text, at)) {
      if (text.compare(at, node->edge.size(), node->edge) != 0) return;
      at += node->edge.size();
      if (node->id >= 0) visit(at, node->id);
    }
  }

 private:
  struct Node {
    std::string_view edge;  // bytes between the parent and this node
    std::uint32_t first_child = 0;
    std::uint32_t children = 0;
    std::int32_t id = -1;  // the token that ends here
  };

  // The child for the text's byte `at`.
  const Node* child(std::size_t node, std::string_view text, std::size_t at) const {
    if (node >= nodes_.size() || at >= text.size() || nodes_[node].children == 0) return nullptr;
    const char* const first = &labels_[nodes_[node].first_child];
    const void* const found = std::memchr(first, static_cast<unsigned char>(text[at]), nodes_[node].children);
    return found == nullptr ? nullptr
                            : &nodes_[nodes_[node].first_child +
                                      static_cast<std::size_t>(static_cast<const char*>(found) - first)];
  }

  std::vector<Node> nodes_;   // siblings are adjacent; the first node is the root
  std::vector<char> labels_;  // the first byte of each node's edge
};

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
  [[nodiscard]] const std::vector<TokenTrie::Entry>& entries() const { return entries_; }

 private:
  std::vector<std::string> tokens_;
  std::vector<TokenTrie::Entry> entries_;
  std::vector<std::int32_t> by_id_;  // the index into tokens_, or -1
  TokenTrie trie_;
};

}  // namespace heed::detail
