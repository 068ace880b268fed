// Calls whose rows list few keys gather these keys: each row becomes a sequence of a cache that holds its
// list, and the kernels run over such sequences. They sum a row in the order of its list, so the result
// agrees with that of the mask up to rounding.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

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
  const MaskSource& source;  ///< of the lists
  const KeyLists& lists;
  std::int64_t heads;  ///< query heads of a piece; they share all masks
  std::vector<GatheredRows> pieces;
};

/// Empty if the call visits its keys by the mask. Depends on the shapes of call and lists, on its options and
/// on the results asked for.
[[nodiscard]] std::optional<GatherPlan> plan_gather(const Problem& call, Kernel wanted);

/// A piece of such a call as a call of its own. It points into itself, so it does not move.
class GatheredPiece {
 public:
  GatheredPiece(const GatherPlan& plan, const GatheredRows& piece, int threads);
  GatheredPiece(const GatheredPiece&) = delete;
  GatheredPiece& operator=(const GatheredPiece&) = delete;

  [[nodiscard]] const Problem& problem() const { return problem_; }
  /// Replaces the key indices of top_k by the indices of the whole call.
  void place_top_keys() const;

 private:
  void gather(const GatherPlan& plan, const GatheredRows& piece);
  void bind(const GatherPlan& plan, const GatheredRows& piece);
  void copy_rows();

  std::vector<std::int64_t> first_{0};   // of each row's list, and the end
  std::vector<std::int32_t> keys_;       // as the whole call counts them
  std::vector<std::int32_t> numbers_;    // row numbers in memory
  std::vector<std::int64_t> positions_;  // within the segment
  std::vector<CachedSequence> sequences_;
  CacheRows rows_{};
  Tensor key_copy_, value_copy_;  // empty if rows are read in place
  Problem problem_;
};

}  // namespace heed::detail
