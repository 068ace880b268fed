// The reads of a logit, or of a head at a row: the parts of the stream, with their shares.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "heed/model/circuit.hpp"
#include "heed/model/paths.hpp"
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

/// The share of one writer in a head's output along a direction: through the values, through the weights as
/// all keys made them, and through those as the query made them.
struct WriterShares {
  double value = 0, key = 0, query = 0;
};
/// `written` [L][D]: what the writer wrote at each position.
[[nodiscard]] WriterShares shares_of_writer(CircuitState& state, const CircuitNode& node,
                                            const Direction& direction,
                                            const std::vector<std::vector<double>>& written);

/// The share of each attended key in a head's output at a row, along a direction of the stream.
[[nodiscard]] std::vector<HeadKeyShare> shares_of_keys(CircuitState& state, const CircuitNode& node,
                                                       const Direction& direction);

}  // namespace heed::detail
