// Vocabularies of words, as in the notebooks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// Splits a sentence at white space and commas.
[[nodiscard]] HEED_API std::vector<std::string> split_words(std::string_view sentence);

/// The distinct words of a sentence, sorted by their bytes and numbered from 0 without gaps.
class HEED_API Vocabulary {
 public:
  Vocabulary() = default;
  explicit Vocabulary(std::string_view sentence) : Vocabulary(split_words(sentence)) {}
  explicit Vocabulary(std::vector<std::string> words);

  [[nodiscard]] std::int64_t size() const noexcept { return static_cast<std::int64_t>(words_.size()); }
  [[nodiscard]] const std::vector<std::string>& words() const noexcept { return words_; }
  /// The word of an id. Throws invalid_argument for an id outside [0, size()).
  [[nodiscard]] const std::string& word(std::int64_t id) const;
  [[nodiscard]] bool contains(const std::string& word) const;
  /// The id of a word. Throws invalid_argument for an unknown word.
  [[nodiscard]] std::int64_t id(const std::string& word) const;
  /// Ids of the words, i64 [L]. Throws as id() does.
  [[nodiscard]] Tensor encode(const std::vector<std::string>& words) const;

 private:
  std::vector<std::string> words_;  // sorted
};

}  // namespace heed
