// What rows give to keys that are known by their tokens.
#pragma once

#include <cstdint>

#include "attention/problem/problem.hpp"
#include "heed/inspect.hpp"

namespace heed::detail {

/// Of each row its weight on a set of keys, [B, H, Lq], and how many of them it may attend to, [B, H, Lq] or,
/// where no mask tells heads apart, [B, 1, Lq].
struct SetWeights {
  Tensor weight, keys;
};

/// Copies of the row's token before and behind its own position, what follows copies before it (that stands
/// before the row, too), and separators but the first key of the row's segment.
struct TokenSets {
  SetWeights earlier, later, followers, separators;
};

/// Whether rows and keys both have ids of tokens, or both have texts.
bool tells_copies(const AttentionReport& report);

/// Whether a key holds the row's token: the same id where both have ids, else the same text.
bool is_copy(const AttentionReport& report, std::int64_t row, std::int64_t key);

/// From report.lse; empty where the report does not tell copies, and without texts no separators. Also sets
/// report.induction, the weights of `followers`: NaN in rows whose token has no copy to follow.
TokenSets fill_token_sets(const Problem& problem, AttentionReport& report);

}  // namespace heed::detail
