// The logit that a circuit or a path ends in.
#pragma once

#include <cstdint>
#include <optional>

#include "model/cause/circuit_state.hpp"
#include "model/cause/directions.hpp"

namespace heed::detail {

/// The members of CircuitOptions of the same names.
struct TargetChoice {
  std::optional<std::int64_t> row{}, token{}, than{};
};

struct CircuitTarget {
  std::int64_t row = 0;
  std::int64_t token = 0;
  LogitDirection direction;  ///< of the logit, or of the difference of two
  double logit = 0;          ///< before a last softcap
  /// The same for another hidden state [1, D] of the row.
  [[nodiscard]] double logit_of(const Tensor& hidden) const;
};

/// Throws Error (invalid_argument) for a token out of range, and for a model whose logits are not a sum of
/// the layers' outputs.
void check_target(const Model& model, const TargetChoice& choice);
/// Throws Error (invalid_argument) for a row out of range, and for two equal tokens.
[[nodiscard]] CircuitTarget find_target(const CircuitState& state, const TargetChoice& choice);

}  // namespace heed::detail
