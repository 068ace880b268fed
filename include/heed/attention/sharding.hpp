// Sharding of a sequence: which rank of a parallel computation holds which positions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// Positions [begin, end).
struct PositionRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  friend bool operator==(const PositionRange&, const PositionRange&) = default;
};

/// Maps the positions 0 … length - 1 of a sequence to ranks. Each position is on exactly one rank; a rank may
/// have none. The rows of a rank are its positions in ascending order. Memory grows with the number of
/// ranges, not with the length. Lookups of a position or row are binary searches.
///
/// All functions throw Error (invalid_argument), naming the argument, for ranks outside 1 to 2^22, length <
/// 0, more than 2^24 stripes, and a rank, position, row or axis out of range.
class HEED_API Sharding {
 public:
  /// Rank r holds the r-th of `ranks` consecutive ranges. Their sizes differ by at most 1.
  [[nodiscard]] static Sharding contiguous(std::int64_t length, int ranks);
  /// Cuts the sequence into 2 * ranks consecutive chunks; rank r holds chunks r and 2 * ranks - 1 - r. Under
  /// a causal mask all ranks have the same total work (Dubey et al. 2024, The Llama 3 Herd of Models, section
  /// 3.3.2). Numbers of rows differ by at most 1.
  [[nodiscard]] static Sharding zigzag(std::int64_t length, int ranks);
  /// Deals runs of `stripe` >= 1 positions to the ranks in turn. Under a causal mask all ranks have nearly
  /// equal work for every block of keys (Brandon et al. 2023, Striped Attention).
  [[nodiscard]] static Sharding striped(std::int64_t length, int ranks, std::int64_t stripe = 192);
  /// ranges[r] are the ranges of rank r, in any order; empty ones are ignored. Throws if a position is
  /// missing or duplicated. The length is the end of the last range.
  [[nodiscard]] static Sharding from_ranges(const std::vector<std::vector<PositionRange>>& ranges);
  /// Position p is on rank rank_of_position[p].
  [[nodiscard]] static Sharding from_ranks(std::span<const int> rank_of_position, int ranks);

  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(first_.size()) - 1; }
  [[nodiscard]] std::int64_t length() const noexcept { return length_; }
  /// The number of positions on the rank.
  [[nodiscard]] std::int64_t rows(int rank) const;
  /// The positions of a rank as ascending ranges; none is empty, and none touches the next.
  [[nodiscard]] std::span<const PositionRange> ranges(int rank) const;
  [[nodiscard]] int rank_of(std::int64_t position) const;
  /// The row of a position on its rank.
  [[nodiscard]] std::int64_t row_of(std::int64_t position) const;
  /// The position of a row of a rank.
  [[nodiscard]] std::int64_t position(int rank, std::int64_t row) const;

  /// Copies the rows of `rank` from `whole`, whose `axis` counts positions and has size length(). A negative
  /// axis counts from the end.
  [[nodiscard]] Tensor shard(const TensorView& whole, int axis, int rank) const;
  /// Inverse of shard(); shards[r] is the shard of rank r. Throws if dtypes or shapes do not fit together.
  [[nodiscard]] Tensor join(std::span<const TensorView> shards, int axis) const;

  friend bool operator==(const Sharding&, const Sharding&) = default;

 private:
  struct Run {
    PositionRange positions;
    int rank = 0;
    std::int64_t row = 0;  // row of positions.begin on the rank
    friend bool operator==(const Run&, const Run&) = default;
  };
  HEED_HIDDEN Sharding(std::span<const Run> runs, int ranks);
  HEED_HIDDEN void add(const Run& run);
  HEED_HIDDEN void list_ranges_by_rank();
  [[nodiscard]] HEED_HIDDEN const Run& run_of(std::int64_t position) const;
  [[nodiscard]] HEED_HIDDEN std::size_t checked(int rank) const;

  std::int64_t length_ = 0;
  std::vector<Run> runs_;                // by position; neighbours have different ranks
  std::vector<PositionRange> ranges_;    // by rank, and by position within a rank
  std::vector<std::int64_t> first_row_;  // row of the start of each of ranges_
  std::vector<std::size_t> first_;       // rank r has ranges_[first_[r]] … ranges_[first_[r + 1] - 1]
  std::vector<std::int64_t> rows_;       // number of rows of each rank
};

}  // namespace heed
