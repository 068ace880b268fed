// Text to tokens as Hugging Face's tokenizers does it, from a tokenizer.json: byte-level BPE (Radford et al.
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

/// A token and the bytes [begin, end) of the text that it stands for, whole letters; begin = end = 0 where it
/// stands for none ([CLS]).
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

/// Immutable; several threads may use one.
class HEED_API TextTokenizer {
 public:
  /// The text of a tokenizer.json, which messages call `name`. Throws Error (io) for what is not one, and for
  /// parts of one that heed does not know.
  [[nodiscard]] static TextTokenizer from_json(std::string_view json,
                                               const std::string& name = "tokenizer.json");
  /// The file, likewise.
  [[nodiscard]] static TextTokenizer from_file(const std::string& path);

  TextTokenizer(TextTokenizer&&) noexcept;
  TextTokenizer& operator=(TextTokenizer&&) noexcept;
  ~TextTokenizer();

  /// Tokens of the whole text, in its order; with `add_special` those that the post-processor adds, too.
  /// The file's truncation and padding are for batches, and not done here. Throws Error (invalid_argument)
  /// for a text of 4 GiB or more, and, naming the byte, for one that is not UTF-8.
  [[nodiscard]] std::vector<TextToken> encode(std::string_view text, bool add_special = true) const;
  /// The text of ids, without special tokens where `skip_special`. Bytes that are no letter give U+FFFD.
  /// Throws Error (invalid_argument) for an id that is no token.
  [[nodiscard]] std::string decode(std::span<const std::int64_t> ids, bool skip_special = true) const;

  /// Ids are in [0, size()), not all of which need to be tokens.
  [[nodiscard]] std::int64_t size() const noexcept;
  /// As the vocabulary has it: "##ing", "Ġthe", "▁the". Nothing for an id that is no token.
  [[nodiscard]] std::optional<std::string> token(std::int64_t id) const;
  [[nodiscard]] std::optional<std::int64_t> id(std::string_view token) const;
  [[nodiscard]] bool is_special(std::int64_t id) const noexcept;

  /// Each token as people read it: without the space before a word; "·able" for a piece that goes on with the
  /// word before it; "€ 1/3" for one of the tokens that spell a letter together; special ones in brackets
  /// ("[CLS]", "<s>", "⟨name⟩").
  [[nodiscard]] std::vector<std::string> shown(std::span<const std::int64_t> ids) const;

 private:
  friend struct detail::TokenizerJson;
  struct Impl;
  explicit TextTokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace heed
