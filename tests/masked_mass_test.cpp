// The masked mass, 1 - exp(lse with masks - lse without). It is tested on rows of random calls on every
// target, and on rows that lose nothing or everything.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "attention_support.hpp"
#include "checked_call.hpp"
#include "each_target.hpp"
#include "fused_calls.hpp"
#include "random_mask.hpp"
#include "support.hpp"

namespace {

using heed::attention;
using heed::AttentionOptions;
using heed::Kernel;
using heed::Need;
using heed::SparseMask;
using heed::Tensor;
using heed::test::Naive;

constexpr std::uint64_t kSeed = 20261124;

struct MaskedCall {
  heed::test::RandomCall call;
  Naive masked, unmasked;  // from the definitions, with the mask as booleans and without masks
};

MaskedCall masked_call(std::uint64_t index, heed::test::CallLimits limits) {
  limits.poison = false;
  MaskedCall made{heed::test::random_call(kSeed, index, limits), {}, {}};
  heed::test::RandomCall& call = made.call;
  heed::test::Draw draw(kSeed ^ 0xd0, index);
  const int rank = call.query.rank();
  const std::int64_t heads = rank > 2 ? call.query.size(-3) : 1, kv_heads = rank > 2 ? call.key.size(-3) : 1;
  const heed::test::RandomMask mask = heed::test::MaskMaker(draw, rank > 3 ? call.query.size(0) : 1, heads,
                                                            kv_heads, call.query.size(-2), call.key.size(-2))
                                          .make();
  AttentionOptions options = call.options;
  options.mask.reset();
  options.window = {};
  made.unmasked = heed::test::naive_attention(call.query, call.key, call.value, options);
  call.options.mask.reset();
  options = call.options;
  options.mask = mask.dense;
  made.masked = heed::test::naive_attention(call.query, call.key, call.value, options);
  call.options.sparse_mask = mask.mask;
  call.options.need = Need::masked_mass;
  return made;
}

// The relative error of a sum of weights has two parts: the errors of its scores, at most (D + 8) roundings
// of f32, and its own rounding.
std::string compare(const MaskedCall& made, const Tensor& masked_mass) {
  const Naive& n = made.masked;
  const Tensor copy = Tensor::copy_of(masked_mass, heed::DType::f64);
  const auto got = copy.values<double>();
  std::size_t at = 0;
  for (std::int64_t b = 0; b < n.batch; ++b)
    for (std::int64_t h = 0; h < n.heads; ++h)
      for (std::int64_t i = 0; i < n.queries; ++i, ++at) {
        const double whole = static_cast<double>(made.unmasked.lse(b, h, i));
        const double expected =
            std::isinf(whole) && whole < 0 ? 0 : -std::expm1(static_cast<double>(n.lse(b, h, i)) - whole);
        const double size =
            static_cast<double>(made.unmasked.row_magnitude(b, h, i) + n.row_magnitude(b, h, i));
        const double allowed = 1e-6 + 0x1p-23 * static_cast<double>(n.head_dim + 8) * size;
        if (!(std::abs(got[at] - expected) <= allowed))
          return "masked_mass[" + std::to_string(at) + "] is " + std::to_string(got[at]) + ", not " +
                 std::to_string(expected) + " within " + std::to_string(allowed);
      }
  return "";
}

TEST(MaskedMass, AgreesWithTheDefinitionOnEveryTarget) {
  const heed::test::EachTarget targets;
  std::int64_t rows = 0;
  for (const auto& [limits, count] : {std::pair{heed::test::small_calls(), 600},
                                      {heed::test::tile_calls(), 40},
                                      {heed::test::decoding_calls(), 60}})
    for (std::uint64_t index = 0; index < heed::test::share_of(static_cast<std::uint64_t>(count)); ++index) {
      MaskedCall made = masked_call(index, limits);
      for (const std::string& target : targets.available()) {
        heed::set_target(target);
        made.call.options.kernel = Kernel::fused;
        const auto& call = made.call;
        ASSERT_EQ(compare(made, attention(call.query, call.key, call.value, call.options).masked_mass), "")
            << target << ": " << describe(call);
      }
      made.call.options.kernel = Kernel::reference;
      const auto& call = made.call;
      ASSERT_EQ(compare(made, attention(call.query, call.key, call.value, call.options).masked_mass), "")
          << describe(call);
      rows += made.masked.batch * made.masked.heads * made.masked.queries;
    }
  EXPECT_GT(rows, static_cast<std::int64_t>(heed::test::share_of(10000)));
}

class MaskedRows : public ::testing::TestWithParam<Kernel> {
 protected:
  double masked_mass(AttentionOptions options, std::int64_t row = 1) const {
    options.need = Need::masked_mass;
    options.kernel = GetParam();
    const auto result = attention(query_, key_, value_, options);
    return static_cast<double>(result.masked_mass.at<float>(row));
  }
  Tensor query_ = Tensor::from<float>({1, 1, 1}, {3, 1});
  Tensor key_ = Tensor::from<float>({1, 1, 1, 1}, {4, 1});
  Tensor value_ = Tensor::from<float>({1, 2, 3, 4}, {4, 1});
};

TEST_P(MaskedRows, LoseTheShareOfForbiddenKeys) {
  EXPECT_FLOAT_EQ(static_cast<float>(masked_mass({.sparse_mask = heed::masks::prefix_lm(1, 3, 4)})), 0.5F);
  EXPECT_EQ(masked_mass({.sparse_mask = heed::masks::prefix_lm(4, 3, 4)}), 0);
}

TEST_P(MaskedRows, LoseToWindowAndBooleanAlike) {
  const Tensor mask = Tensor::from<bool>({true, false, false, false}, {4});
  EXPECT_FLOAT_EQ(static_cast<float>(masked_mass({.mask = mask})), 0.75F);
  EXPECT_FLOAT_EQ(static_cast<float>(masked_mass({.window = {0, 0}})), 0.75F);
}

TEST_P(MaskedRows, LoseNothingToCausalityAndLengths) {
  const Tensor length = Tensor::from<std::int64_t>({2}, {1});
  EXPECT_EQ(masked_mass({.causal = true}), 0);
  EXPECT_EQ(masked_mass({.kv_lengths = length}), 0);
}

TEST_P(MaskedRows, LoseEverythingWhereNoKeyIsLeftAndNothingWhereNoneWas) {
  const SparseMask none = SparseMask::slices({}, 3, 4);
  const Tensor empty = Tensor::from<std::int64_t>({0}, {1});
  EXPECT_EQ(masked_mass({.sparse_mask = none}), 1);
  EXPECT_EQ(masked_mass({.sparse_mask = none, .kv_lengths = empty}), 0);
}

TEST_P(MaskedRows, CountASinkAmongWhatIsKept) {
  const Tensor sinks = Tensor::from<float>({1}, {1}), far = Tensor::from<float>({700}, {1});
  const SparseMask none = SparseMask::slices({}, 3, 4);
  // Four keys and the sink have score 1 each; only the sink is left.
  EXPECT_FLOAT_EQ(static_cast<float>(masked_mass({.sparse_mask = none, .sinks = sinks})), 0.8F);
  EXPECT_FLOAT_EQ(static_cast<float>(masked_mass({.mask = Tensor({4}, heed::DType::boolean), .sinks = far})),
                  0.0F);
}

TEST_P(MaskedRows, AreNaNWhereAForbiddenScoreIs) {
  Tensor key = key_;
  key.at<float>(3, 0) = std::numeric_limits<float>::quiet_NaN();
  const SparseMask mask = heed::masks::sliding_window(-1, 0, 3, 4);
  const auto result =
      attention(query_, key, value_, {.sparse_mask = mask, .need = Need::masked_mass, .kernel = GetParam()});
  EXPECT_TRUE(std::isnan(result.masked_mass.at<float>(1)));
  EXPECT_FLOAT_EQ(result.output.at<float>(1, 0), 1.5F);
}

INSTANTIATE_TEST_SUITE_P(Kernels, MaskedRows, ::testing::Values(Kernel::reference, Kernel::fused),
                         [](const auto& kernel) {
                           return kernel.param == Kernel::fused ? "Fused" : "Reference";
                         });

}  // namespace
