// Inks of pictures: one for each name of a head, all about as dark, on white paper.
#pragma once

#include <string_view>

#include "picture/canvas.hpp"

namespace heed::cli {

inline constexpr Ink kPaper{1, 1, 1};
inline constexpr Ink kMasked{0.965, 0.945, 0.9};  ///< sand, where a mask forbids the key: no ink pales to it
inline constexpr Ink kText{0.13, 0.15, 0.18};
inline constexpr Ink kFaintText{0.38, 0.41, 0.46};
inline constexpr Ink kRule{0.78, 0.8, 0.83};

/// Paper or the ink of text: what is easier to read on the ground (WCAG's contrast).
[[nodiscard]] Ink letters_on(const Ink& ground);

/// Of "induction", "previous-token", …; grey for "mixed" and names that it does not know.
[[nodiscard]] Ink ink_of_name(std::string_view name);

}  // namespace heed::cli
