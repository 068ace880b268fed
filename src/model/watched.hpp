// The tokens that heads attended to most at one row.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "heed/model/generate.hpp"

namespace heed::detail {

/// Adds the heaviest keys of each head of a layer at a row: top_k_index and top_k_weight are [1, H, R, K].
void add_watched(std::int64_t layer, const AttentionResult& result, std::int64_t row,
                 std::vector<WatchedPair>& pairs);

/// Returns the `count` heaviest pairs of one head, or, of all heads, each token once without the first token
/// (GeneratedToken::watched).
[[nodiscard]] std::vector<WatchedPair> heaviest(std::vector<WatchedPair> pairs,
                                                const std::optional<ModelHead>& head, std::int64_t count);

}  // namespace heed::detail
