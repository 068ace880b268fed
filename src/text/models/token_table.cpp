#include "text/models/token_table.hpp"

#include <algorithm>
#include <utility>

namespace heed::detail {

TokenTable::TokenTable(std::vector<std::string> tokens, const std::vector<std::int32_t>& ids)
    : tokens_(std::move(tokens)) {
  std::int32_t last = -1;
  for (const std::int32_t id : ids) last = std::max(last, id);
  by_id_.assign(static_cast<std::size_t>(last + 1), -1);
  entries_.reserve(tokens_.size());
  for (std::size_t n = 0; n < tokens_.size(); ++n) {
    entries_.push_back({tokens_[n], ids[n]});
    by_id_[static_cast<std::size_t>(ids[n])] = static_cast<std::int32_t>(n);
  }
  trie_ = TokenTrie(entries_);
}

std::optional<std::int64_t> TokenTable::id(std::string_view token) const {
  if (const auto found = trie_.find(token)) return *found;
  return std::nullopt;
}

std::optional<std::string_view> TokenTable::token(std::int64_t id) const {
  if (id < 0 || id >= size() || by_id_[static_cast<std::size_t>(id)] < 0) return std::nullopt;
  return tokens_[static_cast<std::size_t>(by_id_[static_cast<std::size_t>(id)])];
}

}  // namespace heed::detail
