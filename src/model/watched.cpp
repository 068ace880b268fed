#include "model/watched.hpp"

#include <algorithm>

namespace heed::detail {

void add_watched(std::int64_t layer, const AttentionResult& result, std::int64_t row,
                 std::vector<WatchedPair>& pairs) {
  for (std::int64_t head = 0; head < result.top_k_index.size(1); ++head)
    for (std::int64_t k = 0; k < result.top_k_index.size(3); ++k) {
      const auto place = result.top_k_index.at<std::int64_t>(0, head, row, k);
      const auto weight = static_cast<double>(result.top_k_weight.at<float>(0, head, row, k));
      if (place >= 0) pairs.push_back({{layer, head}, place, "", weight});
    }
}

std::vector<WatchedPair> heaviest(std::vector<WatchedPair> pairs, const std::optional<ModelHead>& head,
                                  std::int64_t count) {
  std::erase_if(pairs, [&](const WatchedPair& pair) { return head ? pair.head != *head : pair.place == 0; });
  std::ranges::stable_sort(pairs, std::ranges::greater(), &WatchedPair::weight);
  std::vector<WatchedPair> kept;
  for (const WatchedPair& pair : pairs) {
    const bool known =
        std::ranges::any_of(kept, [&](const WatchedPair& one) { return one.place == pair.place; });
    if (!known && std::ssize(kept) < count) kept.push_back(pair);
  }
  return kept;
}

}  // namespace heed::detail
