// A SparseMask's parts as kernels see them.
#pragma once

#include <vector>

#include "attention/masks/mask_part.hpp"
#include "heed/masks.hpp"

namespace heed::detail {

/// For `heads` query heads, a multiple of the mask's. The mask must outlive them.
inline std::vector<MaskSource> sources_of(const SparseMask& mask, std::int64_t heads) {
  std::vector<MaskSource> sources;
  for (const auto& part : mask.parts())
    sources.push_back({part.get(),
                       [](const void* one, const MaskTile& tile) {
                         return static_cast<const MaskPart*>(one)->coverage(tile);
                       },
                       [](const void* one, const MaskTile& row, std::uint8_t* visible) {
                         static_cast<const MaskPart*>(one)->restrict_row(row, visible);
                       },
                       part->shape().batch > 1 ? 1 : 0, heads / part->shape().heads});
  return sources;
}

}  // namespace heed::detail
