// grid_distance() and grid_map(), against sums over weights that are computed here from the formula.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "attention_support.hpp"
#include "heed/attention/masks.hpp"
#include "heed/error.hpp"
#include "heed/inspect/grid.hpp"
#include "random_call.hpp"
#include "support.hpp"

namespace {

using heed::AttentionOptions;
using heed::DType;
using heed::Tensor;
using heed::TokenGrid;
using Sizes = std::vector<std::int64_t>;

constexpr std::int64_t kTokens = 15, kFirst = 2, kDim = 8, kHeads = 4;
const TokenGrid kGrid{{3, 4}, kFirst};  // one token after it lies nowhere

Tensor random_tensor(const heed::Dims& shape, unsigned seed) {
  Tensor tensor(shape);
  std::mt19937 engine(seed);
  for (float& x : tensor.values<float>()) x = static_cast<float>(engine() % 2001) / 1000 - 1;
  return tensor;
}

// The weight of query i on key j: softmax over the keys up to i.
double weight(const Tensor& q, const Tensor& k, std::int64_t b, std::int64_t h, std::int64_t i,
              std::int64_t j) {
  if (j > i) return 0;
  std::vector<double> exps;
  double sum = 0;
  for (std::int64_t key = 0; key <= i; ++key) {
    double dot = 0;
    for (std::int64_t d = 0; d < kDim; ++d)
      dot +=
          static_cast<double>(q.at<float>(b, h, i, d)) * static_cast<double>(k.at<float>(b, h / 2, key, d));
    exps.push_back(std::exp(dot / std::sqrt(static_cast<double>(kDim))));
    sum += exps.back();
  }
  return exps[static_cast<std::size_t>(j)] / sum;
}

class OnGrid : public ::testing::Test {
 protected:
  Tensor q_ = random_tensor({2, kHeads, kTokens, kDim}, 1), k_ = random_tensor({2, 2, kTokens, kDim}, 2);
  AttentionOptions options_{.causal = true};
};

TEST_F(OnGrid, DistanceIsTheMeanAlongEachAxis) {
  const Tensor distance = heed::grid_distance(q_, k_, kGrid, options_);
  ASSERT_EQ(distance.shape(), (heed::Dims{2, kHeads, 12, 2}));
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t h = 0; h < kHeads; ++h)
      for (std::int64_t i = 0; i < 12; ++i) {
        double all = 0, down = 0, across = 0;
        for (std::int64_t j = 0; j < 12; ++j) {
          const double p = weight(q_, k_, b, h, kFirst + i, kFirst + j);
          all += p;
          down += p * std::abs(static_cast<double>(i / 4 - j / 4));
          across += p * std::abs(static_cast<double>(i % 4 - j % 4));
        }
        EXPECT_NEAR(distance.at<float>(b, h, i, 0), down / all, 1e-5);
        EXPECT_NEAR(distance.at<float>(b, h, i, 1), across / all, 1e-5);
      }
}

TEST_F(OnGrid, MapHasTheWeightsBetweenCells) {
  const Tensor map = heed::grid_map(q_, k_, kGrid, Sizes{2, 2}, options_);
  ASSERT_EQ(map.shape(), (heed::Dims{2, kHeads, 4, 4}));
  const auto cell = [](std::int64_t n) { return (n / 4) * 2 / 3 * 2 + n % 4 / 2; };
  for (std::int64_t h = 0; h < kHeads; ++h) {
    double sums[4][4] = {};
    for (std::int64_t i = 0; i < 12; ++i)
      for (std::int64_t j = 0; j < 12; ++j)
        sums[cell(i)][cell(j)] += weight(q_, k_, 1, h, kFirst + i, kFirst + j);
    for (std::int64_t r = 0; r < 4; ++r)
      for (std::int64_t c = 0; c < 4; ++c) EXPECT_NEAR(map.at<float>(1, h, r, c), sums[r][c], 1e-5);
  }
}

TEST_F(OnGrid, TakesOtherDtypesMasksAndRanks) {
  options_.sparse_mask = heed::masks::sliding_window(3, 0, kTokens, kTokens);
  const Tensor exact =
      heed::grid_distance(Tensor::copy_of(q_, DType::f64), Tensor::copy_of(k_, DType::f64), kGrid, options_);
  const Tensor rounded = heed::grid_distance(Tensor::copy_of(q_, DType::bf16),
                                             Tensor::copy_of(k_, DType::bf16), kGrid, options_);
  const Tensor plain = heed::grid_distance(q_.view().select(0, 0).select(0, 0),
                                           k_.view().select(0, 0).select(0, 0), kGrid, options_);
  ASSERT_EQ(exact.dtype(), DType::f64);
  ASSERT_EQ(plain.shape(), (heed::Dims{1, 1, 12, 2}));
  for (std::int64_t i = 0; i < 12; ++i) {
    EXPECT_NEAR(rounded.at<float>(0, 0, i, 1), exact.at<double>(0, 0, i, 1), 0.05);
    EXPECT_NEAR(plain.at<float>(0, 0, i, 1), exact.at<double>(0, 0, i, 1), 1e-5);
    EXPECT_LE(exact.at<double>(0, 0, i, 0), 1);  // three tokens back are one line
  }
}

TEST_F(OnGrid, ErrorsNameWhatIsWrong) {
  const auto message_of = [&](const TokenGrid& grid, const Sizes& cells) -> std::string {
    return heed::test::message_of([&] { (void)heed::grid_map(q_, k_, grid, cells, options_); });
  };
  EXPECT_EQ(message_of({{}, 0}, {}), "the grid has no axes; at least one is expected");
  EXPECT_EQ(message_of({{4, 0}, 0}, {1, 1}),
            "the grid has an axis of 0; 1 or more, and fewer than 2^63 tokens in all, are expected");
  EXPECT_EQ(message_of({{4, 4}, 0}, {1, 1}), "the grid has 16 tokens from 0 on, but query has 15 rows");
  EXPECT_EQ(message_of({{3, 4}, 4}, {1, 1}), "the grid has 12 tokens from 4 on, but query has 15 rows");
  EXPECT_EQ(message_of(kGrid, {1}), "cells has 1 number; 2, one for each axis, are expected");
  EXPECT_EQ(message_of(kGrid, {4, 1}), "cells[0] is 4; 1 to 3, and at most 1024 cells in all, are expected");
  options_.dropout.probability = 0.5;
  EXPECT_EQ(message_of(kGrid, {1, 1}), "dropout is 0.5; 0 is expected with a grid");
}

// A random call on a grid, and the definitions in f64.
struct GridCall {
  std::int64_t batch, heads, kv_heads, tokens, dim;
  Sizes sizes, cells;
  std::int64_t first = 0, places = 1, cell_count = 1;
  AttentionOptions options{};
  Tensor query, key;

  explicit GridCall(std::uint64_t index) {
    heed::test::Draw draw(20261129, index);
    batch = draw.between(1, 2);
    kv_heads = draw.between(1, 2);
    heads = kv_heads * draw.between(1, 2);
    dim = draw.pick<std::int64_t>({1, 4, 16, 24});
    for (std::int64_t axes = draw.between(1, 3); axes > 0; --axes) {
      sizes.push_back(draw.between(1, 6));
      cells.push_back(draw.between(1, sizes.back()));
      places *= sizes.back();
      cell_count *= cells.back();
    }
    first = draw.between(0, 3);
    tokens = first + places + draw.between(0, 3);
    options.causal = draw.chance(0.4);
    if (draw.chance(0.4)) options.window = {draw.between(0, 9), draw.between(-1, 9)};
    if (draw.chance(0.3)) options.softcap = 2;
    const DType dtype = draw.chance(0.5) ? DType::f64 : DType::f32;
    query = heed::test::normal_tensor({batch, heads, tokens, dim}, 2 * index, dtype);
    key = heed::test::normal_tensor({batch, kv_heads, tokens, dim}, 2 * index + 1, dtype);
  }

  bool sees(std::int64_t i, std::int64_t j) const {
    const heed::Window& w = options.window;
    return (!options.causal || j <= i) && (w.left < 0 || j >= i - w.left) &&
           (w.right < 0 || j <= i + w.right);
  }
  // The weights of row `first` + i on the tokens of the grid.
  std::vector<double> row(const Tensor& q, const Tensor& k, std::int64_t b, std::int64_t h,
                          std::int64_t i) const {
    std::vector<double> p(static_cast<std::size_t>(tokens), 0);
    double sum = 0;
    for (std::int64_t j = 0; j < tokens; ++j) {
      double score = 0;
      for (std::int64_t d = 0; d < dim; ++d)
        score += q.at<double>(b, h, first + i, d) * k.at<double>(b, h / (heads / kv_heads), j, d);
      score /= std::sqrt(static_cast<double>(dim));
      if (options.softcap > 0) score = options.softcap * std::tanh(score / options.softcap);
      if (sees(first + i, j)) sum += p[static_cast<std::size_t>(j)] = std::exp(score);
    }
    for (double& one : p) one /= sum;
    return {p.begin() + first, p.begin() + first + places};
  }
  // A token's coordinate along an axis, and its cell.
  std::int64_t place(std::int64_t token, std::size_t axis) const {
    for (std::size_t n = sizes.size(); --n > axis;) token /= sizes[n];
    return token % sizes[axis];
  }
  std::int64_t cell(std::int64_t token) const {
    std::int64_t cell = 0;
    for (std::size_t n = 0; n < sizes.size(); ++n)
      cell = cell * cells[n] + place(token, n) * cells[n] / sizes[n];
    return cell;
  }
};

TEST(RandomGrids, HaveTheDistancesAndMapsOfTheDefinitions) {
  for (std::uint64_t index = 0; index < heed::test::share_of(500); ++index) {
    SCOPED_TRACE(index);
    const GridCall c(index);
    const TokenGrid grid{c.sizes, c.first};
    const Tensor distance = Tensor::copy_of(heed::grid_distance(c.query, c.key, grid, c.options), DType::f64);
    const Tensor map = Tensor::copy_of(heed::grid_map(c.query, c.key, grid, c.cells, c.options), DType::f64);
    const Tensor q = Tensor::copy_of(c.query, DType::f64), k = Tensor::copy_of(c.key, DType::f64);
    // In f32, the error of a weight is below 2e-6; a distance is at most 5, and a cell sums up to 216 rows.
    const double exact = c.query.dtype() == DType::f64 ? 1e-13 : 2e-6;
    Tensor cells(map.shape(), DType::f64);
    for (std::int64_t b = 0; b < c.batch; ++b)
      for (std::int64_t h = 0; h < c.heads; ++h) {
        for (std::int64_t i = 0; i < c.places; ++i) {
          const std::vector<double> p = c.row(q, k, b, h, i);
          for (std::size_t axis = 0; axis < c.sizes.size(); ++axis) {
            double all = 0, far = 0;
            for (std::int64_t j = 0; j < c.places; ++j) {
              all += p[static_cast<std::size_t>(j)];
              far += p[static_cast<std::size_t>(j)] *
                     static_cast<double>(std::abs(c.place(i, axis) - c.place(j, axis)));
            }
            ASSERT_NEAR(distance.at<double>(b, h, i, static_cast<std::int64_t>(axis)),
                        all > 0 ? far / all : 0, 10 * exact / std::max(all, 1e-3));
          }
          for (std::int64_t j = 0; j < c.places; ++j)
            cells.at<double>(b, h, c.cell(i), c.cell(j)) += p[static_cast<std::size_t>(j)];
        }
      }
    ASSERT_LE(heed::test::largest_difference(map, cells), 100 * exact);
  }
}

}  // namespace
