#include "core/message.hpp"
#include "heed/error.hpp"
#include "heed/tensor.hpp"

namespace heed {

Dims::Dims(std::span<const std::int64_t> values) {
  if (values.size() > static_cast<std::size_t>(kMaxRank))
    detail::refuse("a shape has ", values.size(), " axes; at most ", kMaxRank, " are supported");
  for (std::int64_t value : values) values_[static_cast<std::size_t>(size_++)] = value;
}

void Dims::push_back(std::int64_t value) {
  if (size_ == kMaxRank) detail::refuse("a shape has more than the ", kMaxRank, " axes that are supported");
  values_[static_cast<std::size_t>(size_++)] = value;
}

std::string to_string(const Dims& dims) {
  std::string text = "[";
  for (int axis = 0; axis < dims.size(); ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(dims[axis]);
  }
  return text + "]";
}

std::int64_t element_count(const Dims& shape) {
  // Multiply only the sizes that are not 0. A shape such as [0, 2^62, 2^62] is then refused, because its
  // strides would overflow.
  std::int64_t count = 1;
  bool empty = false;
  for (std::int64_t size : shape) {
    if (size < 0) detail::refuse("shape ", shape, " has a negative size");
    if (size == 0)
      empty = true;
    else if (__builtin_mul_overflow(count, size, &count))
      detail::refuse(ErrorCode::out_of_memory, "shape ", shape, " has more elements than 64 bits can count");
  }
  return empty ? 0 : count;
}

Dims contiguous_strides(const Dims& shape) {
  (void)element_count(shape);  // refuses sizes that would overflow below
  Dims strides = shape;
  std::int64_t stride = 1;
  for (int axis = shape.size() - 1; axis >= 0; --axis) {
    strides[axis] = stride;
    if (shape[axis] != 0) stride *= shape[axis];
  }
  return strides;
}

}  // namespace heed
