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

namespace {

std::size_t common_prefix(std::string_view a, std::string_view b) {
  const std::size_t most = std::min(a.size(), b.size());
  std::size_t length = 0;
  while (length < most && a[length] == b[length]) ++length;
  return length;
}

// Sorts the entries, and keeps the last of equal ones.
std::vector<TokenTrie::Entry> in_order(std::vector<TokenTrie::Entry> entries) {
  std::erase_if(entries, [](const TokenTrie::Entry& one) { return one.bytes.empty(); });
  std::stable_sort(entries.begin(), entries.end(),
                   [](const TokenTrie::Entry& a, const TokenTrie::Entry& b) { return a.bytes < b.bytes; });
  std::vector<TokenTrie::Entry> kept;
  for (const TokenTrie::Entry& one : entries) {
    if (!kept.empty() && kept.back().bytes == one.bytes)
      kept.back() = one;
    else
      kept.push_back(one);
  }
  return kept;
}

}  // namespace

// Builds the trie level by level. The tokens below a node are neighbours in sorted order, and share their
// first `depth` bytes.
TokenTrie::TokenTrie(std::vector<Entry> entries) {
  struct Below {
    std::size_t begin, end, depth;
  };
  const std::vector<Entry> sorted = in_order(std::move(entries));
  if (sorted.empty()) return;
  std::vector<Below> below = {{0, sorted.size(), 0}};
  nodes_.emplace_back();
  labels_.push_back('\0');
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    const Below range = below[node];
    std::size_t begin = range.begin;
    if (sorted[begin].bytes.size() == range.depth) nodes_[node].id = sorted[begin++].id;
    nodes_[node].first_child = static_cast<std::uint32_t>(nodes_.size());
    while (begin < range.end) {
      const char label = sorted[begin].bytes[range.depth];
      std::size_t end = begin + 1;
      while (end < range.end && sorted[end].bytes[range.depth] == label) ++end;
      const std::size_t depth = common_prefix(sorted[begin].bytes, sorted[end - 1].bytes);
      Node child;
      child.edge = sorted[begin].bytes.substr(range.depth, depth - range.depth);
      nodes_.push_back(child);
      labels_.push_back(label);
      below.push_back({begin, end, depth});
      begin = end;
    }
    nodes_[node].children = static_cast<std::uint32_t>(nodes_.size()) - nodes_[node].first_child;
  }
}

}  // namespace heed::detail
