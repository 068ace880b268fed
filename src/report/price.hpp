// What looking inside costs, beside what the plain forward would have.
#pragma once

#include "attention/problem.hpp"
#include "heed/attention.hpp"

namespace heed::detail {

/// Seconds of the forward pass with ever more asked for: nothing but the output; lse, max_score, entropy and
/// distance too; and top-k.
struct ForwardSeconds {
  double plain = 0;
  double rows = 0;
  double top_k = 0;
  bool estimated = false;  ///< from about one row in a hundred
};

/// Times the problem without its map and what needs a second pass. Its results are written over.
ForwardSeconds time_forward(const Problem& problem, Kernel kernel);

}  // namespace heed::detail
