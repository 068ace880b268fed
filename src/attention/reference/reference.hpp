// The reference: attention and its gradients in f64, row by row. The fused kernel is tested against it.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "attention/problem/problem.hpp"
#include "attention/reference/passes.hpp"

namespace heed::detail {

/// The working memory of one thread. Sums over rows are in f64; the caller clears and writes them.
struct ReferenceScratch : RowScratch {
  explicit ReferenceScratch(const Problem& problem);

  std::vector<double> received, received_last;  // [Lk]
  std::vector<double> map;                      // [R][C]
  std::optional<Problem> unmasked;              // the call without its masks, if `masked_mass` is wanted
};

/// The tensor's keys whose products the row's results need.
KeyRange multiplied_keys(const Problem& problem, const Segment& segment, const Row& row);

/// Computes the row's weights from its products.
Normaliser weigh_row(const Problem& problem, const Segment& segment, const Row& row,
                     ReferenceScratch& scratch);

void write_output(const Problem& problem, const Row& row, std::span<const double> output);

/// Writes every other result of the row, and adds its weights to the sums in `scratch`.
void write_results(const Problem& problem, const Segment& segment, const Row& row,
                   const Normaliser& normaliser, ReferenceScratch& scratch);

/// Writes only the row's scores, from its products.
void attend_scores(const Problem& problem, const Segment& segment, const Row& row, ReferenceScratch& scratch);

/// Writes every result except the scores, for a row that has a NaN score: every allowed weight is NaN.
void attend_nan_row(const Problem& problem, const Segment& segment, const Row& row,
                    ReferenceScratch& scratch);

/// Writes every result that has an Output, on one thread.
KernelRun run_reference(const Problem& problem);
/// Writes every gradient that has an Output; threads share the key heads.
KernelRun run_reference_backward(const BackwardProblem& problem);

}  // namespace heed::detail
