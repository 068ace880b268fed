// The tokens of the models that heed trains.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "heed/export.hpp"
#include "heed/tensor.hpp"
#include "heed/vocabulary.hpp"

namespace heed {

/// How a model cuts text into tokens and numbers them. Tokens are either the characters (Unicode code points)
/// of the text that the model learned from, numbered as a Vocabulary, or symbols without a meaning of their
/// own, which the words of any text are numbered onto as they first appear.
///
/// Where text is not UTF-8, or has what the model does not know, Error (invalid_argument) begins with
/// `source`.
class HEED_API Tokenizer {
 public:
  static constexpr std::int64_t kMost = 1'000'000;  ///< characters or symbols

  /// The characters that are in the text.
  [[nodiscard]] static Tokenizer of_characters(std::string_view text, const std::string& source = "the text");
  [[nodiscard]] static Tokenizer of_characters(Vocabulary characters);
  /// From 1 to kMost of them.
  [[nodiscard]] static Tokenizer of_symbols(std::int64_t count);

  [[nodiscard]] std::int64_t size() const noexcept { return is_symbols() ? symbols_ : characters_.size(); }
  [[nodiscard]] bool is_symbols() const noexcept { return characters_.size() == 0; }
  /// None where tokens are symbols.
  [[nodiscard]] const Vocabulary& characters() const noexcept { return characters_; }
  /// The tokens of a text as they are shown: its characters, or its words (split_words()).
  [[nodiscard]] std::vector<std::string> tokens_of(std::string_view text,
                                                   const std::string& source = "the text") const;
  /// Their numbers, i64 [L].
  [[nodiscard]] Tensor encode(const std::vector<std::string>& tokens,
                              const std::string& source = "the text") const;
  /// What token `id` stands for beside a text of these tokens: a character; a word of the text; for a symbol
  /// that none of its words took, "#17". Throws Error (invalid_argument) for an id that is not in [0,
  /// size()).
  [[nodiscard]] std::string text_of(std::int64_t id, const std::vector<std::string>& tokens) const;

 private:
  std::int64_t symbols_ = 0;
  Vocabulary characters_;
};

}  // namespace heed
