#include "model/vocabulary.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "command.hpp"
#include "heed/error.hpp"
#include "heed/vocabulary.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

using Json = nlohmann::ordered_json;

// The distinct words, in the order of their first appearance.
std::vector<std::string> distinct(const std::vector<std::string>& words) {
  std::vector<std::string> all;
  for (const std::string& word : words)
    if (std::find(all.begin(), all.end(), word) == all.end()) all.push_back(word);
  return all;
}

}  // namespace

std::size_t bytes_of_character(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

std::vector<std::string> characters_in(std::string_view text, const std::string& source) {
  if (!is_utf8(text)) throw Error(ErrorCode::io, source + " is not UTF-8 text");
  std::vector<std::string> characters;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = bytes_of_character(text[at]);
    characters.emplace_back(text.substr(at, length));
    at += length;
  }
  return characters;
}

ModelVocabulary ModelVocabulary::characters_of(std::string_view text, const std::string& source) {
  ModelVocabulary vocabulary;
  vocabulary.characters_ = characters_in(text, source);
  std::vector<std::string>& all = vocabulary.characters_;
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  vocabulary.size_ = static_cast<std::int64_t>(all.size());
  return vocabulary;
}

ModelVocabulary ModelVocabulary::symbols(std::int64_t count) {
  ModelVocabulary vocabulary;
  vocabulary.size_ = count;
  return vocabulary;
}

Json ModelVocabulary::to_json() const {
  if (is_symbols()) return {{"symbols", size_}};
  return {{"characters", characters_}};
}

std::vector<std::string> ModelVocabulary::tokens_of(std::string_view text, const std::string& source) const {
  if (!is_utf8(text)) throw UsageError(source + " is not UTF-8 text");
  return is_symbols() ? split_words(text) : characters_in(text, source);
}

Tensor ModelVocabulary::encode(const std::vector<std::string>& tokens, const std::string& source) const {
  const std::vector<std::string> known = is_symbols() ? distinct(tokens) : characters_;
  if (is_symbols() && static_cast<std::int64_t>(known.size()) > size_)
    throw UsageError(source + " has " + std::to_string(known.size()) +
                     " different words; the model has symbols for " + std::to_string(size_));
  Tensor ids = Tensor::uninitialized({static_cast<std::int64_t>(tokens.size())}, DType::i64);
  std::int64_t* to = ids.values<std::int64_t>().data();
  for (const std::string& token : tokens) {
    const auto found = is_symbols() ? std::find(known.begin(), known.end(), token)
                                    : std::lower_bound(known.begin(), known.end(), token);
    if (found == known.end() || *found != token)
      throw UsageError(source + " has the character '" + token + "', which the model does not know");
    *to++ = found - known.begin();
  }
  return ids;
}

std::string ModelVocabulary::text_of(std::int64_t id, const std::vector<std::string>& tokens) const {
  if (!is_symbols()) return characters_[static_cast<std::size_t>(id)];
  const std::vector<std::string> words = distinct(tokens);
  if (id < static_cast<std::int64_t>(words.size())) return words[static_cast<std::size_t>(id)];
  return "#" + std::to_string(id);
}

}  // namespace heed::cli
