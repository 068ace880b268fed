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
  double map = 0;  ///< where estimated only: else the pass itself tells
  bool estimated =
      false;  ///< from one block of rows in some hundred, good for comparing them with each other

  /// The same as shares of what the whole pass took.
  [[nodiscard]] ForwardSeconds scaled_to(double seconds) const {
    const double factor = map > 0 ? seconds / map : 1;
    return {factor * plain, factor * rows, factor * top_k, factor * map, estimated};
  }
};

/// Times the problem without what needs a second pass. Its results are written over.
ForwardSeconds time_forward(const Problem& problem, Kernel kernel);

}  // namespace heed::detail
