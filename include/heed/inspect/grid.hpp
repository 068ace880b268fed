// Attention between tokens that lie on a grid, such as the patches of a picture or a video.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heed/attention/attention.hpp"
#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// Tokens first … first + N - 1 of the queries and of the keys lie on a grid of N places, the last axis
/// fastest. Other tokens, such as a class token or words, lie nowhere.
struct TokenGrid {
  std::vector<std::int64_t> sizes;  ///< at least one axis, such as {height, width}
  std::int64_t first = 0;
};

/// [B, H, N, axes]: for each token of the grid the mean of |x_i - x_j| along each axis, under its weights on
/// the keys of the grid, which are made to sum to 1. 0 if they are all 0. f32, or f64 for f64 inputs. One
/// call of attention() with sum(sizes) values a key, so any length and mask will do; exact. Throws Error
/// (invalid_argument) as attention() does, for a grid beyond the tokens, and for dropout.
[[nodiscard]] HEED_API Tensor grid_distance(const TensorView& query, const TensorView& key,
                                            const TokenGrid& grid, const AttentionOptions& options = {});

/// [B, H, cells of queries, cells of keys]: the weights between cells of the grid, summed. The grid is cut
/// into `cells` along each axis: place x lies in cell floor(x * cells / size). The product of `cells` is at
/// most 1024. A row of it is a picture of cells.
[[nodiscard]] HEED_API Tensor grid_map(const TensorView& query, const TensorView& key, const TokenGrid& grid,
                                       std::span<const std::int64_t> cells,
                                       const AttentionOptions& options = {});

}  // namespace heed
