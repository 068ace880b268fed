// Compares the fused kernel's exponential and tanh with f64, on every float where that is feasible. Runs on
// the instruction set in HEED_ISA.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "attention_support.hpp"
#include "kernel_unit/units.hpp"
#include "support.hpp"

namespace {

using heed::Tensor;
using heed::test::VectorMath;

constexpr std::size_t kBlock = 4096;

// The library itself chooses the unit, as in calls.
class VectorMathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = heed::test::why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
    const Tensor one({1, 1});
    const std::string isa(heed::attention(one, one, one, {.kernel = heed::Kernel::fused}).isa);
    math_ = heed::test::kernel_unit(isa).math;
  }
  VectorMath math_{};
};

// y as the nearest integer n and the rest. Adding 1.5 * 2^52 leaves n in the low bits. (std::floor is a
// function call if the compiler may not use SSE4, and the loops below cover half a billion floats.)
struct Split {
  std::uint64_t n;
  double rest;
};
Split split(double y) {
  const double t = y + 0x1.8p52;
  return {std::bit_cast<std::uint64_t>(t), y - (t - 0x1.8p52)};
}
double power_of_two(std::uint64_t n) { return std::bit_cast<double>((n + 1023) << 52); }

// 2^r for |r| <= 1/2: the Taylor series of exp(r log 2) up to r^14, with a remainder below 1e-19.
double exp2_of_rest(double r) {
  const double z = r * 0.693147180559945309417;
  double sum = 1;
#pragma GCC unroll 14
  for (int k = 14; k >= 1; --k) sum = 1 + sum * z * (1.0 / k);
  return sum;
}

struct Errors {
  double largest = 0;  // in ulp
  bool holds = true;   // all errors are within the bound, and none is NaN
};

// Compares x [kBlock] with the unit's results. Errors are in ulp of the exact result, gain * 2^x, scaled to
// [gain / sqrt(2), gain * sqrt(2)], which is within [512, 2048).
void compare_exp2(const float* x, const float* got, double gain, double bound, Errors& errors) {
  std::array<double, kBlock> error;
  for (std::size_t i = 0; i < error.size(); ++i) {
    const Split y = split(static_cast<double>(x[i]));
    const double exact = gain * exp2_of_rest(y.rest);
    const double per_ulp = exact < 1024 ? 0x1p14 : 0x1p13;
    error[i] = std::abs(static_cast<double>(got[i]) * power_of_two(-y.n) - exact) * per_ulp;
  }
  for (const double e : error) {
    errors.largest = e > errors.largest ? e : errors.largest;
    errors.holds &= e <= bound;
  }
}

// Calls visit(block) with every `step`-th float from `low` to `high` > low >= 0, and with their negatives.
template <class Visit>
void for_blocks(float low, float high, std::uint32_t step, Visit visit) {
  std::vector<float> block(kBlock);
  const auto last = std::bit_cast<std::uint32_t>(high);
  for (const std::uint32_t sign : {0u, 0x80000000u}) {
    for (std::uint64_t bits = std::bit_cast<std::uint32_t>(low); bits <= last;) {
      for (float& x : block) {
        x = std::bit_cast<float>(static_cast<std::uint32_t>(bits < last ? bits : last) | sign);
        bits += step;
      }
      visit(block.data());
    }
  }
}

// Every float from -125 to 100. Below 2^-25 in magnitude, a1 r (519 * 2^-25) is less than half an ulp of a0
// (748.9). The result is a0 for any such r, so only every 4099th is tried.
TEST_F(VectorMathTest, Exp2ErrsByLessThanTwoUlpOnEveryFloatOfItsRange) {
  const auto share = static_cast<std::uint32_t>(0x100000000 / heed::test::share_of(0x100000000));
  std::vector<float> got(kBlock);
  Errors errors;
  const auto check = [&](const float* x) {
    math_.exp2_bounded(x, kBlock, 0, got.data());
    compare_exp2(x, got.data(), math_.gain, 2, errors);
  };
  for_blocks(0, 0x1p-25f, 4099 * share, check);
  for_blocks(0x1p-25f, 100, share, check);
  std::vector<float> block(kBlock);
  for (std::uint32_t bits = std::bit_cast<std::uint32_t>(-100.0f);
       bits <= std::bit_cast<std::uint32_t>(-125.0f);) {
    for (float& x : block) {
      x = std::bit_cast<float>(std::min(bits, std::bit_cast<std::uint32_t>(-125.0f)));
      bits += share;
    }
    check(block.data());
  }
  RecordProperty("largest_error_in_ulp", std::to_string(errors.largest));
  EXPECT_TRUE(errors.holds) << "up to " << errors.largest << " ulp, or NaN";
}

TEST_F(VectorMathTest, TheOracleOfExp2IsRight) {
  std::mt19937_64 engine(20240613);
  std::uniform_real_distribution<double> number(-125, 100);
  for (int i = 0; i < 100000; ++i) {
    const double y = number(engine);
    const double exact = std::exp2(y);
    const double ours = exp2_of_rest(split(y).rest) * power_of_two(split(y).n);
    ASSERT_TRUE(std::abs(ours - exact) <= 0x1p-50 * exact) << y;
  }
}

// A shift multiplies the result by a power of two exactly.
TEST_F(VectorMathTest, AShiftScalesExp2Exactly) {
  std::mt19937_64 engine(20240614);
  std::vector<float> x(kBlock), moved(kBlock), got(kBlock), shifted(kBlock), flushed(kBlock);
  for (int round = 0; round < 400; ++round) {
    const auto shift = static_cast<float>(static_cast<std::int64_t>(engine() % 0x200000) - 0x100000);
    for (std::size_t i = 0; i < x.size(); ++i) {
      // Multiples of 1/8 are exact after any shift up to 2^20.
      x[i] = static_cast<float>(static_cast<std::int64_t>(engine() % 1801) - 1000) / 8;
      moved[i] = x[i] + shift;
    }
    math_.exp2_bounded(x.data(), kBlock, 0, got.data());
    math_.exp2_bounded(moved.data(), kBlock, shift, shifted.data());
    math_.exp2_flushed(moved.data(), kBlock, shift, flushed.data());
    ASSERT_EQ(got, shifted) << shift;
    ASSERT_EQ(got, flushed) << shift;
  }
}

TEST_F(VectorMathTest, Exp2IsZeroBelowItsRange) {
  std::vector<float> x(kBlock), got(kBlock);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = -125.0f - 0x1p-17f - 500.0f * static_cast<float>(i);
  x[1] = -0x1p21f;
  math_.exp2_flushed(x.data(), kBlock, 0, got.data());
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(got[i], 0.0f) << x[i];
}

// Below 5/8 a polynomial with 0.76 ulp. Beyond, 1 - 2 / (e^2|x| + 1) exceeds 0.55, and at most 0.45 is
// subtracted. The exponential's 2 ulp and the roundings of sum and quotient are at most two ulp of that. The
// difference adds half an ulp.
TEST_F(VectorMathTest, TanhErrsByLessThanTwoAndAHalfUlp) {
  const auto share = static_cast<std::uint32_t>(0x100000000 / heed::test::share_of(0x100000000));
  std::vector<float> got(kBlock);
  Errors errors;
  const auto check = [&](const float* x) {
    math_.tanh(x, kBlock, got.data());
    for (std::size_t i = 0; i < kBlock; ++i) {
      const double exact = std::tanh(static_cast<double>(x[i]));
      const double ulp = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
      const double error = std::abs(static_cast<double>(got[i]) - exact) / ulp;
      errors.largest = error > errors.largest ? error : errors.largest;
      errors.holds &= error <= 2.5;
    }
  };
  for_blocks(0x1p-126f, 0x1p-12f, 10007 * share, check);
  for_blocks(0x1p-12f, 20, 31 * share, check);
  for_blocks(20, 0x1.fffffep127f, 10007 * share, check);
  RecordProperty("largest_error_in_ulp", std::to_string(errors.largest));
  EXPECT_TRUE(errors.holds) << "up to " << errors.largest << " ulp, or NaN";
}

TEST_F(VectorMathTest, BitsOfAComparisonAreItsLanesInOrder) {
  ASSERT_LE(math_.lanes, 16);
  const std::vector<float> zeros(16);
  for (std::uint32_t bits = 0; bits < 1u << math_.lanes; ++bits) {
    std::vector<float> x(16, -1.0f);
    for (std::uint32_t lane = 0; lane < 16; ++lane)
      if ((bits >> lane & 1) != 0) x[lane] = 0x1p-126f;
    ASSERT_EQ(math_.bits_of_greater(x.data(), zeros.data()), bits);
  }
}

// Rows without bits, with all, with the first and the last of each word, and random ones.
TEST_F(VectorMathTest, BitsOfRowsAreTakenInOrderWithTheNumbersAtTheirPlaces) {
  if (math_.take_row_bits == nullptr) GTEST_SKIP() << "this unit gathers one candidate after the other";
  constexpr std::size_t kRows = 16, kWords = 3, kStride = 200;
  std::mt19937_64 random(7);
  std::vector<float> numbers(kRows * kStride);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::uint64_t> words(kRows * kWords);
    for (std::uint64_t& word : words) {
      const std::uint64_t kind = random() % 6;
      word = kind == 0   ? 0
             : kind == 1 ? ~std::uint64_t{0}
             : kind == 2 ? std::uint64_t{1} << 63
             : kind == 3 ? 1
                         : random() & random() & random();
    }
    const std::vector<heed::test::TakenBit> taken =
        math_.take_row_bits(words.data(), numbers.data(), static_cast<std::int32_t>(kStride));
    std::size_t steps = 0;
    for (std::size_t row = 0; row < kRows; ++row) {
      std::size_t step = 0;
      for (std::size_t bit = 0; bit < 64 * kWords; ++bit) {
        if ((words[row * kWords + bit / 64] >> bit % 64 & 1) == 0) continue;
        ASSERT_LT(step * kRows + row, taken.size());
        const heed::test::TakenBit& got = taken[step++ * kRows + row];
        ASSERT_EQ(got.place, static_cast<std::int32_t>(bit)) << "row " << row;
        ASSERT_EQ(got.number, numbers[row * kStride + bit]) << "row " << row;
      }
      steps = std::max(steps, step);
      for (; step * kRows < taken.size(); ++step)
        ASSERT_EQ(taken[step * kRows + row].number, -1) << "row " << row;
    }
    ASSERT_EQ(taken.size(), steps * kRows);
  }
}

TEST_F(VectorMathTest, BitsOfNonzeroWordsAreThoseOfEightInOrder) {
  for (std::uint64_t bits = 0; bits < 256; ++bits)
    for (const std::uint64_t word : {std::uint64_t{1}, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
      std::array<std::uint64_t, 8> words{};
      for (std::size_t i = 0; i < 8; ++i) words[i] = (bits >> i & 1) != 0 ? word : 0;
      ASSERT_EQ(math_.bits_of_nonzero(words.data()), bits) << word;
    }
}

}  // namespace
