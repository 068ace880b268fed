// Words and their numbers, as in the notebooks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// The words of a sentence: what stands between white space and commas.
[[nodiscard]] HEED_API std::vector<std::string> split_words(std::string_view sentence);

/// The distinct words of a sentence, sorted by their bytes and numbered from 0 without gaps.
class HEED_API Vocabulary {
 public:
  Vocabulary() = default;
  explicit Vocabulary(std::string_view sentence) : Vocabulary(split_words(sentence)) {}
  explicit Vocabulary(std::vector<std::string> words);

  [[nodiscard]] std::int64_t size() const noexcept { return static_cast<std::int64_t>(words_.size()); }
  [[nodiscard]] const std::vector<std::string>& words() const noexcept { return words_; }
  /// Throws invalid_argument for a number that is not in [0, size()).
  [[nodiscard]] const std::string& word(std::int64_t id) const;
  [[nodiscard]] bool contains(const std::string& word) const;
  /// Throws invalid_argument for a word that is not in the vocabulary.
  [[nodiscard]] std::int64_t id(const std::string& word) const;
  /// Ids of the words, i64 [L]. Throws as id() does.
  [[nodiscard]] Tensor encode(const std::vector<std::string>& words) const;

 private:
  std::vector<std::string> words_;  // sorted
};

}  // namespace heed
