// Parts of a call that a report computes separately: requested rows, and the sample that is timed.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "attention/check/checks.hpp"
#include "attention/check/results.hpp"
#include "attention/execute/run.hpp"
#include "attention_support.hpp"
#include "describe_call.hpp"
#include "heed/inspect/reports.hpp"
#include "inspect/part.hpp"
#include "naive_attention.hpp"
#include "support.hpp"

namespace {

using heed::AttentionOptions;
using heed::AttentionReport;
using heed::DType;
using heed::Tensor;
using heed::detail::Problem;
using heed::detail::Segment;
using heed::test::Naive;
using heed::test::normal_tensor;
using heed::test::RandomCall;
using heed::test::Real;
using Index = std::int64_t;

constexpr std::uint64_t kSeed = 20270114;
constexpr std::uint64_t kCalls = 1000;

// Checks the promises of problem.hpp, counting row by row.
std::string wrong_segments(const Problem& p) {
  std::vector<int> seen(static_cast<std::size_t>(p.batch * p.query_length), 0);
  for (const Segment& s : p.segments)
    for (Index i = s.query_begin; i < s.query_end; ++i) {
      if (s.batch < 0 || s.batch >= p.batch || i < 0 || i >= p.query_length) return "a row outside the call";
      ++seen[static_cast<std::size_t>(s.batch * p.query_length + i)];
    }
  for (std::size_t row = 0; row < seen.size(); ++row)
    if (seen[row] != 1)
      return "row " + std::to_string(row) + " is covered " + std::to_string(seen[row]) + " times";
  return "";
}

std::vector<Index> some_rows(Index length, heed::test::Draw& draw) {
  std::vector<Index> rows;
  for (Index i = 0; i < length; ++i)
    if (draw.chance(0.4)) rows.push_back(i);
  return rows;
}

double number(const Tensor& tensor, std::initializer_list<Index> index) {
  heed::TensorView view = tensor;
  for (const Index at : index) view = view.select(0, at);
  return Tensor::copy_of(view, DType::f64).at<double>();
}

// Compares rows of a random call with the whole call's full matrix.
std::string wrong_row(const RandomCall& call, const std::vector<Index>& rows) {
  const Naive n = heed::test::naive_attention(call.query, call.key, call.value, call.options);
  heed::ReportOptions wanted;
  wanted.rows = rows;
  wanted.top_k = 0;
  const AttentionReport report = heed::make_report(call.query, call.key, call.value, call.options, wanted);
  const Real unit = report.dtype == DType::f64 ? 0x1p-53L : 0x1p-24L;
  const DType output = report.output.dtype();
  const Real stored = output == DType::bf16 ? 0x1p-8L : output == DType::f16 ? 0x1p-11L : 0x1p-24L;
  std::size_t next = 0;
  for (Index i = 0; i < n.queries; ++i) {
    const bool asked = next < rows.size() && rows[next] == i;
    if (asked) ++next;
    for (Index b = 0; b < n.batch; ++b)
      for (Index h = 0; h < n.heads; ++h) {
        const auto differs = [&](double got, Real expected, Real allowed) {
          if (!asked) return !std::isnan(got);
          return std::isnan(expected)
                     ? !std::isnan(got)
                     : !(got == static_cast<double>(expected) || std::abs(got - expected) <= allowed);
        };
        // The errors of scores and of sums, three times, as in report_test.
        const Real relative =
            3 * unit *
            (static_cast<Real>(4 * (n.head_dim + 3)) * n.row_magnitude(b, h, i) +
             std::abs(std::isinf(n.lse(b, h, i)) ? 0 : n.lse(b, h, i)) + static_cast<Real>(n.keys + 8));
        if (asked && relative >= 0.5L) continue;  // a row that rounding destroys
        const auto name = [&](const char* what) {
          std::ostringstream text;
          text << what << "[" << b << ", " << h << ", " << i << "]";
          return text.str();
        };
        if (differs(number(report.lse, {b, h, i}), n.lse(b, h, i), relative)) return name("lse");
        if (differs(number(report.distance, {b, h, i}), n.distance(b, h, i),
                    relative * n.distance(b, h, i) + 0x1p-110L))
          return name("distance");
        for (Index c = 0; c < n.value_dim; ++c)
          // bf16 weights are rounded to bf16 before they multiply values.
          if (differs(number(report.output, {b, h, i, c}), n.output(b, h, i, c),
                      (relative + 4 * stored) * n.output_magnitude(b, h, i, c) + 0x1p-24L))
            return name("output");
      }
  }
  return "";
}

TEST(ReportParts, RowsThatAreAskedForAreThoseOfTheWholeCall) {
  for (std::uint64_t index = 0; index < heed::test::share_of(kCalls); ++index) {
    const RandomCall call = heed::test::random_call(kSeed, index);
    heed::test::Draw draw(kSeed + 1, index);
    const std::vector<Index> rows = some_rows(call.query.size(-2), draw);
    if (rows.empty()) continue;  // an empty list requests all rows
    ASSERT_EQ(wrong_row(call, rows), "") << describe(call);
  }
}

TEST(ReportParts, CoverEachOfTheirRowsOnce) {
  for (std::uint64_t index = 0; index < heed::test::share_of(kCalls); ++index) {
    const RandomCall call = heed::test::random_call(kSeed, index);
    if (call.query.rank() != 4 || call.query.size(2) == 0 || call.query.size(0) == 0) continue;
    AttentionOptions options = call.options;
    options.need = heed::Need::none;
    const Problem whole = heed::detail::check_call(call.query, call.key, call.value, options);
    heed::test::Draw draw(kSeed + 1, index);
    ASSERT_EQ(wrong_segments(call_of_rows(whole, some_rows(whole.query_length, draw)).problem), "")
        << describe(call);
    ASSERT_EQ(wrong_segments(sample_of(whole, 3, 2)), "") << describe(call);
  }
}

// A call long enough that the sample is only a part of it, with a map, for eight threads.
class Sample : public testing::Test {
 protected:
  Problem call(Index batch, Index heads, Index length, AttentionOptions options = {}) {
    query_ = normal_tensor({batch, heads, length, 8}, 1, DType::f32);
    options.need = heed::Need::lse;
    options.map = {64, 64};
    options.threads = 8;
    Problem problem = heed::detail::check_call(query_, query_, query_, options);
    result_ = allocate_results(problem, options, 4);
    bind_outputs(heed::detail::views_of(result_), options, 4, problem);
    return problem;
  }
  static int threads_of(const Problem& p) { return run(p, heed::Kernel::automatic).threads; }

  Tensor query_;
  heed::AttentionResult result_;
};

TEST_F(Sample, OfALongCallTakesAsManyThreadsWithTheMapAsWithout) {
  const Problem whole = call(1, 1, 20000, {.causal = true});
  Problem sample = sample_of(whole, 8, 384);
  EXPECT_EQ(wrong_segments(sample), "");
  EXPECT_EQ(sample.query_length, 8 * 384);
  EXPECT_NEAR(cells_of(sample), cells_of(whole) * 0.2, cells_of(whole) * 0.05);  // not the first or last rows
  EXPECT_EQ(threads_of(sample), 8);
  sample.map = {};
  EXPECT_EQ(threads_of(sample), 8);
}

TEST_F(Sample, OfManyShortCallsIsSomeOfThem) {
  const Problem whole = call(300, 2, 100);
  const Problem sample = sample_of(whole, 8, 384);
  EXPECT_EQ(wrong_segments(sample), "");
  EXPECT_EQ(sample.query_length, 100);
  EXPECT_EQ(sample.heads, 2);
  EXPECT_EQ(sample.batch, 4);
}

// The kernel must compute the sample's rows as it computes them in the whole call.
TEST_F(Sample, KeepsPositionsKeysAndMasks) {
  const Tensor offsets = Tensor::from<Index>({0, 700, 4000}, {3});
  const Tensor mask = [] {
    Tensor all({4000, 4000}, DType::boolean);
    for (Index i = 0; i < 4000; ++i)
      for (Index j = 0; j < 4000; ++j) all.at<bool>(i, j) = (i * 7 + j * 3) % 5 != 0;
    return all;
  }();
  const Problem whole = call(1, 2, 4000,
                             {.causal = true,
                              .window = {.left = 300},
                              .mask = mask.view(),
                              .query_segments = offsets.view(),
                              .key_segments = offsets.view()});
  (void)threads_of(whole);
  const Tensor expected = result_.lse;
  for (float& lse : result_.lse.values<float>()) lse = std::nanf("");
  (void)threads_of(sample_of(whole, 4, 256));
  Index rows = 0;
  for (std::size_t i = 0; i < expected.values<float>().size(); ++i) {
    const float got = result_.lse.values<float>()[i];
    if (std::isnan(got)) continue;
    ++rows;
    EXPECT_NEAR(got, expected.values<float>()[i], 1e-5) << i;
  }
  EXPECT_EQ(rows, 2 * 512);
}

}  // namespace
