// Converts a caller's views to the Operands and Outputs of a Problem, and makes the checks that every view
// needs.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "attention/problem/problem.hpp"
#include "heed/tensor.hpp"

namespace heed::detail {

/// Throws if the view's memory cannot be addressed: misaligned elements, or more bytes than 64 bits can
/// count. An empty view passes.
void check_memory(std::string_view name, const TensorView& view);

/// A tensor of a call, of rank 2, 3 or 4, read as [B, H, L, C].
struct CallTensor {
  Dims shape;
  DType dtype = DType::f32;             ///< rows in a cache may have another one
  std::int64_t size[4] = {1, 1, 1, 1};  ///< missing axes have size 1
  Operand rows;
};
/// `name` is used in messages.
CallTensor tensor_of(std::string_view name, const TensorView& view);
/// A tensor whose rows are contiguous, and which has no memory yet.
CallTensor tensor_of(std::string_view name, const Dims& shape, DType dtype);

/// Broadcasts to `shape` as NumPy does: axes of size 1 and missing axes get stride 0.
Operand broadcast(std::string_view name, const TensorView& view, const Dims& shape);

/// Converts a view for writing. Throws unless it has exactly this shape and dtype, or if it may overlap
/// itself. `shape` lacks the first 4 - rank axes of the problem's [B, H, …], which get stride 0.
Output target_of(std::string_view name, const MutableTensorView& view, const Dims& shape, DType dtype,
                 int missing_axes);

void check_whole_numbers(std::string_view name, const TensorView& view);
/// Returns the numbers of a view of i64 or i32 in row-major order. Throws for any other dtype.
std::vector<std::int64_t> whole_numbers_of(std::string_view name, const TensorView& view);
/// The same for rank 1. Throws for any other rank.
std::vector<std::int64_t> integers_of(std::string_view name, const TensorView& view);

}  // namespace heed::detail
