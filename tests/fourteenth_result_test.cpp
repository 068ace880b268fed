// A new result, in a build of its own. tests/CMakeLists.txt adds one member and one line to the table of
// results. Memory, binding and checks then handle it, with no other source changed.
#include <gtest/gtest.h>

#include <string>

#include "attention/check/checks.hpp"
#include "attention/check/overlap.hpp"
#include "attention/check/results.hpp"
#include "heed/attention/attention.hpp"
#include "heed/error.hpp"

namespace {

using heed::Dims;
using heed::DType;
using heed::Need;
using heed::Tensor;

constexpr Need kSumOfSquares = Need{1u << 31};

struct Call {
  Tensor query{{2, 3, 5, 8}, DType::f32}, key{{2, 3, 7, 8}, DType::f32}, value{{2, 3, 7, 4}, DType::f32};
  heed::AttentionOptions options{.need = kSumOfSquares};
  heed::detail::Problem problem = heed::detail::check_call(query, key, value, options);
};

std::string message_of(const auto& work) {
  try {
    work();
  } catch (const heed::Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(FourteenthResult, IsALineOfTheTable) {
  EXPECT_EQ(heed::result_entry(heed::kResultCount - 1).name(), "sum_of_squares");
}

TEST(FourteenthResult, GetsMemoryWhereItIsAskedFor) {
  Call call;
  EXPECT_EQ(heed::detail::allocate_results(call.problem, call.options, 4).sum_of_squares.shape(),
            (Dims{2, 3, 5}));
  EXPECT_EQ(heed::detail::allocate_results(call.problem, call.options, 2).sum_of_squares.shape(), (Dims{5}));
  EXPECT_EQ(heed::detail::allocate_results(call.problem, {}, 4).sum_of_squares.count(), 0);
}

TEST(FourteenthResult, IsBoundToTheMemoryOfTheCaller) {
  Call call;
  Tensor sums({2, 3, 5}, DType::f32);
  heed::detail::bind_outputs({.sum_of_squares = sums}, {}, 4, call.problem);
  EXPECT_EQ(call.problem.sum_of_squares.data, sums.view().data());
  EXPECT_EQ(call.problem.sum_of_squares.stride[1], 5);
}

TEST(FourteenthResult, IsCheckedAsTheOthersAre) {
  Call call;
  Tensor wrong({2, 3, 6}, DType::f32);
  EXPECT_NE(message_of([&] {
              heed::detail::bind_outputs({.sum_of_squares = wrong}, {}, 4, call.problem);
            }).find("outputs.sum_of_squares has shape [2, 3, 6]"),
            std::string::npos);
  Tensor both({2, 3, 5}, DType::f32);
  heed::detail::bind_outputs({.lse = both, .sum_of_squares = both}, {}, 4, call.problem);
  EXPECT_EQ(message_of([&] { heed::detail::check_overlaps(call.problem); }),
            "outputs.sum_of_squares overlaps outputs.lse in memory; separate memory is expected");
}

}  // namespace
