// How many queries and keys see each other, of ranges of both.
#pragma once

#include <cstdint>
#include <span>

#include "heed/attention.hpp"
#include "heed/sharding.hpp"

namespace heed::distributed {

/// Query i stands at i + offset. It sees keys j <= i + offset where causal, and those in its window; a side
/// of -1 is open.
struct Visibility {
  bool causal = false;
  Window window{};
  std::int64_t offset = 0;

  /// The pairs (i, j) of which i sees j. Exact where all positions are at most 2^30 in size.
  [[nodiscard]] std::int64_t cells(PositionRange queries, PositionRange keys) const;
  [[nodiscard]] std::int64_t cells(std::span<const PositionRange> queries, PositionRange keys) const;

  /// The keys, of `length`, from the first to the last that some of the queries, one at least, sees.
  [[nodiscard]] PositionRange seen(PositionRange queries, std::int64_t length) const;
};

}  // namespace heed::distributed
