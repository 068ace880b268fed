// Weights of rows on sets of keys that are defined by tokens.
#pragma once

#include <cstdint>

#include "attention/problem/problem.hpp"
#include "heed/inspect/reports.hpp"

namespace heed::detail {

/// Weight of each row on a set of keys, [B, H, Lq], and the number of these keys that it may attend. The
/// latter is [B, H, Lq], or [B, 1, Lq] if the masks are the same for all heads.
struct SetWeights {
  Tensor weight, keys;
};

/// The sets of keys: copies of the row's token before and after its position; followers of earlier copies,
/// which also precede the row; and separators, except the first key of the row's segment.
struct TokenSets {
  SetWeights earlier, later, followers, separators;
};

/// Whether rows and keys both have token ids, or both have texts.
bool tells_copies(const AttentionReport& report);

/// Whether a key has the row's token: the same id if both have ids, else the same text.
bool is_copy(const AttentionReport& report, std::int64_t row, std::int64_t key);

/// Computes the sets from report.lse. They are empty if tells_copies() is false; separators need texts. Also
/// sets report.induction, the weights of `followers`: NaN in rows whose token has no earlier copy.
TokenSets fill_token_sets(const Problem& problem, AttentionReport& report);

}  // namespace heed::detail
