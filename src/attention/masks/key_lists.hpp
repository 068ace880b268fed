// A mask that lists, for each row, the keys it may see, one by one (DeepSeek's sparse attention, NSA's
// selection, retrieval). A call may gather the listed keys instead of visiting all (plan/gathered_keys.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/masks/mask_part.hpp"
#include "heed/attention/masks.hpp"

namespace heed::detail {

/// The most rows without entries: their tensor takes no memory, but their lists do.
constexpr std::int64_t kMaxEmptyRows = std::int64_t{1} << 27;

class KeyLists final : public MaskPart {
 public:
  /// Row r, counted over all planes, lists keys[first[r]] … keys[first[r + 1] - 1], ascending. `width` is the
  /// most keys that a list has room for.
  KeyLists(const MaskShape& shape, std::int64_t width, Gather gather, std::vector<std::int64_t> first,
           std::vector<std::int32_t> keys);

  [[nodiscard]] Coverage coverage(const MaskTile& tile) const override;
  void restrict_row(const MaskTile& row, std::uint8_t* visible) const override;
  [[nodiscard]] std::size_t bytes() const override;
  [[nodiscard]] SavedPart saved() const override;

  [[nodiscard]] std::int64_t width() const { return width_; }
  [[nodiscard]] Gather gather() const { return gather_; }
  /// The listed keys in [key_begin, key_end) of a row.
  [[nodiscard]] std::span<const std::int32_t> keys_of(std::int64_t batch, std::int64_t head, std::int64_t row,
                                                      std::int64_t key_begin, std::int64_t key_end) const;

 private:
  std::int64_t width_;
  Gather gather_;
  std::vector<std::int64_t> first_;
  std::vector<std::int32_t> keys_;
};

}  // namespace heed::detail
