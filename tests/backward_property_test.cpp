// Compares the gradients of random calls with those from whole matrices: see backward_call.hpp.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "compare_gradients.hpp"
#include "describe_call.hpp"
#include "expect_tight.hpp"
#include "support.hpp"

namespace {

using heed::AttentionGradients;
using heed::Kernel;
using heed::test::BackwardCall;

constexpr std::uint64_t kSeed = 20240702;
constexpr std::uint64_t kCalls = 3000;

TEST(BackwardProperty, GradientsOfRandomCallsAgreeWithTheDefinitions) {
  heed::test::RowTally tally;
  for (std::uint64_t index = 0; index < heed::test::share_of(kCalls); ++index) {
    BackwardCall made = heed::test::backward_call(kSeed, index);
    made.call.options.kernel = Kernel::reference;
    const AttentionGradients gradients =
        heed::attention_backward(made.inputs, made.call.options, made.request);
    ASSERT_EQ(gradients.kernel, Kernel::reference);
    ASSERT_EQ(heed::test::compare_gradients(made, gradients, {}, tally), "") << describe(made.call);
  }
  heed::test::expect_tight(tally);
}

}  // namespace
