// Colours on a terminal. With Color::none, all functions return the text unchanged.
#pragma once

#include <string>

#include "terminal.hpp"

namespace heed::cli {

/// Text on a background from the colour map viridis (Smith and van der Walt 2015, matplotlib), from dark
/// violet at share 0 to yellow at 1. Equal steps look equal, also to colour-blind readers. The text is black
/// or white, whichever is easier to read. `share` is clamped to [0, 1]; NaN counts as 0.
[[nodiscard]] std::string on_viridis(const std::string& text, double share, Color color);

[[nodiscard]] std::string bold(const std::string& text, Color color);
[[nodiscard]] std::string faint(const std::string& text, Color color);

}  // namespace heed::cli
