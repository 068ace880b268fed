// A mask that lists, for each row, the keys it may see, as intervals. Rows of a block share a list.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/masks/mask_part.hpp"

namespace heed::detail {

struct KeyInterval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  friend bool operator==(const KeyInterval&, const KeyInterval&) = default;
};

/// Sorts the intervals, drops empty ones, and joins those that touch.
void normalise(std::vector<KeyInterval>& intervals);

/// Consecutive lists. List l is intervals[first[l]] … intervals[first[l + 1] - 1], ascending; no two touch.
class ListOfIntervals {
 public:
  struct View {
    const KeyInterval *begin, *end;
  };
  [[nodiscard]] View operator[](std::int64_t list) const {
    const auto at = static_cast<std::size_t>(list);
    return {intervals_.data() + first_[at], intervals_.data() + first_[at + 1]};
  }
  [[nodiscard]] std::int64_t size() const { return std::ssize(first_) - 1; }
  /// `list` must be normalised.
  void append(const std::vector<KeyInterval>& list);
  void reserve(std::int64_t lists) { first_.reserve(static_cast<std::size_t>(lists) + 1); }
  void shrink();
  [[nodiscard]] std::size_t bytes() const;

 private:
  std::vector<std::size_t> first_{0};
  std::vector<KeyInterval> intervals_;
};

class IntervalLists final : public MaskPart {
 public:
  /// `lists` holds, for each plane, one list per `rows_each` rows; the last may cover fewer.
  IntervalLists(const MaskShape& shape, std::int64_t rows_each, ListOfIntervals lists);

  [[nodiscard]] Coverage coverage(const MaskTile& tile) const override;
  void restrict_row(const MaskTile& row, std::uint8_t* visible) const override;
  [[nodiscard]] std::size_t bytes() const override;
  [[nodiscard]] SavedPart saved() const override;

 private:
  [[nodiscard]] Coverage coverage_of_chunk(std::int64_t chunk, std::int64_t first, std::int64_t last,
                                           const MaskTile& tile) const;
  [[nodiscard]] std::int64_t lists_a_plane() const;
  [[nodiscard]] std::int64_t chunks_a_plane() const;

  std::int64_t rows_each_;
  std::int64_t lists_each_;  // per chunk
  ListOfIntervals lists_;
  ListOfIntervals any_, all_;  // per chunk: the union and the intersection of its lists
};

}  // namespace heed::detail
