// Masks of tokens on a grid. The oracle follows NATTEN's definition pair by pair: of all runs of `window`
// tokens of a class, a token sees the one whose centre is nearest to it.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "attention/masks/mask_part.hpp"
#include "heed/attention/attention.hpp"
#include "heed/attention/masks.hpp"
#include "heed/error.hpp"
#include "random_call.hpp"
#include "random_mask.hpp"
#include "support.hpp"

namespace {

using heed::GridAxis;
using heed::SparseMask;
using heed::Tensor;
using heed::detail::Coverage;
using heed::test::Draw;
using heed::test::sees_on_grid;
using Sizes = std::vector<std::int64_t>;

std::vector<GridAxis> drawn_axes(Draw& draw) {
  std::vector<GridAxis> axes(static_cast<std::size_t>(draw.between(1, 3)));
  const std::int64_t most = axes.size() == 1 ? 60 : axes.size() == 2 ? 9 : 5;
  for (GridAxis& axis : axes) {
    axis.size = draw.between(1, most);
    if (draw.chance(0.4)) axis.dilation = draw.between(1, axis.size);
    axis.window = draw.chance(0.2) ? -1 : draw.between(1, axis.size / axis.dilation);
    axis.causal = draw.chance(0.3);
  }
  return axes;
}

std::string described(const std::vector<GridAxis>& axes) {
  std::string text;
  for (const GridAxis& a : axes)
    text += std::to_string(a.size) + "," + std::to_string(a.window) + "," + std::to_string(a.dilation) + "," +
            std::to_string(a.causal) + " ";
  return text;
}

TEST(GridMask, AllowsTheNeighboursOfTheDefinition) {
  for (std::uint64_t n = 0; n < 1000; ++n) {
    Draw draw(20261127, n);
    const std::vector<GridAxis> axes = drawn_axes(draw);
    std::int64_t tokens = 1;
    for (const GridAxis& axis : axes) tokens *= axis.size;
    const std::int64_t first = draw.chance(0.5) ? 0 : draw.between(0, tokens - 1);
    const std::int64_t queries = draw.chance(0.5) ? tokens - first : draw.between(1, tokens - first);
    const std::int64_t keys = draw.chance(0.5) ? tokens : draw.between(1, tokens);
    const SparseMask mask = heed::masks::neighbourhood(axes, first, queries, keys);
    const Tensor dense = mask.dense();
    ASSERT_EQ(dense.shape(), (heed::Dims{1, 1, queries, keys}));
    for (std::int64_t i = 0; i < queries; ++i)
      for (std::int64_t j = 0; j < keys; ++j)
        ASSERT_EQ(dense.at<bool>(0, 0, i, j), sees_on_grid(axes, first + i, j))
            << described(axes) << "first " << first << ", query " << i << ", key " << j;
  }
}

TEST(GridMask, GivesEveryRowAsManyKeysAtTheBorders) {
  const std::vector<GridAxis> axes{{7, 3}, {9, 4, 2}};
  const Tensor dense = heed::masks::neighbourhood(axes).dense();
  for (std::int64_t i = 0; i < 63; ++i) {
    std::int64_t count = 0;
    for (std::int64_t j = 0; j < 63; ++j) count += dense.at<bool>(0, 0, i, j) ? 1 : 0;
    EXPECT_EQ(count, 12) << i;
  }
}

TEST(GridMask, SeesLinesAlongOneAxisOrAll) {
  for (const Sizes& sizes : {Sizes{6}, Sizes{4, 5}, Sizes{3, 2, 4}})
    for (std::int64_t axis = -1; axis < static_cast<std::int64_t>(sizes.size()); ++axis) {
      const Tensor dense = heed::masks::axial(sizes, axis).dense();
      for (std::int64_t i = 0; i < dense.size(2); ++i)
        for (std::int64_t j = 0; j < dense.size(3); ++j) {
          std::int64_t differ = 0, on_axis = 0, a = i, b = j;
          for (std::int64_t n = static_cast<std::int64_t>(sizes.size()) - 1; n >= 0; --n) {
            const std::int64_t size = sizes[static_cast<std::size_t>(n)];
            if (a % size != b % size) ++(n == axis ? on_axis : differ);
            a /= size;
            b /= size;
          }
          EXPECT_EQ(dense.at<bool>(0, 0, i, j), differ == 0 || (axis < 0 && differ == 1))
              << sizes.size() << " axes, axis " << axis << ", query " << i << ", key " << j;
        }
    }
}

// `empty` and `full` must be certain, and without dilation a tile within lines has no pair exactly if it is
// called empty.
TEST(GridMask, ClassifiesTiles) {
  int empty = 0, full = 0;
  for (std::uint64_t n = 0; n < 3000; ++n) {
    Draw draw(7, n);
    const std::vector<GridAxis> axes = drawn_axes(draw);
    const SparseMask mask =
        draw.chance(0.2) ? heed::masks::axial(Sizes{axes[0].size, 3}, -1) : heed::masks::neighbourhood(axes);
    const Tensor dense = mask.dense();
    const std::int64_t length = dense.size(2);
    const std::int64_t i0 = draw.between(0, length - 1), i1 = draw.between(i0 + 1, length);
    const std::int64_t j0 = draw.between(0, length - 1), j1 = draw.between(j0 + 1, length);
    std::int64_t allowed = 0;
    for (std::int64_t i = i0; i < i1; ++i)
      for (std::int64_t j = j0; j < j1; ++j) allowed += dense.at<bool>(0, 0, i, j) ? 1 : 0;
    const Coverage coverage = mask.parts()[0]->coverage({0, 0, i0, i1, j0, j1});
    empty += coverage == Coverage::empty ? 1 : 0;
    full += coverage == Coverage::full ? 1 : 0;
    ASSERT_TRUE(coverage != Coverage::empty || allowed == 0) << described(axes);
    ASSERT_TRUE(coverage != Coverage::full || allowed == (i1 - i0) * (j1 - j0)) << described(axes);
    bool dilated = false;
    for (const GridAxis& axis : axes) dilated = dilated || axis.dilation > 1;
    ASSERT_TRUE(dilated || allowed > 0 || coverage == Coverage::empty) << described(axes);
  }
  EXPECT_GT(empty, 100);
  EXPECT_GT(full, 100);
}

TEST(GridMask, LeavesOnlyTheTilesThatSomeRowSees) {
  const std::vector<GridAxis> axes{{128, 13}, {128, 13}};
  const SparseMask mask = heed::masks::neighbourhood(axes);
  EXPECT_LE(mask.bytes(), 512U);
  std::int64_t tiles = 0;
  for (std::int64_t i = 0; i < 128 * 128; i += 64)
    for (std::int64_t j = 0; j < 128 * 128; j += 64)
      tiles += mask.parts()[0]->coverage({0, 0, i, i + 64, j, j + 64}) != Coverage::empty ? 1 : 0;
  // Half a line sees 13 lines; its window reaches into the other half of each.
  EXPECT_EQ(tiles, 256 * 13 * 2);
}

TEST(GridMask, ErrorsNameWhatIsWrong) {
  using heed::test::message_of;
  using Axes = std::vector<GridAxis>;
  const std::vector<std::pair<Axes, std::string>> cases{
      {{}, "the grid has 0 axes; 1 to 3 are expected"},
      {{{2}, {2}, {2}, {2}}, "the grid has 4 axes; 1 to 3 are expected"},
      {{{4}, {0}}, "size of axis 1 is 0; 1 or more, and at most 2^48 tokens in all, are expected"},
      {{{1 << 20}, {1 << 30}},
       "size of axis 1 is 1073741824; 1 or more, and at most 2^48 tokens in all, are expected"},
      {{{4, 2, 0}}, "dilation of axis 0 is 0; 1 to its size 4 is expected"},
      {{{4, 3, 2}}, "window of axis 0 is 3; 1 to 2, its size by its dilation, or -1 for all is expected"},
      {{{4, 0}}, "window of axis 0 is 0; 1 to 4, its size by its dilation, or -1 for all is expected"},
  };
  for (const auto& [axes, message] : cases)
    EXPECT_EQ(message_of([&axes = axes] { (void)heed::masks::neighbourhood(axes); }), message);
  const Axes four{{4}};
  EXPECT_EQ(message_of([&] { (void)heed::masks::neighbourhood(four, 5); }),
            "first_query is 5; 0 to 4, the tokens of the grid, is expected");
  EXPECT_EQ(message_of([&] { (void)heed::masks::neighbourhood(four, 1, 4); }),
            "query_length is 4; 0 to 3, the tokens from first_query on, or -1 for all of them is expected");
  EXPECT_EQ(message_of([&] { (void)heed::masks::neighbourhood(four, 0, 4, 5); }),
            "key_length is 5; 0 to 4, the tokens of the grid, or -1 is expected");
  EXPECT_EQ(message_of([] {
              (void)heed::masks::axial(Sizes{2, 2}, 2);
            }),
            "axis is 2; 0 to 1, or -1 for all, is expected");
}

}  // namespace
