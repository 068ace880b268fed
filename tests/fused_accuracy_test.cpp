// Compares the errors of the fused kernel, against f64, with an unfused computation in f32. It runs on the
// instruction set in HEED_ISA.
//
// Single rows are not comparable, because their errors depend on chance. Even the same unfused computation
// with its sums in another order loses more than 1.5 times as much in one row of ten. So each row's error is
// divided by the rounding error that is possible for that row (see below), and bad rows cannot hide behind
// larger numbers. The largest and the root mean square of these are compared.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "attention_support.hpp"
#include "checked_call.hpp"
#include "path_watch.hpp"
#include "support.hpp"
#include "unfused_f32.hpp"

namespace {

using heed::DType;
using heed::Kernel;
using heed::Tensor;
using heed::test::Naive;
using heed::test::why_not_fused;

constexpr double kUnit = 0x1p-24;

// First-order bound on the error of an f32 computation: [2 (D + 3) A + Lk + 8] u sum_j p |v_j|. A is the
// row's largest sum_d |scale q_d k_d|, plus the contributions of bias, ALiBi and softcap.
double bound_of(std::int64_t head_dim, std::int64_t keys, double score_magnitude, double output_magnitude) {
  return (2 * static_cast<double>(head_dim + 3) * score_magnitude + static_cast<double>(keys) + 8) * kUnit *
         output_magnitude;
}

struct Errors {
  double sum_of_squares = 0, largest = 0;
  void add(double error) {
    sum_of_squares += error * error;
    largest = error <= largest ? largest : error;  // keeps NaN
  }
};

// Errors of rows of one dtype, fused and unfused. Rows that the reference computed are only held to its
// rounding; the comparison leaves them out.
struct Comparison {
  Errors fused, unfused;
  std::int64_t rows = 0, fallen_back = 0,
               above = 0;  // rows with more than 1.5 times the unfused error, or one ulp if larger
  bool rounds_weights = false;

  void add(double fused_error, double unfused_error, double bound, double ulp) {
    fused.add(fused_error / bound);
    unfused.add(unfused_error / bound);
    ++rows;
    above += !(fused_error <= 1.5 * std::max(unfused_error, ulp));
  }

  // Expects a mean of at most `most` times the unfused error, and a maximum of at most twice.
  void expect(const std::string& what, double most, double most_of_bound) const {
    const double mean = std::sqrt(fused.sum_of_squares / unfused.sum_of_squares);
    const double largest = fused.largest / unfused.largest;
    EXPECT_TRUE(mean <= most) << what << ": " << mean;
    EXPECT_TRUE(largest <= 2) << what << ": " << largest;
    EXPECT_TRUE(fused.largest <= most_of_bound) << what << ": " << fused.largest << " of the bound";
    const std::string share = std::to_string(static_cast<double>(above) / static_cast<double>(rows));
    EXPECT_GT(rows, fallen_back) << what;
    ::testing::Test::RecordProperty(
        what, "rms " + std::to_string(mean) + ", largest " + std::to_string(largest) + " times unfused; " +
                  std::to_string(fused.largest) + " of the bound; " + share + " of " + std::to_string(rows) +
                  " rows above 1.5 times; " + std::to_string(fallen_back) + " rows by the reference");
  }
};

double ulp_of(double x, int bits) { return std::ldexp(1.0, std::ilogb(x) - bits); }

// Results this small come from weights near 2^-125 of the largest. Below that, weights are 0 in the fused
// kernel.
constexpr double kNegligible = 0x1p-90;

// f16 has no full precision below 2^-14.
double rounding_of(DType dtype, double size) {
  if (dtype == DType::f32) return 0;
  return dtype == DType::bf16 ? 0x1p-8 * size : 0x1p-11 * std::max(size, 0x1p-14);
}
double rounded(float x, DType dtype) {
  if (dtype == DType::bf16) x = heed::to_float(heed::to_bfloat16(x));
  if (dtype == DType::f16) x = heed::to_float(heed::to_float16(x));
  return static_cast<double>(x);
}

// `bound` covers f32 arithmetic and the rounding of the output. The bf16 unit rounds weights to bf16 if the
// output is bf16 too. Where values cancel, that error is far larger than the rounding of the output, the only
// error of an unfused computation. Such rows are only held to the bound.
constexpr double kWeightUnit = 0x1p-9, kCancelled = 0.5;

bool rounds_weights(const heed::AttentionResult& result, const heed::test::RandomCall& call) {
  return heed::test::multiplies_bf16(result.isa) && call.query.dtype() == DType::bf16 &&
         result.output.dtype() == DType::bf16;
}

void compare_rows(const heed::test::RandomCall& call, const Naive& naive, const heed::AttentionResult& result,
                  const heed::test::PathWatch& paths, Comparison& errors) {
  const Tensor& output = result.output;
  const bool rounded_weights = rounds_weights(result, call);
  errors.rounds_weights |= rounded_weights;
  const std::vector<float> unfused = heed::test::unfused_f32(call, naive);
  const DType dtype = output.dtype();
  const Tensor fused = Tensor::copy_of(output, DType::f64);
  std::size_t at = 0;
  for (std::int64_t b = 0; b < naive.batch; ++b)
    for (std::int64_t h = 0; h < naive.heads; ++h)
      for (std::int64_t i = 0; i < naive.queries; ++i) {
        double fused_error = 0, unfused_error = 0, size = 0, magnitude = 0;
        for (std::int64_t c = 0; c < naive.value_dim; ++c, ++at) {
          const auto exact = static_cast<double>(naive.output(b, h, i, c));
          const double error = std::abs(fused.values<double>()[at] - exact);
          fused_error = error <= fused_error ? fused_error : error;
          unfused_error = std::max(unfused_error, std::abs(rounded(unfused[at], dtype) - exact));
          size = std::max(size, std::abs(exact));
          magnitude = std::max(magnitude, static_cast<double>(naive.output_magnitude(b, h, i, c)));
        }
        if (size < kNegligible) continue;
        if (paths.fell_back(b, h, i)) {
          EXPECT_TRUE(fused_error <= rounding_of(dtype, size) + 0x1p-23 * size) << describe(call);
          ++errors.fallen_back;
          continue;
        }
        const auto scores = static_cast<double>(naive.row_magnitude(b, h, i));
        const double rounding = rounding_of(dtype, size);
        const double bound = bound_of(naive.head_dim, naive.keys, scores, magnitude) + rounding;
        if (rounded_weights && size < kCancelled * magnitude)
          EXPECT_TRUE(fused_error <= bound + 2 * kWeightUnit * magnitude) << describe(call);
        else
          errors.add(fused_error, unfused_error, bound, std::max(ulp_of(size, 23), 2 * rounding));
      }
}

void compare_call(const heed::test::RandomCall& call, const Naive& naive, Comparison& errors) {
  heed::test::PathWatch paths;
  const auto result = heed::attention(call.query, call.key, call.value, call.options);
  compare_rows(call, naive, result, paths, errors);
}

constexpr std::array<DType, 3> kDTypes{DType::f32, DType::bf16, DType::f16};

// Errors by dtype of the inputs, for outputs in f32 and in the inputs' dtype.
struct Comparisons {
  std::array<Comparison, 3> in_f32, in_own;
};

void compare_calls(const heed::test::CallLimits& limits, std::uint64_t count, Comparisons& errors) {
  for (std::uint64_t index = 0; index < heed::test::share_of(count); ++index) {
    auto [call, naive] = heed::test::checked_call(20240620, index, limits);
    call.options.dropout = {};
    call.options.need = {};
    call.options.kernel = Kernel::fused;
    naive = heed::test::naive_attention(call.query, call.key, call.value, call.options);
    const auto dtype = static_cast<std::size_t>(
        std::find(kDTypes.begin(), kDTypes.end(), call.query.dtype()) - kDTypes.begin());
    call.options.output_dtype = DType::f32;
    compare_call(call, naive, errors.in_f32[dtype]);
    call.options.output_dtype.reset();
    compare_call(call, naive, errors.in_own[dtype]);
  }
}

TEST(FusedAccuracy, RandomCallsAreAsExactAsUnfusedAttentionInF32) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  heed::test::CallLimits limits;
  limits.dtypes = {DType::f32, DType::f32, DType::f16, DType::bf16};
  Comparisons errors;
  compare_calls(limits, 2000, errors);
  limits.lengths = {48, 97, 193, 200};
  limits.dims = {16, 28, 64, 111};
  limits.batches = limits.kv_heads = limits.groups = {1};
  compare_calls(limits, 30, errors);
  if (!heed::test::makes_all_calls()) GTEST_SKIP() << "a share of the calls is too few to compare means";
  for (std::size_t t = 0; t < kDTypes.size(); ++t) {
    const DType dtype = kDTypes[t];
    const std::string name(heed::name_of(dtype));
    // Measured on rows that the kernel computed itself: f32 1.33, bf16 1.37, f16 1.75 (the plain set; 1.69 on
    // others), and 0.28 of the bound.
    errors.in_f32[t].expect(name + "_in_f32", dtype == DType::f16 ? 1.85 : 1.5, 0.5);
    // Outputs in narrow dtypes show only their own rounding, except where weights are rounded too: 1.06 and
    // 1.35.
    const bool rounds = errors.in_own[t].rounds_weights;
    const double most = dtype == DType::f32 ? 1.5 : rounds ? 1.1 : 1.01;
    errors.in_own[t].expect(name, most, dtype == DType::f32 ? 0.5 : rounds ? 1.5 : 1);
  }
}

Tensor magnitudes(const Tensor& tensor) {
  Tensor copy = Tensor::copy_of(tensor, DType::f64);
  for (double& x : copy.values<double>()) x = std::abs(x);
  return copy;
}

// The inputs of compare_rows and unfused_f32, from the reference kernel in f64. The naive computation in long
// double would take minutes.
Naive reference_of(const Tensor& query, const Tensor& key, const Tensor& value,
                   heed::AttentionOptions options) {
  options.kernel = Kernel::reference;
  options.output_dtype.reset();
  options.need = heed::Need::scores;
  const auto in_f64 = [](const Tensor& tensor) { return Tensor::copy_of(tensor, DType::f64); };
  const auto exact = heed::attention(in_f64(query), in_f64(key), in_f64(value), options);
  options.need = {};
  const auto of_magnitudes = heed::attention(in_f64(query), in_f64(key), magnitudes(value), options);
  options.need = heed::Need::max_score;
  const auto largest = heed::attention(magnitudes(query), magnitudes(key), in_f64(value), options);
  const auto cube = [](const Tensor& tensor, std::int64_t rows, std::int64_t columns) {
    heed::test::Cube c(1, 1, rows, columns);
    std::copy(tensor.values<double>().begin(), tensor.values<double>().end(), c.values.begin());
    return c;
  };
  Naive naive;
  naive.batch = naive.heads = 1;
  naive.queries = query.size(0);
  naive.keys = key.size(0);
  naive.head_dim = query.size(1);
  naive.value_dim = value.size(1);
  naive.output = cube(exact.output, naive.queries, naive.value_dim);
  naive.final_scores = cube(exact.scores, naive.queries, naive.keys);
  naive.output_magnitude = cube(of_magnitudes.output, naive.queries, naive.value_dim);
  naive.row_magnitude = cube(largest.max_score, naive.queries, 1);
  return naive;
}

// The last and the middle rows of 16384, computed by themselves.
TEST(FusedAccuracy, LongSequencesAreAsExactAsUnfusedAttentionInF32) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  if (!heed::test::makes_all_calls()) GTEST_SKIP() << "a share of one call is none";
  constexpr std::int64_t kLength = 16384, kWidth = 64, kRows = 64;
  for (const DType dtype : kDTypes) {
    Comparison errors;
    const Tensor key = heed::test::normal_tensor({kLength, kWidth}, 2, dtype);
    const Tensor value = heed::test::normal_tensor({kLength, kWidth}, 3, dtype);
    for (const std::int64_t first : {kLength / 2, kLength - kRows}) {
      const Tensor query =
          heed::test::normal_tensor({kRows, kWidth}, static_cast<std::uint64_t>(first), dtype);
      heed::test::RandomCall call;
      for (const Tensor* tensor : {&query, &key, &value}) call.memory.push_back(Tensor::copy_of(*tensor));
      call.query = call.memory[0].mutable_view();
      call.key = call.memory[1].mutable_view();
      call.value = call.memory[2].mutable_view();
      call.options = {
          .causal = true, .query_offset = first, .output_dtype = DType::f32, .kernel = Kernel::fused};
      compare_call(call, reference_of(query, key, value, call.options), errors);
    }
    // Measured: 1.15 on the plain set, 0.91 on others; 1e-4 of the bound, which grows with the number of
    // keys.
    errors.expect(std::string(heed::name_of(dtype)) + "_in_f32", 1.3, 1e-3);
  }
}

}  // namespace
