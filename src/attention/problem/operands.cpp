#include "attention/problem/operands.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "core/message.hpp"
#include "core/tensor/element.hpp"

namespace heed::detail {
namespace {

// Whether the distance in bytes between any two elements fits into 64 bits.
bool span_fits(const TensorView& view) {
  std::int64_t span = 1;
  for (int axis = 0; axis < view.rank(); ++axis) {
    const std::int64_t stride = view.strides()[axis];
    std::int64_t reach = 0;
    if (stride == INT64_MIN || __builtin_mul_overflow(std::abs(stride), view.shape()[axis] - 1, &reach) ||
        __builtin_add_overflow(span, reach, &span))
      return false;
  }
  return !__builtin_mul_overflow(span, static_cast<std::int64_t>(size_of(view.dtype())), &span);
}

// In order of stride, each axis must step over everything that the axes before it reach. This holds for every
// layout made of permuted, sliced or reversed axes. The rare interleavings for which it does not hold are
// refused too.
bool may_overlap_itself(const MutableTensorView& view) {
  std::array<std::pair<std::int64_t, std::int64_t>, kMaxRank> axes{};  // |stride|, size
  for (int axis = 0; axis < view.rank(); ++axis)
    axes[static_cast<std::size_t>(axis)] = {std::abs(view.strides()[axis]), view.shape()[axis]};
  std::ranges::sort(axes);
  std::int64_t reach = 0;
  for (const auto& [stride, size] : axes) {
    if (size <= 1) continue;
    if (stride <= reach) return true;
    reach += stride * (size - 1);
  }
  return false;
}

}  // namespace

void check_memory(std::string_view name, const TensorView& view) {
  if (view.count() == 0) return;
  const auto width = size_of(view.dtype());
  if (reinterpret_cast<std::uintptr_t>(view.data()) % width != 0)
    refuse(name, " is not aligned; its ", view.dtype(), " data is expected at a multiple of ", width,
           " bytes");
  if (!span_fits(view))
    refuse(name, " has shape ", view.shape(), " and strides ", view.strides(),
           ", which span more bytes than 64 bits can count");
}

CallTensor tensor_of(std::string_view name, const Dims& shape, DType dtype) {
  if (shape.size() < 2 || shape.size() > 4)
    refuse(name, " has shape ", shape, "; 2 to 4 axes, [B, H, L, D], are expected");
  CallTensor tensor{shape, dtype, {1, 1, 1, 1}, {nullptr, dtype, {0, 0, shape.back(), 1}}};
  for (int axis = 0; axis < shape.size(); ++axis) tensor.size[axis + 4 - shape.size()] = shape[axis];
  return tensor;
}

CallTensor tensor_of(std::string_view name, const TensorView& view) {
  CallTensor tensor = tensor_of(name, view.shape(), view.dtype());
  check_memory(name, view);
  tensor.rows = {view.data(), view.dtype(), {}};
  for (int axis = 0; axis < view.rank(); ++axis)
    tensor.rows.stride[axis + 4 - view.rank()] = view.strides()[axis];
  return tensor;
}

Operand broadcast(std::string_view name, const TensorView& view, const Dims& shape) {
  const int missing = shape.size() - view.rank();
  bool fits = missing >= 0;
  for (int axis = 0; fits && axis < view.rank(); ++axis)
    fits = view.shape()[axis] == 1 || view.shape()[axis] == shape[axis + missing];
  if (!fits)
    refuse(name, " has shape ", view.shape(), "; a shape that broadcasts to ", shape, " is expected");
  check_memory(name, view);
  Operand operand{view.data(), view.dtype(), {}};
  for (int axis = 0; axis < view.rank(); ++axis)
    operand.stride[axis + missing] = view.shape()[axis] == 1 ? 0 : view.strides()[axis];
  return operand;
}

Output target_of(std::string_view name, const MutableTensorView& view, const Dims& shape, DType dtype,
                 int missing_axes) {
  if (view.shape() != shape) refuse(name, " has shape ", view.shape(), "; ", shape, " is expected");
  if (view.dtype() != dtype) refuse(name, " has dtype ", view.dtype(), "; ", dtype, " is expected");
  check_memory(name, view);
  if (view.count() > 0 && may_overlap_itself(view))
    refuse(name, " has shape ", view.shape(), " and strides ", view.strides(),
           ", so it may overlap itself; separate memory for each element is expected");
  Output target{view.data(), view.dtype(), {}};
  for (int axis = 0; axis < view.rank(); ++axis) target.stride[axis + missing_axes] = view.strides()[axis];
  return target;
}

void check_whole_numbers(std::string_view name, const TensorView& view) {
  if (view.dtype() != DType::i64 && view.dtype() != DType::i32)
    refuse(name, " has dtype ", view.dtype(), "; i64 or i32 is expected");
  check_memory(name, view);
}

std::vector<std::int64_t> integers_of(std::string_view name, const TensorView& view) {
  if (view.rank() != 1) refuse(name, " has shape ", view.shape(), "; one axis is expected");
  return whole_numbers_of(name, view);
}

std::vector<std::int64_t> whole_numbers_of(std::string_view name, const TensorView& view) {
  check_whole_numbers(name, view);
  const Tensor copy = Tensor::copy_of(view, DType::i64);
  return {copy.values<std::int64_t>().begin(), copy.values<std::int64_t>().end()};
}

}  // namespace heed::detail
