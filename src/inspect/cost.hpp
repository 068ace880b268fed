// The cost of the requested results compared with a plain forward pass.
#pragma once

#include <array>
#include <vector>

#include "attention/problem/problem.hpp"
#include "heed/attention/attention.hpp"

namespace heed::detail {

/// Seconds of the forward pass for the output alone, and the added seconds of each further group: lse,
/// max_score, entropy and distance; top-k; the map. An addition below measurement noise is NaN; one not
/// requested is 0.
struct ForwardSeconds {
  double plain = 0;
  double rows = 0;
  double top_k = 0;
  double map = 0;
  bool estimated = false;  ///< from a sample of the rows: valid only relative to each other

  /// The same as shares of the time of the whole pass.
  [[nodiscard]] ForwardSeconds shares_of(double pass) const;
};

/// Seconds of one run each: the output alone, plus the row summaries, plus top-k, plus the map.
using Turn = std::array<double, 4>;

/// Medians of the plain runs and of the differences within each turn. A busy moment of the machine thus
/// affects all runs of its turn. An addition counts if it is positive in at least seven of eight turns.
ForwardSeconds compare_turns(const std::vector<Turn>& turns);

/// Times the problem without results that need the weights pass. Overwrites its results.
ForwardSeconds time_forward(const Problem& problem, Kernel kernel);

}  // namespace heed::detail
