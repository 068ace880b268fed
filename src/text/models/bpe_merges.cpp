#include "text/models/bpe_merges.hpp"

#include <algorithm>
#include <tuple>

namespace heed::detail {

BpeMerges::BpeMerges(std::vector<BpeMerge> merges, std::size_t tokens) : first_(tokens + 1, 0) {
  std::sort(merges.begin(), merges.end(), [](const BpeMerge& a, const BpeMerge& b) {
    return std::tie(a.left, a.right, a.rank) < std::tie(b.left, b.right, b.rank);
  });
  for (const BpeMerge& one : merges) {
    const bool again =
        !merges_.empty() && merges_.back().left == one.left && merges_.back().right == one.right;
    if (again) merges_.pop_back();
    merges_.push_back(one);
  }
  for (const BpeMerge& one : merges_) ++first_[static_cast<std::size_t>(one.left) + 1];
  for (std::size_t token = 0; token < tokens; ++token) first_[token + 1] += first_[token];
}

}  // namespace heed::detail
