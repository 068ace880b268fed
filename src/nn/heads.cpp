// Splitting the features of a position into heads, and merging them again.
#include "heed/nn/layers.hpp"
#include "nn/checks.hpp"

namespace heed::nn {

Tensor split_heads(const TensorView& x, std::int64_t heads) {
  detail::require_size(heads, "heads");
  const int rank = x.rank();
  if (rank < 2 || rank >= kMaxRank || x.shape().back() % heads != 0)
    detail::refuse("x has shape ", x.shape(), "; [..., L, ", heads, " d], of at most ", kMaxRank - 1,
                   " axes, is expected for ", heads, " heads");
  // [..., L, H, d]: splitting the last axis never needs a copy.
  Dims shape = x.shape();
  const std::int64_t width = shape.back() / heads;
  shape[rank - 1] = heads;
  shape.push_back(width);
  return Tensor::copy_of(x.reshape(shape).transpose(-3, -2));
}

Tensor merge_heads(const TensorView& x) {
  if (x.rank() < 3) detail::refuse("x has shape ", x.shape(), "; [..., H, L, d] is expected");
  Tensor merged = Tensor::copy_of(x.transpose(-3, -2));  // [..., L, H, d]
  Dims shape;
  for (int axis = 0; axis + 2 < merged.rank(); ++axis) shape.push_back(merged.shape()[axis]);
  const int heads_axis = shape.size();
  shape.push_back(merged.shape()[heads_axis] * merged.shape().back());
  return std::move(merged).reshaped(shape);
}

}  // namespace heed::nn
