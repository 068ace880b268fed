// The cell at which a page opens.
#pragma once

#include <cstdint>
#include <optional>

#include "heed/inspect/reports.hpp"

namespace heed::detail {

struct Opening {
  std::int64_t head = 0;  ///< among the heads of all batch entries
  std::int64_t row = 0;
  std::int64_t key = 0;
};

/// The strongest weight among the report's most attended keys, in rows of at least two keys. It is not on the
/// first key nor, in self-attention, on the row's own position. Unless no other is strong, it joins two
/// words, not punctuation or special tokens, which are not neighbours. The first one wins a tie.
/// Nothing if no such weight is known.
[[nodiscard]] std::optional<Opening> opening_of(const AttentionReport& report);

/// The largest difference between the weights of a head and of head + beside, among the most attended keys.
[[nodiscard]] std::optional<Opening> opening_of_difference(const AttentionReport& report,
                                                           std::int64_t beside);

}  // namespace heed::detail
