#include "heed/io/vocabulary.hpp"

#include <algorithm>
#include <utility>

#include "core/message.hpp"

namespace heed {
namespace {

// A comma or ASCII white space, independent of the locale. UTF-8 bytes above 127 never count.
constexpr bool is_between_words(char c) { return c == ',' || c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

std::vector<std::string> split_words(std::string_view sentence) {
  std::vector<std::string> words;
  std::string word;
  const auto finish = [&] {
    if (!word.empty()) words.push_back(std::exchange(word, {}));
  };
  for (const char c : sentence) {
    if (is_between_words(c))
      finish();
    else
      word += c;
  }
  finish();
  return words;
}

Vocabulary::Vocabulary(std::vector<std::string> words) : words_(std::move(words)) {
  std::ranges::sort(words_);
  words_.erase(std::unique(words_.begin(), words_.end()), words_.end());
}

const std::string& Vocabulary::word(std::int64_t id) const {
  if (id < 0 || id >= size())
    detail::refuse("word number ", id, " is not in the vocabulary, which has ", size(),
                   " words numbered from 0");
  return words_[static_cast<std::size_t>(id)];
}

bool Vocabulary::contains(const std::string& word) const { return std::ranges::binary_search(words_, word); }

std::int64_t Vocabulary::id(const std::string& word) const {
  const auto found = std::ranges::lower_bound(words_, word);
  if (found == words_.end() || *found != word)
    detail::refuse("the word '", word, "' is not in the vocabulary, which has ", size(), " words");
  return found - words_.begin();
}

Tensor Vocabulary::encode(const std::vector<std::string>& words) const {
  Tensor ids = Tensor::uninitialized({std::ssize(words)}, DType::i64);
  std::ranges::transform(words, ids.values<std::int64_t>().begin(),
                         [this](const std::string& word) { return id(word); });
  return ids;
}

}  // namespace heed
