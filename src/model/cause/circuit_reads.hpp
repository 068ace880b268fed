// What a logit, or a head at a row, reads: the parts of the stream, with their shares.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "heed/model/circuit.hpp"
#include "model/cause/circuit_state.hpp"
#include "model/cause/directions.hpp"

namespace heed::detail {

/// A head at a row; later layers come first in a map.
struct CircuitNode {
  ModelHead head{};
  std::int64_t row = 0;
  friend bool operator<(const CircuitNode& a, const CircuitNode& b) {
    return std::tuple(-a.head.layer, a.head.head, a.row) < std::tuple(-b.head.layer, b.head.head, b.row);
  }
};

/// An edge with its share, and the direction of the stream where its writer wrote.
struct CircuitRead {
  CircuitEdge edge;
  Direction direction;
};

/// The reads of the logit at a row, for its direction of the stream behind the last layer.
[[nodiscard]] std::vector<CircuitRead> reads_of_logit(CircuitState& state, std::int64_t row,
                                                      const Direction& direction);
/// The reads of a head at a row, for a direction of the stream behind its layer: of its query, and of the
/// keys and values that matter most. A part of the query or of a key is worth what the head would lose
/// without it.
[[nodiscard]] std::vector<CircuitRead> reads_of_head(CircuitState& state, const CircuitNode& node,
                                                     const Direction& direction);

}  // namespace heed::detail
