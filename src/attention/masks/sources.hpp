// Converts a SparseMask's parts and a ScoreMod to the plain data that kernels read.
#pragma once

#include <vector>

#include "attention/masks/mask_part.hpp"
#include "heed/attention/masks.hpp"
#include "heed/attention/score_mod.hpp"

namespace heed::detail {

/// A part that serves `heads_each` query heads a head of its own.
inline MaskSource source_of(const MaskPart& part, std::int64_t heads_each) {
  return {
      &part,
      [](const void* one, const MaskTile& tile) { return static_cast<const MaskPart*>(one)->coverage(tile); },
      [](const void* one, const MaskTile& row, std::uint8_t* visible) {
        static_cast<const MaskPart*>(one)->restrict_row(row, visible);
      },
      part.shape().batch > 1 ? 1 : 0,
      heads_each,
      {}};
}

/// `heads`, the number of query heads, is a multiple of the mask's heads. The mask must outlive the sources.
inline std::vector<MaskSource> sources_of(const SparseMask& mask, std::int64_t heads) {
  std::vector<MaskSource> sources;
  for (const auto& part : mask.parts()) sources.push_back(source_of(*part, heads / part->shape().heads));
  return sources;
}

/// Converts a ScoreMod, which must outlive the result.
inline ScoreModSource source_of(const ScoreMod& mod) {
  if (mod.is_empty()) return {};
  return {mod.part(),
          [](const void* part, const MaskTile& row, float* scores, float* slopes) {
            static_cast<const ScoreFunction*>(part)->apply(
                {row.batch, row.head, row.row_begin, row.key_begin, row.key_end}, scores, slopes);
          },
          {}};
}

}  // namespace heed::detail
