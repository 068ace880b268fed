// WordPiece (Schuster and Nakajima 2012), as in BERT: from the left, the longest token that fits; tokens
// within a word have a prefix. A word that cannot be split so is unknown as a whole.
#include <utility>

#include "core/utf8.hpp"
#include "text/models/token_models.hpp"

namespace heed::detail {
namespace {

// Bounds the work for each piece of a word; real files have 100.
constexpr std::int64_t kLongestPieceWord = 10'000;

// The tokens with the prefix, which is removed.
TokenTrie continuing(const TokenTable& table, std::string_view prefix) {
  std::vector<TokenTrie::Entry> entries;
  for (const TokenTrie::Entry& one : table.entries())
    if (one.bytes.starts_with(prefix)) entries.push_back({one.bytes.substr(prefix.size()), one.id});
  return TokenTrie(std::move(entries));
}

class WordPiece final : public TableModel {
 public:
  WordPiece(const JsonPart& part, TokenIds vocabulary)
      : TableModel(std::move(vocabulary.tokens), vocabulary.ids),
        unknown_(table_.id(part.text("unk_token", "[UNK]"))),
        longest_(
            static_cast<std::size_t>(part.integer("max_input_chars_per_word", 0, kLongestPieceWord, 100))),
        continuing_(continuing(table_, part.text("continuing_subword_prefix", "##"))) {}

  void cut(std::string_view word, std::vector<TokenPiece>& pieces) const override {
    const std::size_t before = pieces.size();
    bool known = word.size() <= longest_ || letters_in(word) <= longest_;
    for (std::size_t begin = 0; known && begin < word.size();) {
      TokenPiece piece{-1, begin, begin};
      const TokenTrie& trie = begin == 0 ? table_.trie() : continuing_;
      trie.each_prefix(word.substr(begin), [&](std::size_t length, std::int32_t id) {
        piece.id = id;
        piece.end = begin + length;
      });
      known = piece.id >= 0;
      begin = piece.end;
      pieces.push_back(piece);
    }
    if (known) return;
    if (!unknown_) fail_unknown(word);
    pieces.resize(before);
    pieces.push_back({*unknown_, 0, word.size()});
  }

 private:
  std::optional<std::int64_t> unknown_;
  std::size_t longest_;
  TokenTrie continuing_;
};

}  // namespace

std::unique_ptr<const TokenModel> word_piece_from(const JsonPart& part) {
  return std::make_unique<WordPiece>(part, TokenIds(part));
}

}  // namespace heed::detail
