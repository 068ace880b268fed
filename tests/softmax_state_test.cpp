// The algebra of SoftmaxState: the empty state, rescaling, and merging the partial results of key spans in
// order.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "attention_support.hpp"
#include "kernel_unit/units.hpp"
#include "support.hpp"

namespace {

using heed::Tensor;
using heed::test::RowState;
using heed::test::SoftmaxStates;

constexpr std::int64_t kRows = 24;
constexpr std::int64_t kColumns = 16;
constexpr std::int64_t kTopK = 5;
constexpr float kForbidden = -0x1p21f;

struct Key {
  float score;
  std::vector<float> value;
  std::int32_t index;
};

class SoftmaxState : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = heed::test::why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
    const Tensor one({1, 1});
    const heed::test::KernelUnit unit =
        heed::test::kernel_unit(heed::attention(one, one, one, {.kernel = heed::Kernel::fused}).isa);
    states_ = unit.states;
    gain_ = unit.math.gain;
  }

  SoftmaxStates::States empty() const { return states_.empty(kRows, kColumns, kTopK); }

  // A state with keys [begin, end) of each row of `all`.
  SoftmaxStates::States state_of(const std::vector<std::vector<Key>>& all, std::size_t begin,
                                 std::size_t end) const {
    SoftmaxStates::States states = empty();
    for (std::size_t r = 0; r < all.size(); ++r)
      for (std::size_t j = begin; j < std::min(end, all[r].size()); ++j)
        states_.add_key(states, static_cast<std::int64_t>(r), all[r][j].score, all[r][j].value.data(),
                        all[r][j].index);
    return states;
  }

  std::vector<RowState> read(const SoftmaxStates::States& states) const {
    std::vector<RowState> rows;
    for (std::int64_t r = 0; r < kRows; ++r) rows.push_back(states_.read(states, r));
    return rows;
  }

  // Merges the partial results of the spans [0, 7), [7, 14), … in order, each computed from an empty state.
  SoftmaxStates::States merged(const std::vector<std::vector<Key>>& all, std::size_t keys) const {
    SoftmaxStates::States sum = empty();
    for (std::size_t begin = 0; begin < keys; begin += 7) {
      SoftmaxStates::States span = state_of(all, begin, begin + 7);
      states_.merge(sum, span);
    }
    return sum;
  }

  SoftmaxStates states_{};
  double gain_ = 0;
};

// 40 keys for each row, with scores of different sizes, some equal, some forbidden. Row 3 sees no key, row 4
// only the last ones, row 5 only the first. The scores of row 6 rise by more than exponents hold.
std::vector<std::vector<Key>> keys_of_rows() {
  std::mt19937_64 engine(5);
  std::normal_distribution<float> normal;
  std::vector<std::vector<Key>> rows(kRows);
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (std::int32_t j = 0; j < 40; ++j) {
      Key key{normal(engine) * static_cast<float>(1 + r % 5 * 8), {}, j};
      if (j % 4 == 1) key.score = rows[r][static_cast<std::size_t>(j - 1)].score;
      if (j % 9 == 5 || r == 3 || (r == 4 && j < 30) || (r == 5 && j >= 6)) key.score = kForbidden;
      if (r == 6) key.score = static_cast<float>(j) * 30;
      for (std::int64_t c = 0; c < kColumns; ++c) key.value.push_back(normal(engine));
      rows[r].push_back(key);
    }
  return rows;
}

TEST_F(SoftmaxState, TheEmptyStateChangesNothingItIsMergedWith) {
  const SoftmaxStates::States some = state_of(keys_of_rows(), 0, 40);
  SoftmaxStates::States into = some;
  SoftmaxStates::States nothing = empty();
  states_.merge(into, nothing);
  EXPECT_TRUE(read(into) == read(some));
  SoftmaxStates::States first = empty();
  SoftmaxStates::States from = some;
  states_.merge(first, from);
  EXPECT_TRUE(read(first) == read(some));
}

TEST_F(SoftmaxState, ForbiddenKeysAloneLeaveItEmpty) {
  const std::vector<RowState> rows = read(state_of(keys_of_rows(), 0, 40));
  for (std::size_t r = 0; r < rows.size(); ++r) EXPECT_EQ(rows[r].empty, r == 3) << r;
  EXPECT_EQ(rows[3].max, kForbidden);
  EXPECT_EQ(rows[3].list_keys, std::vector<std::int32_t>(kTopK, -1));
}

// Sums of up to 40 keys are far from the limits of f32, so scaling by a power of two is exact.
TEST_F(SoftmaxState, RescalingIsExact) {
  const std::vector<std::vector<Key>> keys = keys_of_rows();
  SoftmaxStates::States states = state_of(keys, 0, 7);
  const std::vector<RowState> before = read(states);
  for (const std::int64_t row : {0, 1, 2, 5})
    states_.rescale(states, row, before[static_cast<std::size_t>(row)].shift + 10);
  const std::vector<RowState> after = read(states);
  for (const std::size_t row : std::vector<std::size_t>{0, 1, 2, 5}) {
    const RowState& a = before[row];
    const RowState& b = after[row];
    EXPECT_EQ(b.shift, a.shift + 10);
    EXPECT_EQ(b.sum, a.sum * 0x1p-10f);
    EXPECT_EQ(b.rounded, a.rounded * 0x1p-10f);
    EXPECT_EQ(b.distance, a.distance * 0x1p-10f);
    EXPECT_EQ(b.max, a.max);
    EXPECT_EQ(b.list_keys, a.list_keys);
    for (std::size_t c = 0; c < a.output.size(); ++c) EXPECT_EQ(b.output[c], a.output[c] * 0x1p-10f);
    // sum_j w_j (s_j - m) changes with m. The tolerance is twice the rounding of the sum and of the product.
    EXPECT_NEAR(b.moment, 0x1p-10 * (a.moment - 10.0 * a.sum),
                0x1p-10 * 0x1p-22 * (std::abs(a.moment) + 10 * a.sum));
  }
}

// Compares with the definitions in f64. A weight has an error of 2 ulp, a sum of 40 at most 40 roundings.
TEST_F(SoftmaxState, MergedSpansHoldTheSumsOfAllTheirKeys) {
  const std::vector<std::vector<Key>> keys = keys_of_rows();
  const std::vector<RowState> rows = read(merged(keys, 40));
  for (std::size_t r = 0; r < rows.size(); ++r) {
    SCOPED_TRACE(r);
    double sum = 0, moment = 0, distance = 0, size = 0;
    float max = kForbidden;
    std::vector<double> output(kColumns);
    std::vector<std::pair<double, std::int32_t>> ranked;
    for (const Key& key : keys[r]) {
      max = std::max(max, key.score);
      const double exponent = static_cast<double>(key.score) - rows[r].shift;
      if (exponent < -125) continue;
      const double weight = gain_ * std::exp2(exponent);
      sum += weight;
      moment += weight * exponent;
      size += weight * std::abs(exponent);
      distance += weight * key.index;
      ranked.emplace_back(-weight, key.index);
      for (std::size_t c = 0; c < output.size(); ++c) output[c] += weight * key.value[c];
    }
    const double tolerance = 42 * 0x1p-24;
    EXPECT_NEAR(rows[r].sum, sum, tolerance * sum);
    EXPECT_EQ(rows[r].rounded, rows[r].sum);
    // When m changes, the moment of the earlier keys changes by |step| * sum: at most 60 here, except in row
    // 6.
    EXPECT_NEAR(rows[r].moment, moment, tolerance * (size + (r == 6 ? 1200 : 60) * sum));
    EXPECT_NEAR(rows[r].distance, distance, tolerance * distance);
    EXPECT_EQ(rows[r].max, max);
    for (std::size_t c = 0; c < output.size(); ++c)
      EXPECT_NEAR(rows[r].output[c], output[c], tolerance * 5 * sum);
    std::stable_sort(ranked.begin(), ranked.end());
    for (std::size_t k = 0; k < kTopK && k < ranked.size(); ++k) {
      if (-ranked[k].first < 0x1p-120) break;  // too light to be told apart
      EXPECT_EQ(rows[r].list_keys[k], ranked[k].second);
      EXPECT_NEAR(rows[r].list_weights[k], -ranked[k].first, 4 * 0x1p-23 * -ranked[k].first);
    }
  }
}

// Partial results may be computed in any order. Here each is computed by itself, the last one first.
TEST_F(SoftmaxState, SpansFoldedInTheirOrderGiveTheSameBits) {
  const std::vector<std::vector<Key>> keys = keys_of_rows();
  std::vector<SoftmaxStates::States> spans(6);
  for (std::size_t span = 6; span-- > 0;) spans[span] = state_of(keys, span * 7, span * 7 + 7);
  SoftmaxStates::States sum = empty();
  for (SoftmaxStates::States& span : spans) states_.merge(sum, span);
  EXPECT_TRUE(read(sum) == read(merged(keys, 40)));
}

TEST_F(SoftmaxState, OfEqualWeightsTheEarlierKeyComesFirst) {
  const std::vector<std::vector<Key>> keys(kRows,
                                           std::vector<Key>(20, {1.0f, std::vector<float>(kColumns), 0}));
  std::vector<std::vector<Key>> numbered = keys;
  for (std::vector<Key>& row : numbered)
    for (std::size_t j = 0; j < row.size(); ++j) row[j].index = static_cast<std::int32_t>(j);
  for (const RowState& row : read(merged(numbered, 20)))
    EXPECT_EQ(row.list_keys, (std::vector<std::int32_t>{0, 1, 2, 3, 4}));
}

// Infinities and NaN leave a row out. It stays left out, whatever it is merged with.
TEST_F(SoftmaxState, ARowThatIsLeftOutInOneSpanIsLeftOutOfAll) {
  SoftmaxStates::States into = state_of(keys_of_rows(), 0, 7);
  SoftmaxStates::States from = state_of(keys_of_rows(), 7, 14);
  states_.leave_out(from, 2);
  states_.leave_out(into, 8);
  states_.merge(into, from);
  const std::vector<RowState> rows = read(into);
  for (std::size_t r = 0; r < rows.size(); ++r) EXPECT_EQ(rows[r].left_out, r == 2 || r == 8) << r;
}

}  // namespace
