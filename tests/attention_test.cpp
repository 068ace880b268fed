#include "heed/attention.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace {

using heed::attention;
using heed::Need;
using heed::Tensor;

// Two keys with scores 0 and log 3: weights 1/4 and 3/4.
TEST(Attention, FollowsItsFormulas) {
  const Tensor query = Tensor::from<double>({1}, {1, 1});
  const Tensor key = Tensor::from<double>({0, std::log(3.0)}, {2, 1});
  const Tensor value = Tensor::from<double>({4, 8}, {2, 1});
  const auto result = attention(query, key, value, {.need = Need::weights | Need::lse});
  // Tolerance: a few roundings of f64.
  EXPECT_NEAR(result.weights.at<double>(0, 0), 0.25, 1e-15);
  EXPECT_NEAR(result.weights.at<double>(0, 1), 0.75, 1e-15);
  EXPECT_NEAR(result.output.at<double>(0, 0), 7, 1e-14);
  EXPECT_NEAR(result.lse.at<double>(0), std::log(4.0), 1e-15);
}

}  // namespace
