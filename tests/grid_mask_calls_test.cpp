// Calls over neighbourhoods whose lines are long: they gather the keys of a line. The oracle is a softmax in
// f64 over the pairs that the definition allows.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "attention_support.hpp"
#include "each_target.hpp"
#include "heed/attention/attention.hpp"
#include "heed/attention/masks.hpp"
#include "heed/attention/part.hpp"
#include "heed/attention/plan.hpp"
#include "random_call.hpp"
#include "random_mask.hpp"
#include "support.hpp"

namespace {

using heed::AttentionOptions;
using heed::DType;
using heed::GridAxis;
using heed::Need;
using heed::SparseMask;
using heed::Tensor;
using heed::test::normal_tensor;

bool is_gathered(const Tensor& query, const Tensor& key, const AttentionOptions& options) {
  const heed::AttentionPlan plan = heed::plan_attention(query, key, key, options);
  return !plan.passes.empty() && plan.passes[0].because.starts_with("Rows see");
}

std::int64_t tokens_of(const std::vector<GridAxis>& axes) {
  std::int64_t tokens = 1;
  for (const GridAxis& axis : axes) tokens *= axis.size;
  return tokens;
}

struct Exact {
  std::vector<double> output, lse;
};

Exact exact_of(const Tensor& query, const Tensor& key, const Tensor& value, const std::vector<GridAxis>& axes,
               std::int64_t first, double scale) {
  Exact exact;
  const std::int64_t group = query.size(1) / key.size(1);
  for (std::int64_t b = 0; b < query.size(0); ++b)
    for (std::int64_t i = 0; i < query.size(2); ++i) {
      std::vector<std::int64_t> seen;
      for (std::int64_t j = 0; j < key.size(2); ++j)
        if (heed::test::sees_on_grid(axes, first + i, j)) seen.push_back(j);
      for (std::int64_t h = 0; h < query.size(1); ++h) {
        double sum = 0;
        std::vector<double> output(static_cast<std::size_t>(value.size(3)));
        for (const std::int64_t j : seen) {
          double score = 0;
          for (std::int64_t d = 0; d < query.size(3); ++d)
            score += double{query.at<float>(b, h, i, d)} * double{key.at<float>(b, h / group, j, d)};
          const double weight = std::exp(score * scale);
          sum += weight;
          for (std::size_t c = 0; c < output.size(); ++c)
            output[c] += weight * double{value.at<float>(b, h / group, j, static_cast<std::int64_t>(c))};
        }
        exact.lse.push_back(std::log(sum));
        for (const double x : output) exact.output.push_back(x / sum);
      }
    }
  return exact;
}

// The largest difference of output and lse, over all rows.
double difference(const heed::AttentionResult& got, const Exact& exact) {
  const Tensor& output = got.output;
  double largest = 0;
  std::size_t row = 0, at = 0;
  for (std::int64_t b = 0; b < output.size(0); ++b)
    for (std::int64_t i = 0; i < output.size(2); ++i)
      for (std::int64_t h = 0; h < output.size(1); ++h) {
        largest = std::max(largest, std::abs(exact.lse[row++] - double{got.lse.at<float>(b, h, i)}));
        for (std::int64_t c = 0; c < output.size(3); ++c)
          largest = std::max(largest, std::abs(exact.output[at++] - double{output.at<float>(b, h, i, c)}));
      }
  return largest;
}

struct Case {
  std::vector<GridAxis> axes;
  std::int64_t first = 0, queries = -1;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {{{33, 5}, {40, 7}}},
      {{{33, 4, 2}, {40, 6}}, 17, 203},           // rows begin and end within lines
      {{{16, -1}, {70, 9, 1, true}}, 1000, 120},  // columns before the row, fewer at the border
      {{{3, 2, 1, true}, {12, 5}, {34, 3}}},      // few frames before the first
      {{{3, 3}, {12, 3, 3}, {34, 17}}, 34 * 7, 34 * 20},
  };
  return all;
}

// f32 sums of some hundred terms below 3: 1e-5 is ten times what was seen, and a key too many or too few
// moves a row by more than 1e-3.
TEST(GridMaskCalls, OfGatheredLinesAgreeWithTheDefinition) {
  const heed::test::EachTarget targets;
  std::uint64_t seed = 5;
  for (const Case& c : cases()) {
    const std::int64_t tokens = tokens_of(c.axes), rows = c.queries < 0 ? tokens - c.first : c.queries;
    const std::int64_t batch = rows < 300 ? 2 : 1, kv_heads = batch;
    const Tensor query = normal_tensor({batch, 2, rows, 10}, ++seed, DType::f32);
    const Tensor key = normal_tensor({batch, kv_heads, tokens, 10}, ++seed, DType::f32);
    const Tensor value = normal_tensor({batch, kv_heads, tokens, 7}, ++seed, DType::f32);
    const Exact exact = exact_of(query, key, value, c.axes, c.first, 0.25);
    for (const std::string& target : targets.available()) {
      heed::set_target(target);
      AttentionOptions options{.scale = 0.25, .need = Need::lse, .kernel = heed::Kernel::fused, .threads = 1};
      options.sparse_mask = heed::masks::neighbourhood(c.axes, c.first, c.queries);
      ASSERT_TRUE(is_gathered(query, key, options));
      const auto result = heed::attention(query, key, value, options);
      EXPECT_LT(difference(result, exact), 1e-5) << target;
      options.threads = 3;
      EXPECT_TRUE(heed::test::same_bits(result, heed::attention(query, key, value, options))) << target;
    }
  }
}

// Rows 431 to 763 begin and end within lines. Kernels for few rows would sum the 9 and 4 rows there
// otherwise.
TEST(GridMaskCalls, OfSomeRowsHaveTheBitsOfAll) {
  const std::vector<GridAxis> axes{{33, 5}, {40, 7}};
  const Tensor all = normal_tensor({1, 2, 33 * 40, 16}, 1, DType::f32);
  const heed::test::EachTarget targets;
  for (const std::string& target : targets.available()) {
    heed::set_target(target);
    const auto output_from = [&](std::int64_t first, std::int64_t rows) {
      AttentionOptions options{.kernel = heed::Kernel::fused};
      options.sparse_mask = heed::masks::neighbourhood(axes, first, rows);
      return heed::attention(all.view().narrow(2, first, rows), all, all, options).output;
    };
    const Tensor whole = output_from(0, 33 * 40);
    EXPECT_TRUE(heed::test::same_bits(output_from(431, 333), whole.view().narrow(2, 431, 333))) << target;

    const heed::PositionRange rows{431, 764};
    const heed::CallPart part{.batch = 1, .heads = 2, .query_length = 33 * 40, .rows = {&rows, 1}};
    AttentionOptions options{.kernel = heed::Kernel::fused};
    options.sparse_mask = heed::masks::neighbourhood(axes);
    Tensor output({1, 2, 333, 16}, DType::f32);
    heed::AttentionOutputs to;
    to.output = output.mutable_view();
    heed::attention_part_into(all.view().narrow(2, 431, 333), all, all, options, part, to);
    EXPECT_TRUE(heed::test::same_bits(output, whole.view().narrow(2, 431, 333))) << target;
  }
}

TEST(GridMaskCalls, GatherLongLinesUnlessAResultNeedsTheOrderOfKeys) {
  const Tensor x({1, 2, 1024, 16}), fewer({1, 2, 1023, 16});
  const auto gathers = [&](const std::vector<GridAxis>& axes, AttentionOptions options = {}) {
    options.sparse_mask = heed::masks::neighbourhood(axes);
    const Tensor& rows = tokens_of(axes) == 1024 ? x : fewer;
    return is_gathered(rows, rows, options);
  };
  EXPECT_TRUE(gathers({{32, 16}, {32, 16}}));
  EXPECT_FALSE(gathers({{32, 16}, {32, 17}}));
  EXPECT_FALSE(gathers({{32, 5}, {32, 5, 2}}));
  EXPECT_FALSE(gathers({{1024, 5}}));
  EXPECT_FALSE(gathers({{33, 5}, {31, 5}}));
  EXPECT_TRUE(gathers({{8, 3}, {128, 48}}));
  EXPECT_FALSE(gathers({{8, 3}, {128, 49}}));
  const std::vector<GridAxis> axes{{32, 5}, {32, 5}};
  EXPECT_FALSE(gathers(axes, {.need = Need::weights}));
  EXPECT_FALSE(gathers(axes, {.need = Need::distance}));
  EXPECT_FALSE(gathers(axes, {.top_k = 3}));
  EXPECT_FALSE(gathers(axes, {.causal = true}));
  EXPECT_FALSE(gathers(axes, {.kernel = heed::Kernel::reference}));
  AttentionOptions fewer_keys;
  fewer_keys.sparse_mask = heed::masks::neighbourhood(std::vector<GridAxis>{{40, 5}, {32, 5}}, 0, 1024, 1024);
  EXPECT_FALSE(is_gathered(x, x, fewer_keys));
}

// The lists of keys are gathered, whichever mask comes first.
TEST(GridMaskCalls, LeaveListsOfKeysTheirGathering) {
  const Tensor x({1, 2, 1024, 16});
  Tensor one_key({1024, 1}, DType::i32);
  const SparseMask lists = SparseMask::key_lists(one_key, 1024, {}, heed::Gather::always);
  const SparseMask grid = heed::masks::neighbourhood(std::vector<GridAxis>{{32, 5}, {32, 5}});
  for (const SparseMask& mask : {lists & grid, grid & lists}) {
    AttentionOptions options;
    options.sparse_mask = mask;
    const heed::AttentionPlan plan = heed::plan_attention(x, x, x, options);
    ASSERT_FALSE(plan.passes.empty());
    EXPECT_TRUE(plan.passes[0].because.starts_with("Lists have room")) << plan.passes[0].because;
  }
}

}  // namespace
