// What the tokens of a trained model stand for.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "heed/tensor.hpp"

namespace heed::cli {

/// Tokens are either the characters (Unicode code points) of the text that the model learned from, or symbols
/// without a meaning of their own, which the words of any text are numbered onto as they first appear.
class ModelVocabulary {
 public:
  static constexpr std::int64_t kMost = 1'000'000;  ///< characters or symbols

  /// The characters of UTF-8 text, sorted by their bytes. Throws Error (io), naming `source`, for other text.
  [[nodiscard]] static ModelVocabulary characters_of(std::string_view text, const std::string& source);
  [[nodiscard]] static ModelVocabulary symbols(std::int64_t count);
  /// Throws Error (io), naming the file, for anything that to_json() did not make.
  [[nodiscard]] static ModelVocabulary from_json(std::string_view text, const std::string& path);
  [[nodiscard]] nlohmann::ordered_json to_json() const;

  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  [[nodiscard]] bool is_symbols() const noexcept { return characters_.empty(); }
  /// The text's tokens as they are shown: its characters, or its words (split_words()). Throws UsageError,
  /// naming `source`, where it is not UTF-8.
  [[nodiscard]] std::vector<std::string> tokens_of(std::string_view text, const std::string& source) const;
  /// i64 [L]. Throws UsageError, naming `source`, for a character that the model does not know, or for more
  /// distinct words than it has symbols.
  [[nodiscard]] Tensor encode(const std::vector<std::string>& tokens, const std::string& source) const;
  /// What token `id` stands for beside a text of these tokens: a character; a word of the text; for a symbol
  /// that none of its words took, "#17".
  [[nodiscard]] std::string text_of(std::int64_t id, const std::vector<std::string>& tokens) const;

 private:
  std::int64_t size_ = 0;
  std::vector<std::string> characters_;  // none: symbols
};

/// The bytes of the UTF-8 character that begins so.
[[nodiscard]] std::size_t bytes_of_character(char first);

/// The code points of UTF-8 text. Throws Error (io), naming `source`, where it is not UTF-8.
[[nodiscard]] std::vector<std::string> characters_in(std::string_view text, const std::string& source);

}  // namespace heed::cli
