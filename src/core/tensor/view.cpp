#include "core/message.hpp"
#include "heed/tensor.hpp"

namespace heed {
namespace {

using detail::counted;
using detail::refuse;

}  // namespace

template <class Void>
BasicTensorView<Void>::BasicTensorView(Void* data, DType dtype, const Dims& shape)
    : BasicTensorView(data, dtype, shape, contiguous_strides(shape)) {}

template <class Void>
BasicTensorView<Void>::BasicTensorView(Void* data, DType dtype, const Dims& shape, const Dims& strides)
    : data_(data), dtype_(dtype), shape_(shape), strides_(strides) {
  detail::check_listed("dtype", dtype, DType::boolean);
  if (shape.size() != strides.size())
    refuse("strides ", strides, " do not match shape ", shape, ": one stride per axis is expected");
  if (element_count(shape) > 0 && data == nullptr)
    refuse("a view of shape ", shape, " has a null data pointer");
}

template <class Void>
std::int64_t BasicTensorView<Void>::size(int axis) const {
  return shape_[checked_axis(axis, rank())];
}

template <class Void>
bool BasicTensorView<Void>::is_contiguous() const noexcept {
  std::int64_t expected = 1;
  bool contiguous = true;
  for (int axis = rank() - 1; axis >= 0; --axis) {
    if (shape_[axis] == 0) return true;
    if (shape_[axis] != 1 && strides_[axis] != expected) contiguous = false;
    expected *= shape_[axis];
  }
  return contiguous;
}

template <class Void>
int BasicTensorView<Void>::checked_axis(int axis, int limit) const {
  const int positive = axis < 0 ? axis + limit : axis;
  if (positive < 0 || positive >= limit) refuse("axis ", axis, " is out of range for shape ", shape_);
  return positive;
}

template <class Void>
void BasicTensorView<Void>::require_dtype(DType wanted) const {
  if (wanted != dtype_) refuse("a tensor of ", dtype_, " was read as ", name_of(wanted));
}

template <class Void>
std::int64_t BasicTensorView<Void>::offset_of(std::initializer_list<std::int64_t> index) const {
  const Dims where(index);
  bool inside = where.size() == rank();
  std::int64_t offset = 0;
  for (int axis = 0; inside && axis < rank(); ++axis) {
    inside = where[axis] >= 0 && where[axis] < shape_[axis];
    offset += where[axis] * strides_[axis];
  }
  if (!inside) refuse("index ", to_string(where), " is out of range for shape ", shape_);
  return offset;
}

template <class Void>
BasicTensorView<Void> BasicTensorView<Void>::select(int axis, std::int64_t index) const {
  const int at = checked_axis(axis, rank());
  const BasicTensorView one = narrow(at, index, 1);
  Dims shape, strides;
  for (int i = 0; i < rank(); ++i) {
    if (i == at) continue;
    shape.push_back(shape_[i]);
    strides.push_back(strides_[i]);
  }
  return {one.data_, dtype_, shape, strides};
}

template <class Void>
BasicTensorView<Void> BasicTensorView<Void>::narrow(int axis, std::int64_t begin, std::int64_t length) const {
  const int at = checked_axis(axis, rank());
  if (begin < 0 || length < 0 || begin > shape_[at] - length)
    refuse("elements ", begin, " to ", begin, " + ", length, " of axis ", axis,
           " are out of range for shape ", shape_);
  BasicTensorView result = *this;
  result.shape_[at] = length;
  // An empty view keeps its base pointer, because moving it past the end of memory is undefined.
  if (result.count() > 0) {
    using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
    const auto width = static_cast<std::int64_t>(size_of(dtype_));
    result.data_ = static_cast<Byte*>(data_) + begin * strides_[at] * width;
  }
  return result;
}

template <class Void>
BasicTensorView<Void> BasicTensorView<Void>::transpose(int axis_a, int axis_b) const {
  const int a = checked_axis(axis_a, rank());
  const int b = checked_axis(axis_b, rank());
  BasicTensorView result = *this;
  std::swap(result.shape_[a], result.shape_[b]);
  std::swap(result.strides_[a], result.strides_[b]);
  return result;
}

template <class Void>
BasicTensorView<Void> BasicTensorView<Void>::permute(std::initializer_list<int> axes) const {
  if (static_cast<int>(axes.size()) != rank())
    refuse("permute got ", counted(axes.size(), "axis", "axes"), " for shape ", shape_);
  BasicTensorView result = *this;
  std::array<bool, kMaxRank> seen{};
  int to = 0;
  for (int axis : axes) {
    const int from = checked_axis(axis, rank());
    if (seen[static_cast<std::size_t>(from)]) refuse("permute names axis ", axis, " twice");
    seen[static_cast<std::size_t>(from)] = true;
    result.shape_[to] = shape_[from];
    result.strides_[to] = strides_[from];
    ++to;
  }
  return result;
}

template <class Void>
BasicTensorView<Void> BasicTensorView<Void>::unsqueeze(int axis) const {
  const int at = checked_axis(axis, rank() + 1);
  Dims shape, strides;
  for (int i = 0; i <= rank(); ++i) {
    if (i == at) {
      shape.push_back(1);
      strides.push_back(0);
    }
    if (i == rank()) break;
    shape.push_back(shape_[i]);
    strides.push_back(strides_[i]);
  }
  return {data_, dtype_, shape, strides};
}

template <class Void>
BasicTensorView<Void> BasicTensorView<Void>::expand(const Dims& shape) const {
  const int added = shape.size() - rank();
  bool fits = added >= 0;
  Dims strides = shape;
  for (int axis = 0; fits && axis < shape.size(); ++axis) {
    if (axis < added || (shape_[axis - added] == 1 && shape[axis] != 1)) {
      strides[axis] = 0;
    } else {
      fits = shape_[axis - added] == shape[axis];
      strides[axis] = strides_[axis - added];
    }
  }
  if (!fits) refuse("shape ", shape_, " does not broadcast to ", shape);
  return {data_, dtype_, shape, strides};
}

template <class Void>
BasicTensorView<Void> BasicTensorView<Void>::reshape(const Dims& shape) const {
  if (element_count(shape) != count())
    refuse("shape ", shape_, " cannot become ", shape, ": the numbers of elements differ");
  if (count() == 0 || is_contiguous()) return {data_, dtype_, shape};
  // Walk both shapes from the left and match the smallest groups of axes with equal products. Within a group
  // of old axes, each stride must equal the next axis's size times its stride.
  Dims strides = shape;
  int from = 0;
  int to = 0;
  while (from < rank() || to < shape.size()) {
    std::int64_t old_product = from < rank() ? shape_[from] : 1;
    std::int64_t new_product = to < shape.size() ? shape[to] : 1;
    int from_end = from < rank() ? from + 1 : from;
    int to_end = to < shape.size() ? to + 1 : to;
    while (old_product != new_product) {
      if (old_product < new_product)
        old_product *= shape_[from_end++];
      else
        new_product *= shape[to_end++];
    }
    std::int64_t stride = 0;
    std::int64_t expected = -1;
    bool first = true;
    for (int axis = from_end - 1; axis >= from; --axis) {
      if (shape_[axis] == 1) continue;
      if (first)
        stride = strides_[axis];
      else if (strides_[axis] != expected)
        refuse("shape ", shape_, " with strides ", strides_, " cannot become ", shape, " without a copy");
      expected = strides_[axis] * shape_[axis];
      first = false;
    }
    for (int axis = to_end - 1; axis >= to; --axis) {
      strides[axis] = stride;
      stride *= shape[axis];
    }
    from = from_end;
    to = to_end;
  }
  return {data_, dtype_, shape, strides};
}

template class BasicTensorView<const void>;
template class BasicTensorView<void>;

}  // namespace heed
