// heed look --tile: a piece of the weights.
#pragma once

#include "look/subject.hpp"

namespace heed::cli {

struct TileQuestion {
  TileRange range{};  ///< its batch and head are not set
};

void add_tile_option(CLI::App& app, TileQuestion& question);

/// Throws UsageError, before any work, for a tile outside the matrix, or if it would be too large.
void answer_tile(Subject subject, const TileQuestion& question);

}  // namespace heed::cli
