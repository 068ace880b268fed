// The product of matrix tiles, on the target in HEED_ISA, compared bit for bit with the definition of
// TDPBF16PS in Intel's manual. So the instruction and its emulation agree.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "attention_support.hpp"
#include "kernel_unit/units.hpp"

namespace {

constexpr std::size_t kSide = 16, kDepth = 32;

struct Tiles {
  alignas(64) std::array<std::uint16_t, kSide * kDepth> a, b;
  alignas(64) std::array<float, kSide * kSide> c;
};

float from_bf16(std::uint16_t x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }

// Subnormal numbers become 0.
float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x; }

// Sums the even and the odd products separately from 0, then adds both sums, then the previous result.
std::array<float, kSide * kSide> defined_product(const Tiles& tiles) {
  std::array<float, kSide * kSide> c{};
  for (std::size_t m = 0; m < kSide; ++m)
    for (std::size_t n = 0; n < kSide; ++n) {
      std::array<float, 2> sums{};
      for (std::size_t k = 0; k < kDepth; ++k) {
        const float a = flushed(from_bf16(tiles.a[m * kDepth + k]));
        const float b = flushed(from_bf16(tiles.b[(k / 2 * kSide + n) * 2 + k % 2]));
        sums[k % 2] = flushed(std::fma(a, b, sums[k % 2]));
      }
      c[m * kSide + n] = flushed(flushed(tiles.c[m * kSide + n]) + flushed(sums[0] + sums[1]));
    }
  return c;
}

// bf16 numbers of all exponents from `low` to `high`.
std::uint16_t number(std::mt19937_64& random, std::uint64_t low, std::uint64_t high) {
  const std::uint64_t exponent = low + random() % (high - low + 1);
  return static_cast<std::uint16_t>((random() & 0x807F) | exponent << 7);
}

void expect_defined(const Tiles& tiles, const heed::test::KernelUnit& unit) {
  Tiles got = tiles;
  unit.multiply_tiles(got.a.data(), got.b.data(), got.c.data());
  const std::array<float, kSide* kSide> expected = defined_product(tiles);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i])) {
      ASSERT_TRUE(std::isnan(got.c[i])) << i;
      continue;
    }
    ASSERT_EQ(std::bit_cast<std::uint32_t>(expected[i]), std::bit_cast<std::uint32_t>(got.c[i]))
        << i << ": " << got.c[i] << ", not " << expected[i];
  }
}

TEST(MatrixTiles, MultiplyAsTheManualDefines) {
  if (const std::string reason = heed::test::why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  const heed::Tensor one({1, 1});
  const heed::test::KernelUnit unit =
      heed::test::kernel_unit(heed::attention(one, one, one, {.kernel = heed::Kernel::fused}).isa);
  ASSERT_NE(unit.multiply_tiles, nullptr);
  std::mt19937_64 random(1);
  // Exponents near 1, where sums round; small ones, with subnormal products; all, with infinities and NaN.
  for (const auto& [low, high] : {std::pair<std::uint64_t, std::uint64_t>{120, 130}, {0, 80}, {0, 255}})
    for (int repeat = 0; repeat < 200; ++repeat) {
      SCOPED_TRACE(::testing::Message() << "exponents from " << low << " to " << high << ", " << repeat);
      Tiles tiles;
      for (std::uint16_t& x : tiles.a) x = number(random, low, high);
      for (std::uint16_t& x : tiles.b) x = number(random, low, high);
      for (float& x : tiles.c) x = from_bf16(number(random, low, high)) * 1.0001F;
      expect_defined(tiles, unit);
    }
}

}  // namespace
