// Counts the rows that were compared, and those whose bound is meaningful.
#pragma once

#include <gtest/gtest.h>

#include <iostream>

#include "compare_results.hpp"

namespace heed::test {

/// Prints the counts. Fails if the bound is beyond first order for more than `most_loose` of the rows. Also
/// fails if the fused kernel itself computed fewer than `least_share` of the rows.
inline void expect_tight(const RowTally& tally, double least_share = 0, double most_loose = 0.01) {
  std::cout << tally.rows << " rows compared: " << tally.loose << " within a bound beyond first order, "
            << tally.fallen_back << " computed by the reference\n";
  EXPECT_GT(tally.rows, 0);
  EXPECT_LE(static_cast<double>(tally.loose), most_loose * static_cast<double>(tally.rows));
  EXPECT_GE(static_cast<double>(tally.rows - tally.fallen_back),
            least_share * static_cast<double>(tally.rows));
}

}  // namespace heed::test
