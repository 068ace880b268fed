// How many rows were compared, and how many of these comparisons say something.
#pragma once

#include <gtest/gtest.h>

#include <iostream>

#include "compare_results.hpp"

namespace heed::test {

/// Prints what was compared. Fails where more than one row in a hundred had a bound that may say nothing, or
/// where the fused kernel itself computed fewer than `least_share` of the rows.
inline void expect_tight(const RowTally& tally, double least_share = 0) {
  std::cout << tally.rows << " rows compared: " << tally.loose << " within a bound beyond first order, "
            << tally.fallen_back << " computed by the reference\n";
  EXPECT_GT(tally.rows, 0);
  EXPECT_LE(tally.loose * 100, tally.rows);
  EXPECT_GE(static_cast<double>(tally.rows - tally.fallen_back),
            least_share * static_cast<double>(tally.rows));
}

}  // namespace heed::test
