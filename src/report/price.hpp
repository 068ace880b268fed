// What looking inside costs, beside what the plain forward would have.
#pragma once

#include "attention/problem.hpp"
#include "heed/attention.hpp"

namespace heed::detail {

/// Seconds of the forward pass with ever more asked for: nothing but the output; lse, max_score, entropy and
/// distance too; top-k; and the map.
struct ForwardSeconds {
  double plain = 0;
  double rows = 0;
  double top_k = 0;
  double map = 0;
  bool estimated = false;  ///< from some of the rows: good for comparing them with each other

  /// The same as shares of what the whole pass took.
  [[nodiscard]] ForwardSeconds shares_of(double pass) const;
  /// None above the one that follows, the last being what the whole pass took. More to do takes no less time:
  /// where it seemed to, something else held up the runs with less to do, and the others bound them.
  [[nodiscard]] ForwardSeconds rising_to(double pass) const;
};

/// Times the problem without what needs a second pass. Its results are written over.
ForwardSeconds time_forward(const Problem& problem, Kernel kernel);

}  // namespace heed::detail
