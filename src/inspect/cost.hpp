// What looking inside costs, beside what the plain forward would have.
#pragma once

#include <array>
#include <vector>

#include "attention/problem/problem.hpp"
#include "heed/attention.hpp"

namespace heed::detail {

/// Seconds of the forward pass: of nothing but the output, and what each thing asked for adds to those before
/// it: lse, max_score, entropy and distance; top-k; the map. What adds too little to be told from how the
/// times vary is NaN; what is not asked for is 0.
struct ForwardSeconds {
  double plain = 0;
  double rows = 0;
  double top_k = 0;
  double map = 0;
  bool estimated = false;  ///< from some of the rows: good for comparing them with each other

  /// The same as shares of what the whole pass took.
  [[nodiscard]] ForwardSeconds shares_of(double pass) const;
};

/// One run of each: the output alone, with the rows' summaries too, with top-k too, with the map too.
using Turn = std::array<double, 4>;

/// Medians of the plain runs and of what was added turn by turn, so that a moment in which the machine was
/// busy with something else meets all runs of its turn. An addition counts where at least seven turns in
/// eight have it.
ForwardSeconds compare_turns(const std::vector<Turn>& turns);

/// Times the problem without what needs the weights pass. Its results are written over.
ForwardSeconds time_forward(const Problem& problem, Kernel kernel);

}  // namespace heed::detail
