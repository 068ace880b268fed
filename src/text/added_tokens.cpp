#include "text/added_tokens.hpp"

#include <algorithm>

#include "text/shared/unicode.hpp"

namespace heed::detail {
namespace {

std::size_t spaces_at_end(std::string_view text) {
  std::size_t left = text.size();
  while (left > 0) {
    const std::size_t begin = begin_of_last(text.substr(0, left));
    if (!is_white_space(decode_utf8(text.substr(begin)).value)) break;
    left = begin;
  }
  return text.size() - left;
}

std::size_t spaces_at_start(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size()) {
    const CodePoint point = decode_utf8(text.substr(end));
    if (!is_white_space(point.value)) break;
    end += point.length;
  }
  return end;
}

bool ends_with_word(std::string_view text) {
  return !text.empty() && is_word(decode_utf8(text.substr(begin_of_last(text))).value);
}

bool starts_with_word(std::string_view text) { return !text.empty() && is_word(decode_utf8(text).value); }

}  // namespace

AddedTokenFinder::AddedTokenFinder(const TokenVocabulary& vocabulary, bool normalized)
    : tokens_(&vocabulary.added()) {
  for (std::size_t i = 0; i < tokens_->size(); ++i) {
    const AddedToken& token = (*tokens_)[i];
    if (token.normalized == normalized) insert(token.pattern, i);
  }
}

void AddedTokenFinder::insert(std::string_view pattern, std::size_t token) {
  std::uint32_t node = 0;
  for (const char c : pattern) {
    const auto [next, fresh] = next_.try_emplace(key(node, c), static_cast<std::uint32_t>(ends_.size()));
    if (fresh) ends_.push_back(kNone);
    node = next->second;
  }
  if (ends_[node] == kNone) ends_[node] = static_cast<std::uint32_t>(token);
  starts_[static_cast<unsigned char>(pattern[0])] = true;
}

// The longest pattern that begins at `begin`.
AddedTokenFinder::Match AddedTokenFinder::longest(std::string_view text, std::size_t begin) const {
  Match found;
  std::uint32_t node = 0;
  for (std::size_t i = begin; i < text.size(); ++i) {
    const auto next = next_.find(key(node, text[i]));
    if (next == next_.end()) break;
    node = next->second;
    if (ends_[node] != kNone) found = {ends_[node], i + 1};
  }
  return found;
}

std::vector<FoundToken> AddedTokenFinder::find(std::string_view text) const {
  std::vector<FoundToken> all;
  if (next_.empty()) return all;
  std::size_t taken = 0;  // bytes up to the end of the previous token
  for (std::size_t at = 0; at < text.size();) {
    const bool may = starts_[static_cast<unsigned char>(text[at])];
    const Match match = may ? longest(text, at) : Match();
    if (match.token == kNone) {
      ++at;
      continue;
    }
    const AddedToken& token = (*tokens_)[match.token];
    FoundToken found = {token.id, at, match.end};
    at = match.end;
    if (token.single_word &&
        (ends_with_word(text.substr(0, found.begin)) || starts_with_word(text.substr(found.end))))
      continue;
    if (token.lstrip) found.begin = std::max(taken, found.begin - spaces_at_end(text.substr(0, found.begin)));
    if (token.rstrip) found.end += spaces_at_start(text.substr(found.end));
    if (found.begin >= found.end) continue;  // the previous token has taken all of it
    taken = found.end;
    all.push_back(found);
  }
  return all;
}

}  // namespace heed::detail
