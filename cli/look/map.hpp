// Tiles, maps and masks as pictures on the terminal. Each cell is the weight on the keys of its bin, averaged
// over the rows of its bin, so a row of the picture sums to its rows' total weight. Nothing is interpolated.
#pragma once

#include <cstdint>
#include <vector>

#include "heed/inspect/document.hpp"
#include "look/tables.hpp"
#include "terminal.hpp"

namespace heed::cli {

/// Draws each head of the tile, binned if it is larger than the output. `heads` are the heads of its head
/// axis; it is empty if all are shown.
void print_tile(const TextOutput& output, const Document& document, const WeightTile& tile,
                const std::vector<std::int64_t>& heads);
/// Draws a map [B, H, R, C] of each of `heads`, in that order.
void print_map(const TextOutput& output, const Document& document, const Tensor& map,
               const std::vector<HeadSummary>& heads);
/// Draws the masks of `heads`. A mask equal to the previous one is skipped.
void print_masks(const TextOutput& output, const Document& document, const std::vector<HeadSummary>& heads);
[[nodiscard]] Json masks_json(const Document& document, const std::vector<HeadSummary>& heads);

}  // namespace heed::cli
