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

}  // namespace heed::detail
