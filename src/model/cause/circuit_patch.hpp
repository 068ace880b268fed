// Patching: a run in which one reader does not see what one writer wrote.
#pragma once

#include <cstdint>

#include "heed/model/circuit.hpp"
#include "model/cause/circuit_state.hpp"

namespace heed::detail {

/// The hidden state [1, D] at `row`, behind the last norm, if the edge's reader alone, at its row, computes
/// without the writer's part.
[[nodiscard]] Tensor hidden_without(CircuitState& state, const CircuitEdge& edge, std::int64_t row);

}  // namespace heed::detail
