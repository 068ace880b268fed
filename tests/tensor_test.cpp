#include "heed/tensor.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "heed/error.hpp"
#include "support.hpp"

namespace {

using heed::Dims;
using heed::DType;
using heed::Tensor;
using heed::TensorView;

using heed::test::message_of;

TEST(Tensor, IsAlignedToACacheLineAndZeroed) {
  const Tensor tensor({3, 5}, DType::f64);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.view().data()) % 64, 0u);
  for (double value : tensor.values<double>()) EXPECT_EQ(value, 0.0);
}

TEST(Tensor, CopiesItsElementsAndMovesItsMemory) {
  Tensor first = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
  Tensor second = first;
  second.at<float>(0, 0) = 9;
  EXPECT_EQ(first.at<float>(0, 0), 1);
  const Tensor third = std::move(second);
  EXPECT_EQ(third.at<float>(0, 0), 9);
  EXPECT_EQ(second.shape(), Dims{0});  // NOLINT(bugprone-use-after-move): documented to be empty
}

TEST(Tensor, ASizeThatOverflowsIsAnErrorAndNotASmallAllocation) {
  const std::int64_t big = std::int64_t{1} << 62;
  EXPECT_EQ(message_of([&] {
              Tensor({big, 4});
            }),
            "shape [4611686018427387904, 4] has more elements than 64 bits can count");
  EXPECT_EQ(message_of([&] { Tensor({big}, DType::f64); }),
            "shape [4611686018427387904] of f64 has more bytes than 64 bits can count");
  EXPECT_EQ(message_of([] { Tensor({2, -1}); }), "shape [2, -1] has a negative size");
  EXPECT_EQ(message_of([&] {
              Tensor({0, big, big});
            }),
            "shape [0, 4611686018427387904, 4611686018427387904] has more elements than 64 bits can count");
}

template <class Owner>
concept GivesItsValues = requires(Owner&& owner) {
  std::forward<Owner>(owner).template values<float>();
};

TEST(Tensor, GivesNoValuesOfATemporary) {
  EXPECT_TRUE(GivesItsValues<Tensor&>);
  EXPECT_TRUE(GivesItsValues<const Tensor&>);
  EXPECT_FALSE(GivesItsValues<Tensor>);
  EXPECT_FALSE(GivesItsValues<const Tensor>);
}

TEST(Tensor, AnEmptyTensorHasNoElements) {
  const Tensor tensor({2, 0, 3});
  EXPECT_EQ(tensor.count(), 0);
  EXPECT_TRUE(tensor.values<float>().empty());
}

TEST(View, StridesOfZeroAndBelowReadTheSameMemory) {
  const Tensor base = Tensor::from<std::int32_t>({1, 2, 3}, {3});
  const TensorView repeated(base.view().data(), DType::i32, {2, 3}, {0, 1});
  const TensorView reversed(base.view().data_as<std::int32_t>() + 2, {3}, {-1});
  EXPECT_EQ(repeated.at<std::int32_t>(1, 2), 3);
  EXPECT_EQ(Tensor::copy_of(reversed).at<std::int32_t>(0), 3);
  EXPECT_EQ(Tensor::copy_of(reversed).at<std::int32_t>(2), 1);
}

TEST(View, ReshapesOnlyWhereNoCopyIsNeeded) {
  const Tensor base = Tensor::from<std::int32_t>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {2, 6});
  const TensorView heads = base.view().reshape({2, 2, 3});
  EXPECT_EQ(heads.at<std::int32_t>(1, 1, 2), 11);
  // Columns 0 to 3 of each row: rows have gaps between them, but columns can be split.
  const TensorView split = base.view().narrow(1, 0, 4).reshape({2, 2, 2});
  EXPECT_EQ(split.at<std::int32_t>(1, 1, 1), 9);
  EXPECT_EQ(message_of([&] { (void)base.view().narrow(1, 0, 4).reshape({8}); }),
            "shape [2, 4] with strides [6, 1] cannot become [8] without a copy");
  EXPECT_EQ(message_of([&] { (void)base.view().reshape({5}); }),
            "shape [2, 6] cannot become [5]: the numbers of elements differ");
}

TEST(View, ExpandsAsNumPyBroadcasts) {
  const Tensor column = Tensor::from<float>({1, 2}, {2, 1});
  const TensorView wide = column.view().expand({4, 2, 3});
  EXPECT_EQ(wide.at<float>(3, 1, 2), 2);
  EXPECT_EQ(wide.strides(), (Dims{0, 1, 0}));
  EXPECT_EQ(message_of([&] {
              (void)column.view().expand({3, 3});
            }),
            "shape [2, 1] does not broadcast to [3, 3]");
}

TEST(View, SelectsNarrowsPermutesAndUnsqueezes) {
  const Tensor base = Tensor::from<std::int32_t>({0, 1, 2, 3, 4, 5}, {2, 3});
  EXPECT_EQ(base.view().select(0, 1).at<std::int32_t>(2), 5);
  EXPECT_EQ(base.view().narrow(-1, 1, 2).at<std::int32_t>(1, 0), 4);
  EXPECT_EQ(base.view().transpose(0, 1).at<std::int32_t>(2, 1), 5);
  EXPECT_EQ(base.view().permute({1, 0}).shape(), (Dims{3, 2}));
  EXPECT_EQ(base.view().unsqueeze(0).shape(), (Dims{1, 2, 3}));
  EXPECT_EQ(base.view().unsqueeze(-1).shape(), (Dims{2, 3, 1}));
}

TEST(View, AWrongAccessIsAnErrorThatSaysWhy) {
  const Tensor base = Tensor::from<float>({1, 2}, {2});
  EXPECT_EQ(message_of([&] { (void)base.at<float>(2); }), "index [2] is out of range for shape [2]");
  EXPECT_EQ(message_of([&] { (void)base.at<double>(0); }), "a tensor of f32 was read as f64");
  EXPECT_EQ(message_of([&] { (void)base.size(1); }), "axis 1 is out of range for shape [2]");
  EXPECT_EQ(message_of([&] { (void)base.view().select(0, 2); }),
            "elements 2 to 2 + 1 of axis 0 are out of range for shape [2]");
  EXPECT_EQ(message_of([&] { (void)base.view().permute({0, 0}); }), "permute got 2 axes for shape [2]");
  EXPECT_EQ(message_of([&] {
              (void)base.view().unsqueeze(0).permute({0, 0});
            }),
            "permute names axis 0 twice");
  EXPECT_EQ(message_of([&] { TensorView(static_cast<const float*>(nullptr), {2}); }),
            "a view of shape [2] has a null data pointer");
  EXPECT_EQ(message_of([&] {
              TensorView(base.view().data(), DType::f32, {2}, {1, 1});
            }),
            "strides [1, 1] do not match shape [2]: one stride per axis is expected");
  for (const int wrong : {8, 77, 255}) {
    const auto dtype = static_cast<DType>(wrong);
    const std::string message = "dtype is " + std::to_string(wrong) + "; 0 to 7 is expected";
    EXPECT_EQ(message_of([&] { TensorView(base.view().data(), dtype, {1}); }), message);
    EXPECT_EQ(message_of([&] { Tensor({1}, dtype); }), message);
    EXPECT_EQ(message_of([&] { (void)Tensor::copy_of(base, dtype); }), message);
    EXPECT_EQ(heed::name_of(dtype), "");
    EXPECT_EQ(heed::size_of(dtype), 0U);
  }
  EXPECT_EQ(message_of([] { Dims({1, 1, 1, 1, 1, 1}); }), "a shape has 6 axes; at most 5 are supported");
}

TEST(Copy, ConvertsAsDocumented) {
  const Tensor floats = Tensor::from<double>({1.9, -1.9, std::nan(""), 1e300, -1e300, 0.0}, {6});
  const Tensor ints = Tensor::copy_of(floats, DType::i32);
  const std::int32_t low = std::numeric_limits<std::int32_t>::min();
  const std::int32_t high = std::numeric_limits<std::int32_t>::max();
  const std::int32_t expected[] = {1, -1, 0, high, low, 0};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(ints.at<std::int32_t>(i), expected[i]) << i;
  EXPECT_EQ(Tensor::copy_of(floats, DType::boolean).at<bool>(2), true);
  EXPECT_EQ(Tensor::copy_of(floats, DType::boolean).at<bool>(5), false);
  EXPECT_EQ(Tensor::copy_of(floats, DType::u8).at<std::uint8_t>(3), 255);
}

TEST(Copy, RoundsIntegersToSixteenBitsInOneStep) {
  // One above a tie of bf16; as a double it would be the tie itself, which goes down.
  const std::int64_t above = (std::int64_t{1} << 56) + (std::int64_t{1} << 48) + 1;
  const Tensor ints = Tensor::from<std::int64_t>({above, -above, above - 1, INT64_MIN, INT64_MAX}, {5});
  const Tensor rounded = Tensor::copy_of(ints, DType::bf16);
  const float expected[] = {0x1.02p56f, -0x1.02p56f, 0x1p56f, -0x1p63f, 0x1p63f};
  for (int i = 0; i < 5; ++i) EXPECT_EQ(heed::to_float(rounded.at<heed::BFloat16>(i)), expected[i]) << i;
}

TEST(Copy, MakesEveryTrueByteOne) {
  const std::uint8_t bytes[] = {0, 1, 2, 255};
  const TensorView view(static_cast<const void*>(bytes), DType::boolean, {4});
  const Tensor copy = Tensor::copy_of(view);
  const auto* out = static_cast<const std::uint8_t*>(copy.view().data());
  EXPECT_EQ(out[0], 0);
  EXPECT_EQ(out[2], 1);
  EXPECT_EQ(out[3], 1);
}

// The narrow formats hold every value of f32 with coarser steps. By definition, rounding takes the nearer of
// the two neighbours, by distance in double, and the even one for a tie.
template <class Narrow, class Make>
void expect_nearest(Make make, float from, float to, float step) {
  for (float x = from; x < to; x += step) {
    const Narrow got = make(x);
    const double distance = std::abs(static_cast<double>(heed::to_float(got)) - x);
    for (int neighbour : {-1, 1}) {
      const Narrow other{static_cast<std::uint16_t>(got.bits + neighbour)};
      const float other_value = heed::to_float(other);
      if (std::isnan(other_value) || std::signbit(other_value) != std::signbit(x)) continue;
      const double other_distance = std::abs(static_cast<double>(other_value) - x);
      ASSERT_LE(distance, other_distance) << x;
      if (distance == other_distance) {
        ASSERT_EQ(got.bits % 2, 0) << x;
      }
    }
  }
}

TEST(Float16, RoundsToTheNearestEven) {
  const auto make = [](float x) { return heed::to_float16(x); };
  expect_nearest<heed::Float16>(make, 1e-8f, 1e-4f, 3.7e-8f);  // subnormal range and its limits
  expect_nearest<heed::Float16>(make, 0.9f, 2.1f, 1.1e-5f);
  expect_nearest<heed::Float16>(make, 60000.f, 65000.f, 0.25f);
  EXPECT_EQ(heed::to_float16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(heed::to_float16(65520.f).bits, 0x7c00);
  EXPECT_EQ(heed::to_float16(-1e30f).bits, 0xfc00);
  EXPECT_EQ(heed::to_float16(0x1p-25f).bits, 0);
  EXPECT_EQ(heed::to_float16(std::nextafter(0x1p-25f, 1.f)).bits, 1);
  EXPECT_TRUE(std::isnan(heed::to_float(heed::to_float16(std::nanf("")))));
}

TEST(Float16, EveryValueSurvivesTheWayThroughFloat) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const heed::Float16 value{static_cast<std::uint16_t>(bits)};
    const float wide = heed::to_float(value);
    if (std::isnan(wide)) continue;
    ASSERT_EQ(heed::to_float16(wide).bits, value.bits) << bits;
    const heed::BFloat16 brain{static_cast<std::uint16_t>(bits)};
    if (std::isnan(heed::to_float(brain))) continue;
    ASSERT_EQ(heed::to_bfloat16(heed::to_float(brain)).bits, brain.bits);
  }
}

TEST(BFloat16, RoundsToTheNearestEvenInOneStep) {
  const auto make = [](float x) { return heed::to_bfloat16(x); };
  expect_nearest<heed::BFloat16>(make, 0.9f, 2.1f, 1.1e-5f);
  EXPECT_EQ(heed::to_bfloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
  // Slightly above a tie of bf16, but exactly a tie once rounded to float. One rounding goes up, two would
  // not.
  EXPECT_EQ(heed::to_bfloat16(1.0 + 0x1p-8 + 0x1p-40).bits, 0x3f81);
  EXPECT_EQ(heed::to_bfloat16(1.0 + 0x1p-8).bits, 0x3f80);
  EXPECT_TRUE(std::isnan(heed::to_float(heed::to_bfloat16(std::numeric_limits<float>::signaling_NaN()))));
}

TEST(DType, NamesGoBothWays) {
  for (int i = 0; i < 8; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(heed::dtype_named(heed::name_of(dtype)), dtype);
  }
  EXPECT_FALSE(heed::dtype_named("f8").has_value());
}

}  // namespace
