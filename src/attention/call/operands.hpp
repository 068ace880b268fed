// From a caller's view to the Operand or Target of a Problem, with the checks that every view gets.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "attention/call/problem.hpp"
#include "heed/tensor.hpp"

namespace heed::detail {

/// Throws where the view's memory cannot be addressed: elements that are not aligned to their size, or a span
/// of more bytes than 64 bits can count. An empty view passes.
void check_memory(std::string_view name, const TensorView& view);

/// A view of rank 2, 3 or 4 as [B, H, L, C]: the axes that it lacks have size 1. `name` is for messages.
struct Lifted {
  Operand operand;
  std::int64_t size[4] = {1, 1, 1, 1};
};
Lifted lift(std::string_view name, const TensorView& view);

/// NumPy broadcasting to `shape`: stride 0 where the view's axis has size 1 or is missing.
Operand broadcast(std::string_view name, const TensorView& view, const Dims& shape);

/// A view to write to; throws where it has not just this shape and dtype, or may overlap itself. `shape`
/// lacks the first 4 - rank axes of the problem's [B, H, …], which get stride 0.
Target target_of(std::string_view name, const MutableTensorView& view, const Dims& shape, DType dtype,
                 int missing_axes);

/// The numbers of a rank-1 view of i64 or i32; throws for any other rank or dtype.
std::vector<std::int64_t> integers_of(std::string_view name, const TensorView& view);

}  // namespace heed::detail
