#include "text/vocabulary.hpp"

#include <algorithm>
#include <utility>

#include "io/fault.hpp"

namespace heed::detail {
namespace {

// Bounds the steps of a search at each byte of a text.
constexpr std::size_t kLongestAddedToken = 1024;
constexpr std::int64_t kMaxTokens = 1 << 24;

std::string pattern_of(const AddedToken& token, const Normalizer& normalizer) {
  if (!token.normalized || !normalizer) return token.content;
  AlignedText text(token.content);
  normalizer(text);
  return text.text();
}

}  // namespace

TokenVocabulary::TokenVocabulary(std::unique_ptr<const TokenModel> model, const std::vector<JsonPart>& added,
                                 const Normalizer& normalizer)
    : model_(std::move(model)), next_(model_->count()), size_(model_->size()) {
  for (const JsonPart& part : added) add(part, normalizer);
}

void TokenVocabulary::add(const JsonPart& part, const Normalizer& normalizer) {
  AddedToken token;
  token.content = part.text("content");
  if (token.content.empty()) return;
  const std::string shown = io::detail::printable(token.content);
  token.special = part.flag("special", false);
  token.single_word = part.flag("single_word", false);
  token.lstrip = part.flag("lstrip", false);
  token.rstrip = part.flag("rstrip", false);
  token.normalized = part.flag("normalized", !token.special);
  token.pattern = pattern_of(token, normalizer);
  if (token.pattern.empty() || token.pattern.size() > kLongestAddedToken)
    part.fail(shown, " that is, normalised, ", token.pattern.size(), " bytes long; 1 to ", kLongestAddedToken,
              " is expected");
  // New tokens count on from the number of the model's tokens, whatever ids these have, as in Hugging Face's
  // tokenizers.
  const auto known = id(token.content);
  token.id = known ? *known : next_++;
  const std::int64_t said = part.integer("id", 0, kMaxTokens, token.id);
  if (said != token.id) part.fail(shown, " with id ", said, ", but the vocabulary gives ", token.id);
  by_content_[token.content] = token.id;
  size_ = std::max(size_, token.id + 1);
  const auto same =
      token.normalized ? by_pattern_.try_emplace(token.pattern, token.id).first->second : token.id;
  if (same != token.id)
    part.fail(shown, " that is, normalised, also the added token with id ", same,
              "; tokenizers takes either");
  const auto place = static_cast<std::size_t>(token.id);
  if (token.special && place >= special_.size()) special_.resize(place + 1);
  if (place < special_.size()) special_[place] = token.special;
  if (const auto [at, fresh] = by_id_.try_emplace(token.id, added_.size()); fresh)
    added_.push_back(std::move(token));
  else
    added_[at->second] = std::move(token);
}

const AddedToken* TokenVocabulary::added_of(std::int64_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &added_[found->second];
}

std::optional<std::string_view> TokenVocabulary::token(std::int64_t id) const {
  if (const AddedToken* added = added_of(id)) return added->content;
  return model_->token(id);
}

std::optional<std::string_view> TokenVocabulary::decoded(std::int64_t id) const {
  if (const AddedToken* added = added_of(id)) return added->pattern;
  return model_->token(id);
}

std::optional<std::int64_t> TokenVocabulary::id(std::string_view token) const {
  const auto found = by_content_.find(std::string(token));
  return found == by_content_.end() ? model_->id(token) : found->second;
}

bool TokenVocabulary::is_special(std::int64_t id) const {
  return id >= 0 && id < static_cast<std::int64_t>(special_.size()) && special_[static_cast<std::size_t>(id)];
}

}  // namespace heed::detail
