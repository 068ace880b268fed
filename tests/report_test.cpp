// Compares reports with the full matrix, computed independently, over random calls.
#include "heed/inspect/reports.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "attention_support.hpp"
#include "describe_call.hpp"
#include "each_target.hpp"
#include "inspect/cost.hpp"
#include "naive_attention.hpp"
#include "support.hpp"

namespace {

using heed::AttentionOptions;
using heed::AttentionReport;
using heed::DType;
using heed::ReportOptions;
using heed::Tensor;
using heed::TileRange;
using heed::detail::ForwardSeconds;
using heed::test::message_of;
using heed::test::Naive;
using heed::test::normal_tensor;
using heed::test::RandomCall;
using heed::test::Real;
using Index = std::int64_t;

constexpr std::uint64_t kSeed = 20261121;
constexpr std::uint64_t kCalls = 2000;

std::vector<double> numbers_of(const Tensor& tensor) {
  const Tensor copy = Tensor::copy_of(tensor, DType::f64);
  return {copy.values<double>().begin(), copy.values<double>().end()};
}

// Positions of rows and keys, found row by row, in another way than in src/.
struct Places {
  std::vector<Index> position;   // [B * Lq]
  std::vector<Index> first_key;  // [B * Lq]: the first key of the row's segment
  std::vector<Index> end_key;    // [B * Lq]
};

std::vector<Index> numbers(const heed::TensorView& view) {
  const Tensor copy = Tensor::copy_of(view, DType::i64);
  return {copy.values<Index>().begin(), copy.values<Index>().end()};
}

Places places_of(const AttentionOptions& options, const Naive& n) {
  Places places;
  for (Index b = 0; b < n.batch; ++b)
    for (Index i = 0; i < n.queries; ++i) {
      Index row_begin = 0, row_end = n.queries, key_begin = 0, key_end = n.keys;
      if (options.kv_lengths) key_end = numbers(*options.kv_lengths)[static_cast<std::size_t>(b)];
      if (options.query_segments) {
        const auto q = numbers(*options.query_segments);
        const auto k = numbers(*options.key_segments);
        std::size_t s = 0;
        while (i >= q[s + 1]) ++s;
        row_begin = q[s], row_end = q[s + 1], key_begin = k[s], key_end = k[s + 1];
      }
      Index offset = 0;
      if (options.align == heed::Align::bottom_right) offset = (key_end - key_begin) - (row_end - row_begin);
      if (options.query_offset) offset = *options.query_offset;
      places.position.push_back(i - row_begin + offset);
      places.first_key.push_back(key_begin);
      places.end_key.push_back(key_end);
    }
  return places;
}

// A random call with its report and its full matrix.
class Comparison {
 public:
  explicit Comparison(std::uint64_t index) : call_(heed::test::random_call(kSeed, index)) {
    call_.options.dropout.probability = 0;
    heed::test::Draw draw(kSeed + 1, index);
    const bool cross = call_.query.size(-2) != call_.key.size(-2);
    for (Index i = 0; i < call_.query.size(-2); ++i)
      ask_.query_tokens.push_back(draw.chance(0.5) ? "a" : "b");
    if (cross || draw.chance(0.3))
      for (Index j = 0; j < call_.key.size(-2); ++j) ask_.key_tokens.push_back(draw.chance(0.5) ? "a" : "c");
    ask_.top_k = call_.key.size(-2);
    ask_.map = {5, 7};
    ask_.full_weights_cells = draw.chance(0.5) ? 0 : 10000;
    range_.row_begin = draw.between(0, call_.query.size(-2));
    range_.row_end = draw.between(range_.row_begin, call_.query.size(-2));
    range_.key_begin = draw.between(0, call_.key.size(-2));
    range_.key_end = draw.between(range_.key_begin, call_.key.size(-2));
    ask_.tiles = {range_};
    AttentionOptions options = call_.options;
    options.map = {std::min<Index>(5, call_.query.size(-2)), std::min<Index>(7, call_.key.size(-2))};
    if (options.map.rows == 0 || options.map.columns == 0) options.map = {};
    n_ = heed::test::naive_attention(call_.query, call_.key, call_.value, options);
    report_ = heed::make_report(call_.query, call_.key, call_.value, call_.options, ask_);
    places_ = places_of(call_.options, n_);
  }

  std::string run() {
    compare_rows();
    compare_tile(report_.tiles.at(0), range_);
    if (report_.weights.weights.rank() == 4) compare_tile(report_.weights, {0, n_.queries, 0, n_.keys});
    compare_sums();
    compare_map();
    compare_top_k();
    return failure_.empty() ? "" : failure_ + "\n" + describe(call_);
  }

 private:
  // Twice the error of a score, the rounding of the lse, which is as large, and the error of a sum of Lk
  // terms. The slack is the same as in the fused kernel's own test. f64 inputs are computed in f64
  // throughout.
  Real relative_error(Index b, Index h, Index i) const {
    const Real unit = report_.dtype == DType::f64 ? 0x1p-53L : 0x1p-24L;
    const Real error =
        3 * unit *
        (static_cast<Real>(4 * (n_.head_dim + 3)) * n_.row_magnitude(b, h, i) +
         std::abs(std::isinf(n_.lse(b, h, i)) ? 0 : n_.lse(b, h, i)) + static_cast<Real>(n_.keys + 8));
    return error < 0.5L ? error : 2;
  }

  void check(const char* name, Index b, Index h, Index i, double got, Real expected, Real relative) {
    if (!failure_.empty()) return;
    // Weights below 2^-110 are 0 in the kernel.
    if (std::isnan(expected) ? std::isnan(got)
                             : std::abs(got - expected) <= relative * std::abs(expected) + 0x1p-110L)
      return;
    std::ostringstream text;
    text.precision(17);
    text << name << "[" << b << ", " << h << ", " << i << "] is " << got << "; " << expected
         << " is expected";
    failure_ = text.str();
  }

  static double value(const Tensor& tensor, std::initializer_list<Index> index) {
    heed::TensorView view = tensor;
    for (Index at : index) view = view.select(0, at);
    return Tensor::copy_of(view, DType::f64).at<double>();
  }

  Real weight(Index b, Index h, Index i, Index j) const {
    const auto row = static_cast<std::size_t>(b * n_.queries + i);
    return j < places_.first_key[row] || j >= places_.end_key[row] ? 0 : n_.weights(b, h, i, j);
  }

  Real induction(Index b, Index h, Index i) const {
    const auto row = static_cast<std::size_t>(b * n_.queries + i);
    const auto& keys = ask_.key_tokens.empty() ? ask_.query_tokens : ask_.key_tokens;
    Real sum = std::numeric_limits<Real>::quiet_NaN();
    for (Index j = places_.first_key[row]; j + 1 < places_.end_key[row]; ++j) {
      if (j + 1 - places_.first_key[row] >= places_.position[row]) break;
      if (keys[static_cast<std::size_t>(j)] != ask_.query_tokens[static_cast<std::size_t>(i)]) continue;
      sum = (std::isnan(sum) ? 0 : sum) + weight(b, h, i, j + 1);
    }
    return sum;
  }

  void compare_rows() {
    for (Index b = 0; b < n_.batch; ++b)
      for (Index h = 0; h < n_.heads; ++h)
        for (Index i = 0; i < n_.queries; ++i) {
          const auto row = static_cast<std::size_t>(b * n_.queries + i);
          const Real relative = relative_error(b, h, i);
          const Index here = places_.first_key[row] + places_.position[row];
          const auto one = [&](const char* name, const Tensor& tensor, Real expected) {
            check(name, b, h, i, value(tensor, {b, h, i}), expected, relative);
          };
          one("first", report_.first, weight(b, h, i, places_.first_key[row]));
          one("self", report_.self, weight(b, h, i, here));
          one("previous", report_.previous, weight(b, h, i, here - 1));
          one("next", report_.next, weight(b, h, i, here + 1));
          if (n_.keys > 0) one("induction", report_.induction, induction(b, h, i));
          one("distance", report_.distance, n_.distance(b, h, i));
          Real largest = 0;
          for (Index j = 0; j < n_.keys; ++j) largest = std::max(largest, n_.weights(b, h, i, j));
          one("max_weight", report_.max_weight, largest);
          if (failure_.empty() && report_.position.at<Index>(b, i) != places_.position[row])
            failure_ = "position[" + std::to_string(i) + "]";
        }
  }

  void compare_tile(const heed::WeightTile& tile, const TileRange& range) {
    for (Index b = 0; b < n_.batch; ++b)
      for (Index h = 0; h < n_.heads; ++h)
        for (Index i = range.row_begin; i < range.row_end; ++i)
          for (Index j = range.key_begin; j < range.key_end; ++j) {
            const Index r = i - range.row_begin;
            const Index c = j - range.key_begin;
            check("tile", b, h, i, value(tile.weights, {b, h, r, c}), n_.weights(b, h, i, j),
                  relative_error(b, h, i));
            const bool allowed = n_.final_scores(b, h, i, j) != heed::test::kMinusInfinity;
            if (failure_.empty() && tile.allowed.at<bool>(b, h, r, c) != allowed)
              failure_ = "allowed[" + std::to_string(i) + ", " + std::to_string(j) + "]";
          }
  }

  Real worst(Index b, Index h) const {
    Real worst = 0;
    for (Index i = 0; i < n_.queries; ++i) worst = std::max(worst, relative_error(b, h, i));
    return worst + 0x1p-20L;
  }

  // All received masses add up to the number of rows with a key (minus the weights of sinks).
  void compare_sums() {
    for (Index b = 0; b < n_.batch; ++b)
      for (Index h = 0; h < n_.heads; ++h) {
        Real received = 0, expected = 0;
        for (Index j = 0; j < n_.keys; ++j) {
          received += value(report_.received, {b, h, j});
          for (Index i = 0; i < n_.queries; ++i) expected += n_.weights(b, h, i, j);
        }
        check("sum of received", b, h, 0, static_cast<double>(received), expected, worst(b, h));
      }
  }

  void compare_map() {
    if (n_.map.values.empty()) return;
    for (const Tensor& level : report_.map)
      for (Index b = 0; b < n_.batch; ++b)
        for (Index h = 0; h < n_.heads; ++h) {
          const Index step_r = static_cast<Index>(1) << (&level - report_.map.data());
          for (Index r = 0; r < level.size(2); ++r)
            for (Index c = 0; c < level.size(3); ++c) {
              Real expected = 0;
              for (Index y = r * step_r; y < std::min((r + 1) * step_r, n_.map.shape[2]); ++y)
                for (Index x = c * step_r; x < std::min((c + 1) * step_r, n_.map.shape[3]); ++x)
                  expected += n_.map(b, h, y, x);
              check("map", b, h, r, value(level, {b, h, r, c}), expected, worst(b, h));
            }
        }
    if (n_.batch * n_.heads > 0 && failure_.empty() &&
        report_.map.back().size(2) * report_.map.back().size(3) != 1)
      failure_ = "the last level is not 1 x 1";
  }

  // With k = Lk, the top-k list holds the whole row.
  void compare_top_k() {
    for (Index b = 0; b < n_.batch; ++b)
      for (Index h = 0; h < n_.heads; ++h)
        for (Index i = 0; i < n_.queries; ++i) {
          std::vector<double> row(static_cast<std::size_t>(n_.keys), 0);
          for (Index k = 0; k < n_.keys; ++k) {
            const Index j = report_.top_k_index.at<Index>(b, h, i, k);
            if (j >= 0) row[static_cast<std::size_t>(j)] = value(report_.top_k_weight, {b, h, i, k});
          }
          for (Index j = 0; j < n_.keys; ++j)
            check("row of top-k", b, h, i, row[static_cast<std::size_t>(j)], n_.weights(b, h, i, j),
                  relative_error(b, h, i));
        }
  }

  RandomCall call_;
  ReportOptions ask_;
  TileRange range_;
  Naive n_;
  AttentionReport report_;
  Places places_;
  std::string failure_;
};

TEST(Report, RandomCallsAgreeWithTheFullMatrix) {
  for (std::uint64_t index = 0; index < heed::test::share_of(kCalls); ++index)
    ASSERT_EQ(Comparison(index).run(), "");
}

// 1e-5 is the accuracy promised for summaries of scores of ordinary size.
TEST(Report, SummariesAreThoseOfTheFullMatrixToOneInAHundredThousand) {
  const Index length = 500;
  const Tensor query = normal_tensor({2, length, 32}, 1, DType::f32);
  const Tensor key = normal_tensor({2, length, 32}, 2, DType::f32);
  const Tensor value = normal_tensor({2, length, 8}, 3, DType::f32);
  const AttentionOptions options{.causal = true};
  const AttentionReport report =
      heed::make_report(query, key, value, options, {.full_weights_cells = 1 << 20});
  const Naive n = heed::test::naive_attention(query, key, value, options);
  for (Index h = 0; h < 2; ++h) {
    Real entropy = 0, distance = 0, first = 0, self = 0, previous = 0, largest = 0;
    for (Index i = 0; i < length; ++i) {
      entropy += n.entropy(0, h, i);
      distance += n.distance(0, h, i);
      first += n.weights(0, h, i, 0);
      self += n.weights(0, h, i, i);
      previous += i > 0 ? n.weights(0, h, i, i - 1) : 0;
      Real most = 0;
      for (Index j = 0; j <= i; ++j) most = std::max(most, n.weights(0, h, i, j));
      largest += most;
    }
    const heed::HeadSummary& summary = report.summaries.at(static_cast<std::size_t>(h));
    const auto near = [&](double got, Real expected) {
      EXPECT_TRUE(std::abs(got - expected / length) <= 1e-5L * expected / length) << got << " " << expected;
    };
    EXPECT_EQ(summary.rows, length);
    EXPECT_EQ(summary.next, 0);
    near(summary.entropy, entropy);
    near(summary.distance, distance);
    near(summary.first, first);
    near(summary.self, self);
    near(summary.previous, previous);
    near(summary.max_weight, largest);
  }
}

TEST(Report, OfSomeRowsIsWhatTheWholeReportSaysOfThem) {
  const Tensor query = normal_tensor({2, 3, 60, 8}, 1, DType::f32);
  const Tensor key = normal_tensor({2, 1, 50, 8}, 2, DType::f32);
  const AttentionOptions options{.causal = true, .align = heed::Align::bottom_right};
  ReportOptions wanted;
  wanted.top_k = 4;
  const AttentionReport whole = heed::make_report(query, key, key, options, wanted);
  wanted.rows = {11, 12, 13, 40, 59};
  const AttentionReport some = heed::make_report(query, key, key, options, wanted);
  for (const auto member : {&AttentionReport::lse, &AttentionReport::max_score, &AttentionReport::entropy,
                            &AttentionReport::distance, &AttentionReport::max_weight}) {
    for (const Index i : wanted.rows)
      EXPECT_TRUE(heed::test::largest_difference((some.*member).view().select(2, i),
                                                 (whole.*member).view().select(2, i)) <= 1e-5)  // rounding
          << i;
    EXPECT_TRUE(std::isnan((some.*member).at<float>(1, 2, 39)));
  }
  for (const Index i : wanted.rows)
    EXPECT_TRUE(
        heed::test::same_bits(some.top_k_index.view().select(2, i), whole.top_k_index.view().select(2, i)));
  EXPECT_EQ(some.top_k_index.at<Index>(1, 2, 39, 0), -1);
  EXPECT_EQ(some.position.at<Index>(1, 39), whole.position.at<Index>(1, 39));
  EXPECT_TRUE(some.summaries.empty() && some.map.empty() && some.received.rank() == 1);
}

// The caller computes the results, as over machines, and is asked once for all that the report needs.
TEST(Report, OfResultsFromElsewhereIsTheSame) {
  const Tensor query = normal_tensor({2, 3, 9, 4}, 1), key = normal_tensor({2, 3, 7, 4}, 2);
  const AttentionOptions options{.causal = true};
  const AttentionReport own = make_report(query, key, key, options);
  int calls = 0;
  const auto elsewhere = [&](const AttentionOptions& asked) {
    ++calls;
    EXPECT_TRUE(asked.causal);
    return attention(query, key, key, asked);
  };
  const AttentionReport report = make_report(query, key, key, options, {.cost = true, .attend = elsewhere});
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(report.kernel, own.kernel);
  EXPECT_EQ(report.isa, own.isa);
  for (const auto member : {&AttentionReport::output, &AttentionReport::lse, &AttentionReport::received,
                            &AttentionReport::top_k_weight, &AttentionReport::first})
    EXPECT_EQ(numbers_of(report.*member), numbers_of(own.*member));
  for (const heed::CostLine& line : report.cost) EXPECT_NE(line.what, "plain forward");
  EXPECT_EQ(message_of([&] {
              const auto wrong = [&](const AttentionOptions& asked) {
                return attention(query.view().narrow(2, 0, 8), key, key, asked);
              };
              (void)make_report(query, key, key, options, {.attend = wrong});
            }),
            "outputs.output has shape [2, 3, 8, 4]; [2, 3, 9, 4] is expected");
}

TEST(Report, HoldsNothingThatWasNotAskedFor) {
  const Tensor x = normal_tensor({6, 4}, 1);
  const AttentionReport report = heed::make_report(x, x, x, {}, {.top_k = 0, .received = false, .map = {}});
  EXPECT_TRUE(report.map.empty());
  EXPECT_TRUE(report.tiles.empty());
  EXPECT_TRUE(report.cost.empty());
  for (const Tensor* tensor : {&report.received, &report.top_k_index, &report.top_k_weight, &report.induction,
                               &report.weights.weights, &report.weights.allowed})
    EXPECT_EQ(tensor->shape(), heed::Dims{0});
  EXPECT_EQ(report.lse.shape(), (heed::Dims{1, 1, 6}));
}

TEST(Report, RowsOfNaNAreCountedAndLeftOutOfTheMeans) {
  Tensor query = normal_tensor({5, 4}, 1, DType::f32);
  const Tensor key = normal_tensor({5, 4}, 2, DType::f32);
  const AttentionReport clean = heed::make_report(query, key, key, {.causal = true});
  query.at<float>(4, 0) = std::numeric_limits<float>::quiet_NaN();
  const AttentionReport report = heed::make_report(query, key, key, {.causal = true});
  EXPECT_EQ(report.summaries[0].rows, 4);
  EXPECT_EQ(report.summaries[0].nan_rows, 1);
  EXPECT_TRUE(std::isfinite(report.summaries[0].entropy));
  EXPECT_TRUE(std::isnan(report.self.at<float>(0, 0, 4)));
}

TEST(Report, CostsNameWhatTheMatrixWouldTake) {
  const Tensor x = normal_tensor({2, 64, 8}, 1, DType::f32);
  const AttentionReport report = heed::make_report(x, x, x, {}, {.cost = true});
  ASSERT_GE(report.cost.size(), 6u);
  EXPECT_EQ(report.cost.front().what, "plain forward");
  EXPECT_EQ(report.cost.back().what, "full matrix (not made)");
  EXPECT_EQ(report.cost.back().bytes, 2 * 64 * 64 * 4);
  EXPECT_FALSE(report.cost.back().made);
  for (const heed::CostLine& line : report.cost) {
    EXPECT_EQ(line.made, &line != &report.cost.back()) << line.what;
    EXPECT_FALSE(line.seconds < 0) << line.what << ' ' << line.seconds;
  }
}

// With a map, received masses need a pass of their own. Otherwise long calls get them from the forward pass.
TEST(Report, CostsSayWhereWhatKeysReceiveHasNoPassOfItsOwn) {
  const heed::test::EachTarget before;
  heed::set_target("plain");
  const Tensor x = normal_tensor({1, 200, 8}, 1, DType::f32);
  const auto seconds_of = [&](heed::MapSize map, std::string_view what) {
    const AttentionReport report = heed::make_report(x, x, x, {.kernel = heed::Kernel::fused},
                                                     {.map = map, .full_weights_cells = 0, .cost = true});
    const auto found = std::find_if(report.cost.begin(), report.cost.end(),
                                    [&](const heed::CostLine& line) { return line.what == what; });
    return found == report.cost.end() ? -1 : found->seconds;
  };
  EXPECT_GT(seconds_of({8, 8}, "received"), 0);
  EXPECT_TRUE(std::isnan(seconds_of({}, "received (within the one pass)")));
}

// Whatever else the machine does: relative costs are only given for a plain forward of a millisecond or more.
TEST(Report, CostsAreMultiplesOfAPlainForwardOfAMillisecondOrMore) {
  const Tensor x = normal_tensor({2, 64, 8}, 1, DType::f32);
  const AttentionReport report = heed::make_report(x, x, x, {}, {.cost = true});
  const double plain = report.cost.front().seconds;
  for (const heed::CostLine& line : report.cost) {
    EXPECT_EQ(std::isnan(line.times), plain < 1e-3 || std::isnan(line.seconds)) << line.what;
    if (!std::isnan(line.times)) {
      EXPECT_EQ(line.times, line.seconds / plain) << line.what;
    }
  }
}

// A call that is timed by a sample. f64 uses the reference, which samples calls of a few milliseconds.
TEST(Report, CostsOfALongCallAddUpToWhatItsPassTook) {
  const Tensor x = normal_tensor({1, 1000, 16}, 1);
  const auto begin = std::chrono::steady_clock::now();
  const AttentionReport report = heed::make_report(x, x, x, {}, {.received = false, .map = {}, .cost = true});
  const std::chrono::duration<double> all = std::chrono::steady_clock::now() - begin;
  double sum = 0;
  for (const heed::CostLine& line : report.cost)
    if (line.estimated && line.made && !std::isnan(line.seconds)) sum += line.seconds;
  EXPECT_TRUE(report.cost.front().estimated);
  EXPECT_GT(sum, 0);
  EXPECT_LT(sum, all.count());
}

// Times of a machine that is sometimes busy: a call that does more is sometimes faster.
TEST(Report, WhatTimesCannotTellHasNoCost) {
  using heed::detail::compare_turns;
  using heed::detail::Turn;
  const std::vector<Turn> quiet(4, Turn{1, 1.5, 2.25, 4});
  const ForwardSeconds all = compare_turns(quiet);
  EXPECT_EQ(all.plain, 1);
  EXPECT_EQ(all.rows, 0.5);
  EXPECT_EQ(all.top_k, 0.75);
  EXPECT_EQ(all.map, 1.75);
  // A delayed turn counts as little as any other. With top-k the call is faster in two of nine turns.
  std::vector<Turn> busy(6, Turn{1, 1.5, 1.625, 2});
  busy.push_back({50, 50.5, 50.625, 51});
  busy.push_back({1, 1.5, 1.25, 2});
  busy.push_back({1, 1.5, 1.375, 2});
  const ForwardSeconds some = compare_turns(busy);
  EXPECT_EQ(some.plain, 1);
  EXPECT_EQ(some.rows, 0.5);
  EXPECT_TRUE(std::isnan(some.top_k));
  EXPECT_EQ(some.map, 0.375);
  const ForwardSeconds shares = some.shares_of(15);
  EXPECT_EQ(shares.plain, 8);
  EXPECT_EQ(shares.rows, 4);
  EXPECT_TRUE(std::isnan(shares.top_k));
  EXPECT_EQ(shares.map, 3);
}

TEST(Report, ProgressRisesToOneInEveryPass) {
  const Tensor x = normal_tensor({2, 300, 8}, 1, DType::f32);
  std::vector<std::pair<std::string, double>> told;
  ReportOptions wanted;
  wanted.progress = [&](std::string_view what, double share) { told.emplace_back(what, share); };
  (void)heed::make_report(x, x, x, {}, wanted);
  bool forward = false, second = false;
  for (std::size_t i = 0; i < told.size(); ++i) {
    EXPECT_TRUE(told[i].second >= 0 && told[i].second <= 1);
    if (i > 0 && told[i].first == told[i - 1].first) {
      EXPECT_GE(told[i].second, told[i - 1].second);
    }
    forward |= told[i] == std::pair<std::string, double>("forward", 1);
    second |= told[i] == std::pair<std::string, double>("weights pass", 1);
  }
  EXPECT_TRUE(forward && second);
}

TEST(Report, TellsTheOptionsOfTheCall) {
  const Tensor x = normal_tensor({4, 4}, 1);
  const Tensor mask({4, 4}, DType::boolean);
  const AttentionReport report = heed::make_report(
      x, x, x, {.scale = 0.125, .causal = true, .window = {.left = 4}, .mask = mask.view(), .softcap = 30});
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"scale", "0.125"}, {"causal", "true"}, {"window", "4,-1"}, {"mask", "bool [4, 4]"}, {"softcap", "30"}};
  EXPECT_EQ(report.options, expected);
}

TEST(Report, RefusesRowsThatAreNotThere) {
  const Tensor x({5, 4});
  const auto message = [&](std::vector<Index> rows) {
    ReportOptions wanted;
    wanted.rows = std::move(rows);
    return message_of([&] { (void)heed::make_report(x, x, x, {}, wanted); });
  };
  EXPECT_EQ(message({1, 5}), "rows holds 5; ascending rows of 2 to 4 are expected there");
  EXPECT_EQ(message({1, 1}), "rows holds 1; ascending rows of 2 to 4 are expected there");
  EXPECT_EQ(message({-1}), "rows holds -1; ascending rows of 0 to 4 are expected there");
}

TEST(Report, RefusesWhatItCannotTakeTogetherOrCount) {
  const Tensor x({5, 4});
  const auto message = [&](const ReportOptions& wanted) {
    return message_of([&] { (void)heed::make_report(x, x, x, {}, wanted); });
  };
  EXPECT_EQ(message({.most_received = -1}), "most_received is -1; 0 or more keys are expected");
  ReportOptions both;
  both.rows = {1};
  both.attend = [&](const heed::AttentionOptions& options) { return heed::attention(x, x, x, options); };
  EXPECT_EQ(message(both), "attend is given together with rows; at most one of them is expected");
}

TEST(Report, RefusesWhatDoesNotFit) {
  const Tensor x = normal_tensor({2, 4, 3}, 1);
  const auto report = [&](const ReportOptions& wanted) {
    return message_of([&] { (void)heed::make_report(x, x, x, {}, wanted); });
  };
  EXPECT_EQ(report({.query_tokens = {"a", "b"}}),
            "query_tokens has 2 entries; 4, the length of query, is expected");
  EXPECT_EQ(report({.key_tokens = {"a"}}), "key_tokens has 1 entry; 4, the length of key, is expected");
  EXPECT_EQ(report({.top_k = -1}), "top_k is -1; 0 (off) or more is expected");
  EXPECT_EQ(report({.map = {-1, 4}}), "map is -1 x 4; sizes of 0 (off) or more are expected");
  EXPECT_EQ(report({.tiles = {{0, 5, 0, 4}}}),
            "range has rows 0 to 5; a range within 0 to 4, the length of query, is expected");
  EXPECT_EQ(report({.tiles = {{0, 4, 3, 2}}}),
            "range has keys 3 to 2; a range within 0 to 4, the length of key, is expected");
  EXPECT_EQ(report({.tiles = {{0, 4, 0, 4, -1, 2}}}), "range has head 2; -1 (all) or 0 to 1 is expected");
  EXPECT_EQ(report({.tiles = {{0, 4, 0, 4, 1}}}), "range has batch 1; -1 (all) or 0 to 0 is expected");
  EXPECT_EQ(report({.tiles = {{-1, 4, 0, 4}}}),
            "range has rows -1 to 4; a range within 0 to 4, the length of query, is expected");
  EXPECT_EQ(report({.tiles = {{0, 4, 0, 5}}}),
            "range has keys 0 to 5; a range within 0 to 4, the length of key, is expected");
  EXPECT_EQ(report({.tiles = {{0, 4, 0, 4, -1, -2}}}), "range has head -2; -1 (all) or 0 to 1 is expected");
  EXPECT_EQ(report({.tiles = {{0, 4, 0, 4, -2}}}), "range has batch -2; -1 (all) or 0 to 0 is expected");
  for (const heed::TileRange& range : {heed::TileRange{0, 4, 0, 4, 0, 1}, heed::TileRange{0, 0, 4, 4},
                                       heed::TileRange{4, 4, 0, 4}, heed::TileRange{3, 4, 3, 4, -1, 0}})
    EXPECT_EQ(report({.tiles = {range}}), "no error");
  const Tensor lse({2, 4}, DType::f32);
  EXPECT_EQ(message_of([&] { (void)heed::attention_tile(x, x, {}, lse.view().select(0, 0), {}); }),
            "lse has shape [4]; [2, 4] is expected");
  EXPECT_EQ(message_of([&] {
              (void)heed::attention_tile(x, x, {}, Tensor({2, 4}, DType::f16), {});
            }),
            "lse has dtype f16; f32 or f64 is expected");
  EXPECT_EQ(
      message_of([&] { (void)heed::pool_map(x); }),
      "finest has dtype f64 and shape [2, 4, 3]; floats [B, H, R, C] with at least one bin are expected");
  EXPECT_EQ(message_of([&] {
              (void)heed::map_in_bins(Tensor({1, 1, 4, 3}), {5, 3});
            }),
            "size is 5 x 3; 1 x 1 to 4 x 3 is expected");
}

}  // namespace
