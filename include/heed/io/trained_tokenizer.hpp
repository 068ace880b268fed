// The tokens of the models that heed trains.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "heed/export.hpp"
#include "heed/io/vocabulary.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// Splits text into tokens and numbers them. Tokens are the characters (Unicode code points) of the training
/// text, numbered as in a Vocabulary. Or they are symbols without meaning: the words of any text get numbers
/// in order of first appearance.
///
/// Throws Error (invalid_argument), starting with `source`, for text that is not UTF-8 or has unknown tokens.
class HEED_API TrainedTokenizer {
 public:
  static constexpr std::int64_t kMax = 1'000'000;  ///< upper limit for the number of characters or symbols

  /// A tokenizer of the characters that occur in the text.
  [[nodiscard]] static TrainedTokenizer of_characters(std::string_view text,
                                                      const std::string& source = "the text");
  [[nodiscard]] static TrainedTokenizer of_characters(Vocabulary characters);
  /// A tokenizer of `count` symbols, 1 to kMax.
  [[nodiscard]] static TrainedTokenizer of_symbols(std::int64_t count);

  [[nodiscard]] std::int64_t size() const noexcept { return is_symbols() ? symbols_ : characters_.size(); }
  [[nodiscard]] bool is_symbols() const noexcept { return characters_.size() == 0; }
  /// The characters; empty if tokens are symbols.
  [[nodiscard]] const Vocabulary& characters() const noexcept { return characters_; }
  /// The tokens of a text in readable form: its characters, or its words (split_words()).
  [[nodiscard]] std::vector<std::string> tokens_of(std::string_view text,
                                                   const std::string& source = "the text") const;
  /// The ids of the tokens, i64 [L].
  [[nodiscard]] Tensor encode(const std::vector<std::string>& tokens,
                              const std::string& source = "the text") const;
  /// The text of token `id` beside a text with these tokens: a character, or a word of the text. A symbol
  /// that no word uses reads "#17". Throws Error (invalid_argument) for an id outside [0, size()).
  [[nodiscard]] std::string text_of(std::int64_t id, const std::vector<std::string>& tokens) const;

 private:
  std::int64_t symbols_ = 0;
  Vocabulary characters_;
};

}  // namespace heed
