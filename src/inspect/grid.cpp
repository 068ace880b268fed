// grid_distance(), grid_map(): attention whose values tell where each key lies. Its output is then the share
// of the weights in each line or cell.
#include "heed/inspect/grid.hpp"

#include <cmath>
#include <functional>

#include "core/message.hpp"
#include "core/tensor/lifted.hpp"

namespace heed {
namespace {

using detail::counted;
using detail::refuse;
using Places = std::vector<std::int64_t>;

std::int64_t tokens_of(const TokenGrid& grid, const TensorView& query, const TensorView& key) {
  if (grid.sizes.empty()) refuse("the grid has no axes; at least one is expected");
  std::int64_t tokens = 1;
  for (const std::int64_t size : grid.sizes)
    if (size < 1 || __builtin_mul_overflow(tokens, size, &tokens))
      refuse("the grid has an axis of ", size,
             "; 1 or more, and fewer than 2^63 tokens in all, are expected");
  for (const auto& [name, tensor] : {std::pair{"query", &query}, std::pair{"key", &key}}) {
    const std::int64_t length = tensor->rank() < 2 ? 0 : tensor->size(-2);
    if (grid.first < 0 || tokens > length || grid.first > length - tokens)
      refuse("the grid has ", counted(tokens, "token"), " from ", grid.first, " on, but ", name, " has ",
             counted(length, "row"));
  }
  return tokens;
}

Places place_of(const TokenGrid& grid, std::int64_t token) {
  Places place(grid.sizes.size());
  for (std::size_t axis = place.size(); axis-- > 0; token /= grid.sizes[axis])
    place[axis] = token % grid.sizes[axis];
  return place;
}

Tensor as_floats(const TensorView& view) {
  return Tensor::copy_of(view, view.dtype() == DType::f64 ? DType::f64 : DType::f32);
}

// [B, H, Lq, columns]: the weights of each row, summed by the columns that `columns_of` gives for a key.
Tensor sums_by_column(const TensorView& query, const TensorView& key, const TokenGrid& grid,
                      std::int64_t columns, AttentionOptions options,
                      const std::function<Places(const Places&)>& columns_of) {
  if (options.dropout.probability != 0)
    refuse("dropout is ", options.dropout.probability, "; 0 is expected with a grid");
  const std::int64_t tokens = tokens_of(grid, query, key);
  options.need = {};
  options.top_k = options.received_last = 0;
  options.map = {};
  options.output_dtype.reset();
  const Tensor q = as_floats(query), k = as_floats(key);
  Tensor ones({key.size(-2), columns}, DType::f64);
  for (std::int64_t token = 0; token < tokens; ++token)
    for (const std::int64_t column : columns_of(place_of(grid, token)))
      ones.at<double>(grid.first + token, column) = 1;
  const Tensor values = Tensor::copy_of(ones, q.dtype());
  Dims shape = key.shape(), strides = key.shape();
  for (int axis = 0; axis < shape.size(); ++axis) strides[axis] = 0;
  shape[shape.size() - 1] = columns;
  strides[shape.size() - 2] = columns;
  strides[shape.size() - 1] = 1;
  return attention(q, k, TensorView(values.view().data(), values.dtype(), shape, strides), options).output;
}

}  // namespace

Tensor grid_distance(const TensorView& query, const TensorView& key, const TokenGrid& grid,
                     const AttentionOptions& options) {
  const std::int64_t tokens = tokens_of(grid, query, key);
  Places first{0};  // the first column of each axis
  for (const std::int64_t size : grid.sizes) first.push_back(first.back() + size);
  const Tensor sums = sums_by_column(query, key, grid, first.back(), options, [&](const Places& place) {
    Places columns = place;
    for (std::size_t axis = 0; axis < place.size(); ++axis) columns[axis] += first[axis];
    return columns;
  });
  const Tensor share = Tensor::copy_of(detail::lifted(sums.view()), DType::f64);
  const auto axes = std::ssize(grid.sizes);
  Tensor distance({share.size(0), share.size(1), tokens, axes}, DType::f64);
  for (std::int64_t b = 0; b < share.size(0); ++b)
    for (std::int64_t h = 0; h < share.size(1); ++h)
      for (std::int64_t token = 0; token < tokens; ++token) {
        const Places place = place_of(grid, token);
        for (std::size_t axis = 0; axis < place.size(); ++axis) {
          double all = 0, far = 0;
          for (std::int64_t x = 0; x < grid.sizes[axis]; ++x) {
            const double p = share.at<double>(b, h, grid.first + token, first[axis] + x);
            all += p;
            far += p * static_cast<double>(std::abs(x - place[axis]));
          }
          distance.at<double>(b, h, token, static_cast<std::int64_t>(axis)) = all > 0 ? far / all : 0;
        }
      }
  return Tensor::copy_of(distance, sums.dtype());
}

Tensor grid_map(const TensorView& query, const TensorView& key, const TokenGrid& grid,
                std::span<const std::int64_t> cells, const AttentionOptions& options) {
  const std::int64_t tokens = tokens_of(grid, query, key);
  if (cells.size() != grid.sizes.size())
    refuse("cells has ", counted(cells.size(), "number"), "; ", grid.sizes.size(),
           ", one for each axis, are expected");
  std::int64_t all = 1;
  for (std::size_t axis = 0; axis < cells.size(); ++axis) {
    if (cells[axis] < 1 || cells[axis] > grid.sizes[axis] || cells[axis] > 1024 / all)
      refuse("cells[", axis, "] is ", cells[axis], "; 1 to ", grid.sizes[axis],
             ", and at most 1024 cells in all, are expected");
    all *= cells[axis];
  }
  const auto cell_of = [&](const Places& place) {
    std::int64_t cell = 0;
    for (std::size_t axis = 0; axis < place.size(); ++axis)
      cell = cell * cells[axis] + place[axis] * cells[axis] / grid.sizes[axis];
    return cell;
  };
  const Tensor sums = sums_by_column(query, key, grid, all, options,
                                     [&](const Places& place) { return Places{cell_of(place)}; });
  const Tensor share = Tensor::copy_of(detail::lifted(sums.view()), DType::f64);
  Tensor map({share.size(0), share.size(1), all, all}, DType::f64);
  for (std::int64_t b = 0; b < share.size(0); ++b)
    for (std::int64_t h = 0; h < share.size(1); ++h)
      for (std::int64_t token = 0; token < tokens; ++token) {
        const std::int64_t row = cell_of(place_of(grid, token));
        for (std::int64_t c = 0; c < all; ++c)
          map.at<double>(b, h, row, c) += share.at<double>(b, h, grid.first + token, c);
      }
  return Tensor::copy_of(map, sums.dtype());
}

}  // namespace heed
