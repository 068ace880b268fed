// Finding added tokens in a text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/vocabulary.hpp"

namespace heed::detail {

/// An added token over the bytes [begin, end) of a text.
struct FoundToken {
  std::int64_t id = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Finds added tokens with a trie of their bytes. Immutable.
class AddedTokenFinder {
 public:
  /// Uses the added tokens whose `normalized` is the given one. The vocabulary must outlive the finder, in
  /// place.
  AddedTokenFinder(const TokenVocabulary& vocabulary, bool normalized);

  /// Returns the matches in order: the leftmost, and of those the longest. White space that a token takes on
  /// its right may also belong to the next token.
  [[nodiscard]] std::vector<FoundToken> find(std::string_view text) const;

 private:
  static constexpr auto kNone = std::numeric_limits<std::uint32_t>::max();

  struct Match {
    std::uint32_t token = kNone;  // index into the vocabulary's added tokens
    std::size_t end = 0;
  };

  static std::uint64_t key(std::uint32_t node, char byte) {
    return std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
  }
  void insert(std::string_view pattern, std::size_t token);
  [[nodiscard]] Match longest(std::string_view text, std::size_t begin) const;

  const std::vector<AddedToken>* tokens_;
  std::unordered_map<std::uint64_t, std::uint32_t> next_;  // maps a node and a byte to the next node
  std::vector<std::uint32_t> ends_ = {kNone};              // the token that ends at a node
  std::array<bool, 256> starts_ = {};                      // first bytes of the tokens
};

}  // namespace heed::detail
