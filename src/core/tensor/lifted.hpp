#pragma once

#include "heed/tensor.hpp"

namespace heed::detail {

/// The view with leading axes of size 1, until it has `rank` axes.
template <class View>
[[nodiscard]] View lifted(View view, int rank = 4) {
  while (view.rank() < rank) view = view.unsqueeze(0);
  return view;
}

/// The shape of a view, with size 1 for axes that the view repeats.
[[nodiscard]] inline Dims own_shape(const TensorView& view) {
  Dims shape = view.shape();
  for (int axis = 0; axis < view.rank(); ++axis)
    if (view.strides()[axis] == 0 && shape[axis] > 1) shape[axis] = 1;
  return shape;
}

}  // namespace heed::detail
