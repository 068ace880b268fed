// Tokenizers that equal Hugging Face's tokenizers, read from a tokenizer.json: byte-level BPE (Radford et al.
// 2019), WordPiece (Schuster and Nakajima 2012), Unigram (Kudo 2018), BPE of SentencePiece, and word lists,
// with their normalizers, pre-tokenizers, added tokens, post-processors and decoders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/export.hpp"

namespace heed {

/// A token and its bytes [begin, end) in the text, in whole characters. begin = end = 0 for a token without
/// text ([CLS]).
struct TextToken {
  std::int64_t id = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
  bool special = false;  ///< an added token that the file marks special
  friend bool operator==(const TextToken&, const TextToken&) = default;
};

namespace detail {
struct TokenizerJson;
}

/// An immutable tokenizer; several threads may use it.
class HEED_API Tokenizer {
 public:
  /// Parses the text of a tokenizer.json; messages call it `name`. Throws Error (io) for invalid text and for
  /// features that heed does not support.
  [[nodiscard]] static Tokenizer from_json(std::string_view json, const std::string& name = "tokenizer.json");
  /// Reads a tokenizer.json file, likewise.
  [[nodiscard]] static Tokenizer from_file(const std::string& path);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Tokens of the whole text in order; with `add_special` also those that the post-processor adds. The
  /// file's truncation and padding are not applied, because they are meant for batches. Throws Error
  /// (invalid_argument) for text of 4 GiB or more, and for text that is not UTF-8, naming the byte.
  [[nodiscard]] std::vector<TextToken> encode(std::string_view text, bool add_special = true) const;
  /// The text of ids; `skip_special` leaves out special tokens. Bytes that form no character become U+FFFD.
  /// Throws Error (invalid_argument) for an id without a token.
  [[nodiscard]] std::string decode(std::span<const std::int64_t> ids, bool skip_special = true) const;

  /// Ids are in [0, size()); some may have no token.
  [[nodiscard]] std::int64_t size() const noexcept;
  /// The token as in the vocabulary: "##ing", "Ġthe", "▁the"; nullopt for an id without a token.
  [[nodiscard]] std::optional<std::string> token(std::int64_t id) const;
  [[nodiscard]] std::optional<std::int64_t> id(std::string_view token) const;
  [[nodiscard]] bool is_special(std::int64_t id) const noexcept;

  /// Readable forms of tokens. The space before a word is removed; "·able" is a piece that continues the word
  /// before it; "€ 1/3" is one of three tokens that spell a character; special tokens have brackets ("[CLS]",
  /// "<s>", "⟨name⟩"). Throws Error (invalid_argument) for an id without a token.
  [[nodiscard]] std::vector<std::string> shown(std::span<const std::int64_t> ids) const;

 private:
  friend struct detail::TokenizerJson;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

/// The old name of Tokenizer.
using TextTokenizer [[deprecated("it is heed::Tokenizer")]] = Tokenizer;

}  // namespace heed
