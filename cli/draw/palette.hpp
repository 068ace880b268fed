// Colours on a terminal. With Color::none all of these give the text as it is.
#pragma once

#include <string>

#include "terminal.hpp"

namespace heed::cli {

/// The text on a background from the colour map viridis (Smith and van der Walt 2015, matplotlib), from dark
/// violet at a share of 0 to yellow at 1: equal steps look equal, also to the colour-blind. It is black or
/// white, whichever is easier to read there. `share` is taken into [0, 1]; NaN counts as 0.
[[nodiscard]] std::string on_viridis(const std::string& text, double share, Color color);

[[nodiscard]] std::string bold(const std::string& text, Color color);
[[nodiscard]] std::string faint(const std::string& text, Color color);

}  // namespace heed::cli
