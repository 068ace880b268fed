// The number of visible pairs in ranges of queries and keys.
#pragma once

#include <cstdint>
#include <span>

#include "heed/attention/attention.hpp"
#include "heed/attention/sharding.hpp"

namespace heed::distributed {

/// Query i stands at i + offset. If causal, it sees keys j <= i + offset; it sees only keys in its window, of
/// which a side of -1 is open.
struct Visibility {
  bool causal = false;
  Window window{};
  std::int64_t offset = 0;

  /// The number of pairs (i, j) in which i sees j. Exact if all positions are at most 2^30 in size.
  [[nodiscard]] std::int64_t cells(PositionRange queries, PositionRange keys) const;
  [[nodiscard]] std::int64_t cells(std::span<const PositionRange> queries, PositionRange keys) const;

  /// The range from the first to the last key that any of the queries (at least one) sees, out of `length`
  /// keys.
  [[nodiscard]] PositionRange seen(PositionRange queries, std::int64_t length) const;
};

}  // namespace heed::distributed
