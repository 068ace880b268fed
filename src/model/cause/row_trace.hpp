// A model's internal state at some rows of a text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heed/model/model.hpp"

namespace heed::detail {

struct RowTrace {
  Tensor streams;  ///< [layers + 1, D], before each layer and after the last
  Tensor heads;    ///< [layers, H d], outputs of the heads
  Tensor hidden;   ///< [1, D], after the last norm
};

/// Runs the model once; `hooks` may have attend.
[[nodiscard]] std::vector<RowTrace> trace_rows(const Model& model, const TensorView& tokens,
                                               std::span<const std::int64_t> rows, ModelHooks hooks,
                                               int threads);
[[nodiscard]] RowTrace trace_row(const Model& model, const TensorView& tokens, std::int64_t row, int threads);

/// The attention of a layer at one row.
struct RowAttention {
  Tensor scores, weights;            ///< [H, 1, L], f32; -inf and 0 for keys that the row may not see
  Tensor heaviest, heaviest_weight;  ///< [H, 1, 1]: the key with the largest weight, and that weight
};
/// Computes the attention of `row`; `scores` and `weights` stay empty unless `whole`.
[[nodiscard]] RowAttention attend_row(const LayerCall& call, std::int64_t row, bool whole);

}  // namespace heed::detail
