// One row of the forward pass in f64, step by step: run_reference takes the steps row after row, and
// recompute_rows shares its products among some rows.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "attention/reference/passes.hpp"

namespace heed::detail {

/// The working memory of one thread. Sums over rows are in f64, and are the caller's to clear and to write.
struct ReferenceScratch : RowScratch {
  explicit ReferenceScratch(const Problem& problem);

  std::vector<double> received, received_last;  // [Lk]
  std::vector<double> map;                      // [R][C]
  std::optional<Problem> unmasked;              // the call without its masks, where `dropped` is wanted
};

/// The keys of the tensor whose products a row's results need.
KeyRange multiplied_keys(const Problem& problem, const Segment& segment, const Row& row);

/// The row's weights, from its products.
Normaliser weigh_row(const Problem& problem, const Segment& segment, const Row& row,
                     const HeadDropout& dropout, ReferenceScratch& scratch);

void write_output(const Problem& problem, const Row& row, std::span<const double> output);

/// Writes every other result of a row, and adds its weights to the scratch's sums.
void write_results(const Problem& problem, const Segment& segment, const Row& row,
                   const Normaliser& normaliser, ReferenceScratch& scratch);

/// Writes the row's scores alone, from its products.
void attend_scores(const Problem& problem, const Segment& segment, const Row& row, ReferenceScratch& scratch);

/// Writes every result but the scores. The row has a score that is NaN: every weight that is not forbidden is
/// NaN.
void attend_nan_row(const Problem& problem, const Segment& segment, const Row& row,
                    ReferenceScratch& scratch);

}  // namespace heed::detail
