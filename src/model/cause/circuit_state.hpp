// A text's run through a model, kept for the search of a circuit.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "model/cause/directions.hpp"
#include "model/cause/stream_parts.hpp"
#include "model/parts.hpp"

namespace heed::detail {

/// A layer's projections of all rows.
struct LayerState {
  Projected made;
  Tensor stream;  ///< [L, D], before the layer
  [[nodiscard]] LayerCall call(std::int64_t layer) const {
    return {layer, made.query, made.key, made.value, made.options, nullptr};
  }
};

class CircuitState {
 public:
  /// Runs the model. Throws Error (invalid_argument) for a text whose streams take more than 2 GiB.
  CircuitState(const Model& model, const TensorView& tokens, int threads);

  [[nodiscard]] const Model& model() const { return model_; }
  [[nodiscard]] const Family& family() const { return *model_.parts().family; }
  [[nodiscard]] const ModelInfo& info() const { return model_.info(); }
  [[nodiscard]] const TensorView& tokens() const { return tokens_; }
  [[nodiscard]] std::int64_t length() const { return std::ssize(ids_); }
  [[nodiscard]] int threads() const { return threads_; }
  [[nodiscard]] const RowTrace& trace(std::int64_t place) const {
    return traces_[static_cast<std::size_t>(place)];
  }
  /// The stream before a layer at a position, [1, D].
  [[nodiscard]] Tensor stream_at(std::int64_t place, std::int64_t layer) const;
  /// Its parts. Kept once made, as the layers' states are.
  const StreamParts& parts_at(std::int64_t place, std::int64_t layer);
  const LayerState& layer(std::int64_t layer);

 private:
  const Model& model_;
  TensorView tokens_;
  std::vector<std::int64_t> ids_;
  int threads_;
  std::vector<RowTrace> traces_;                                        // of all positions
  std::map<std::pair<std::int64_t, std::int64_t>, StreamParts> parts_;  // by position and layer
  std::map<std::int64_t, LayerState> layers_;
};

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
