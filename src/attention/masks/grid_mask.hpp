// Masks of tokens on a grid: neighbourhoods and axes. They hold the grid alone, not the tokens.
#pragma once

#include <array>
#include <vector>

#include "attention/masks/mask_part.hpp"
#include "heed/attention/masks.hpp"

namespace heed::detail {

inline constexpr std::size_t kMaxGridAxes = 3;

/// Coordinates [low, high] of a range of tokens, an axis each.
struct GridBox {
  std::array<std::int64_t, kMaxGridAxes> low, high;
};

/// Coordinates first, first + step … last of the keys that a row sees on one axis.
struct GridKeys {
  std::int64_t first, last, step;
};

class GridMask final : public MaskPart {
 public:
  using Axes = std::vector<GridAxis>;
  /// A row sees the keys that any of the `windows` allows; each has the grid's axes. Row i is token
  /// first_query + i, key j is token j.
  GridMask(const MaskShape& shape, std::int64_t first_query, std::vector<Axes> windows);

  [[nodiscard]] Coverage coverage(const MaskTile& tile) const override;
  void restrict_row(const MaskTile& row, std::uint8_t* visible) const override;
  [[nodiscard]] std::size_t bytes() const override;
  [[nodiscard]] SavedPart saved() const override;

  /// Tokens that differ in their last coordinate alone are a line; token t is in line t / line_length(). The
  /// rows of a line see the same lines, and in each of these lines the same columns.
  [[nodiscard]] std::int64_t line_length() const { return windows_.front().back().size; }
  [[nodiscard]] std::int64_t token_of(std::int64_t row) const { return first_query_ + row; }
  [[nodiscard]] std::vector<std::int64_t> lines_seen(std::int64_t row) const;
  [[nodiscard]] GridKeys columns_seen(std::int64_t row) const;
  [[nodiscard]] std::int64_t most_lines() const;
  [[nodiscard]] std::int64_t most_columns() const { return windows_.front().back().window; }
  /// Whether rows see few columns of the lines, side by side, and all tokens are keys.
  [[nodiscard]] bool sees_short_runs() const;

 private:
  using RowKeys = std::array<GridKeys, kMaxGridAxes>;
  [[nodiscard]] Coverage coverage_of(const GridBox& rows, const GridBox& keys) const;
  [[nodiscard]] RowKeys keys_of_row(const Axes& window, std::int64_t row) const;
  /// The first tokens in a row that are allowed, from `token` on; none begin at the end of the grid.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> next_run(const RowKeys& keys, std::int64_t token) const;

  std::int64_t first_query_;
  std::vector<Axes> windows_;
  std::array<std::int64_t, kMaxGridAxes + 1> tokens_each_{};  ///< [axis]: tokens of a whole step before it
};

/// Checks the grid and makes its mask; `query_length` and `key_length` may be -1, for the rest of the grid
/// and all of it.
[[nodiscard]] SparseMask grid_mask(std::vector<GridMask::Axes> windows, std::int64_t first_query,
                                   std::int64_t query_length, std::int64_t key_length);

}  // namespace heed::detail
