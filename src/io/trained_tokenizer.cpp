#include <algorithm>
#include <utility>

#include "core/message.hpp"
#include "core/utf8.hpp"
#include "heed/io/trained_tokenizer.hpp"

namespace heed {
namespace {

// The distinct words, in the order of their first appearance.
std::vector<std::string> distinct(const std::vector<std::string>& words) {
  std::vector<std::string> all;
  for (const std::string& word : words)
    if (std::ranges::find(all, word) == all.end()) all.push_back(word);
  return all;
}

std::vector<std::string> characters_in(std::string_view text) {
  std::vector<std::string> characters;
  while (!text.empty()) {
    const std::size_t length = detail::decode_utf8(text).length;
    characters.emplace_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return characters;
}

}  // namespace

TrainedTokenizer TrainedTokenizer::of_characters(std::string_view text, const std::string& source) {
  if (!detail::is_utf8(text)) detail::refuse(source, " is not UTF-8 text");
  return of_characters(Vocabulary(characters_in(text)));
}

TrainedTokenizer TrainedTokenizer::of_characters(Vocabulary characters) {
  TrainedTokenizer tokenizer;
  tokenizer.characters_ = std::move(characters);
  return tokenizer;
}

TrainedTokenizer TrainedTokenizer::of_symbols(std::int64_t count) {
  if (count < 1 || count > kMax) detail::refuse("count is ", count, "; 1 to ", kMax, " symbols are expected");
  TrainedTokenizer tokenizer;
  tokenizer.symbols_ = count;
  return tokenizer;
}

std::vector<std::string> TrainedTokenizer::tokens_of(std::string_view text, const std::string& source) const {
  if (!detail::is_utf8(text)) detail::refuse(source, " is not UTF-8 text");
  return is_symbols() ? split_words(text) : characters_in(text);
}

Tensor TrainedTokenizer::encode(const std::vector<std::string>& tokens, const std::string& source) const {
  Tensor ids = Tensor::uninitialized({std::ssize(tokens)}, DType::i64);
  std::int64_t* to = ids.values<std::int64_t>().data();
  if (is_symbols()) {
    const std::vector<std::string> words = distinct(tokens);
    if (std::ssize(words) > size())
      detail::refuse(source, " has ", words.size(), " different words; the model has symbols for ", size());
    for (const std::string& token : tokens) *to++ = std::ranges::find(words, token) - words.begin();
    return ids;
  }
  for (const std::string& token : tokens) {
    if (!characters_.contains(token))
      detail::refuse(source, " has the character '", token, "', which the model does not know");
    *to++ = characters_.id(token);
  }
  return ids;
}

std::string TrainedTokenizer::text_of(std::int64_t id, const std::vector<std::string>& tokens) const {
  detail::check_range("id", id, 0, size() - 1);
  if (!is_symbols()) return characters_.word(id);
  const std::vector<std::string> words = distinct(tokens);
  if (id < std::ssize(words)) return words[static_cast<std::size_t>(id)];
  std::string number = std::to_string(id);
  return number.insert(0, 1, '#');
}

}  // namespace heed
