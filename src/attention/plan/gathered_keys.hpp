// Calls whose rows see few keys, far apart, gather these keys: rows become sequences of a cache that holds
// their keys, and the kernels run over such sequences. They sum a row in the order of its sequence, so the
// result agrees with the mask's up to rounding.
//
// With lists of keys, each row is a sequence of its own. With a neighbourhood on a grid, the rows of a line
// are one. It holds the lines that they see column by column. So the keys of a row are one range of it, and
// the ranges of neighbours overlap:
//
//   keys of row x = sequence[n * first column .. n * (last column + 1)),  n the number of lines
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attention/masks/grid_mask.hpp"
#include "attention/masks/interval_lists.hpp"
#include "attention/masks/key_lists.hpp"
#include "attention/problem/problem.hpp"

namespace heed::detail {

/// Rows [row_begin, row_end) of a segment, and heads [head, head + GatherPlan::heads).
struct GatheredRows {
  const Segment* segment;
  std::int64_t head, row_begin, row_end;
};

/// How a call gathers keys. The call must outlive its plan.
struct GatherPlan {
  const Problem& call;
  const MaskSource& source;  ///< of the lists or the grid
  const KeyLists* lists;     ///< nullptr: it is a grid
  const GridMask* grid;
  std::int64_t heads;      ///< query heads of a piece; they share all masks
  std::int64_t keys_each;  ///< the most keys that a row sees
  std::vector<GatheredRows> pieces;
};

/// Empty if the call visits its keys by the mask. Depends on the shapes of call and lists, on its options and
/// on the results asked for.
[[nodiscard]] std::optional<GatherPlan> plan_gather(const Problem& call, Kernel wanted);
/// The same for the gradients of lists. Lines of a grid and gradients of the weights go by the mask. A piece
/// has query heads of one key head.
[[nodiscard]] std::optional<GatherPlan> plan_gather(const BackwardProblem& call, Kernel wanted);

/// A piece of such a call as a call of its own. It points into itself, so it does not move.
class GatheredPiece {
 public:
  GatheredPiece(const GatherPlan& plan, const GatheredRows& piece, int threads);
  GatheredPiece(const GatheredPiece&) = delete;
  GatheredPiece& operator=(const GatheredPiece&) = delete;

  [[nodiscard]] const Problem& problem() const { return problem_; }
  /// The gathered keys of all segments of the problem, as the whole call counts them.
  [[nodiscard]] std::span<const std::int32_t> keys() const { return keys_; }
  /// Replaces the key indices of top_k by the indices of the whole call.
  void place_top_keys() const;

 private:
  void gather_lists(const GatherPlan& plan, const GatheredRows& piece);
  void gather_lines(const GatherPlan& plan, const GatheredRows& piece);
  void bind(const GatherPlan& plan, const GatheredRows& piece);
  void copy_rows();

  // Rows and keys of a sequence. Kernels are chosen by rows_of_whole: a line has the same bits where a call
  // has only some of its rows.
  struct Sequence {
    std::int64_t row_begin, row_end, key_begin, key_end, rows_of_whole;
  };
  std::vector<Sequence> gathered_;
  std::optional<IntervalLists> ranges_;  // of the rows, in lines of a grid
  std::vector<std::int32_t> keys_;       // as the whole call counts them
  std::vector<std::int32_t> numbers_;    // row numbers in memory
  std::vector<std::int64_t> positions_;  // within the segment
  std::vector<CachedSequence> sequences_;
  CacheRows rows_{};
  Tensor key_copy_, value_copy_;  // empty if rows are read in place
  Problem problem_;
};

}  // namespace heed::detail
