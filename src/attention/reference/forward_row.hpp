// One row of the reference: what run_reference computes all rows with, and recompute_rows some.
#pragma once

#include <optional>
#include <vector>

#include "attention/reference/passes.hpp"

namespace heed::detail {

/// What one thread works with. Sums over rows are in f64, and are the caller's to clear and to write.
struct ReferenceScratch : RowScratch {
  explicit ReferenceScratch(const Problem& problem);

  std::vector<double> received, received_last;  // [Lk]
  std::vector<double> map;                      // [R][C]
  std::optional<Problem> unmasked;              // the call without its masks, where `dropped` is wanted
};

/// Writes every result of a row, and adds its weights to the scratch's sums.
void attend_row(const Problem& problem, const Segment& segment, const Row& row, const HeadDropout& dropout,
                ReferenceScratch& scratch);

/// Writes the row's scores alone.
void attend_scores(const Problem& problem, const Segment& segment, const Row& row, ReferenceScratch& scratch);

/// The same as attend_row for a row one of whose scores is known to be NaN, but without its scores: every
/// weight that is not forbidden is NaN.
void attend_nan_row(const Problem& problem, const Segment& segment, const Row& row,
                    ReferenceScratch& scratch);

}  // namespace heed::detail
