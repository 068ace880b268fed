// The pairs of tokens that BPE merges, and their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace heed::detail {

/// The tokens `left` and `right` become `id`; lower ranks merge first.
struct BpeMerge {
  std::int32_t left = 0, right = 0;
  std::uint32_t rank = 0;
  std::int32_t id = 0;
};

class BpeMerges {
 public:
  BpeMerges() = default;
  /// If a pair occurs several times, the last one counts. Tokens are in [0, tokens).
  BpeMerges(std::vector<BpeMerge> merges, std::size_t tokens);

  /// Returns nullptr for pairs that do not merge.
  [[nodiscard]] const BpeMerge* find(std::int32_t left, std::int32_t right) const {
    std::size_t low = first_[static_cast<std::size_t>(left)];
    const std::size_t end = first_[static_cast<std::size_t>(left) + 1];
    std::size_t high = end;
    while (low < high) {
      const std::size_t middle = low + (high - low) / 2;
      if (merges_[middle].right < right)
        low = middle + 1;
      else
        high = middle;
    }
    return low < end && merges_[low].right == right ? &merges_[low] : nullptr;
  }

 private:
  std::vector<BpeMerge> merges_;      // by left, then by right
  std::vector<std::uint32_t> first_;  // where the merges of each left token begin
};

}  // namespace heed::detail
