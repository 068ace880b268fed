// Inks of pictures on white paper: one per head name, all about equally dark.
#pragma once

#include <string_view>

#include "picture/canvas.hpp"

namespace heed::cli {

inline constexpr Ink kPaper{1, 1, 1};
inline constexpr Ink kMasked{0.965, 0.945, 0.9};  ///< sand, for masked keys: no ink fades to it
inline constexpr Ink kText{0.13, 0.15, 0.18};
inline constexpr Ink kFaintText{0.38, 0.41, 0.46};
inline constexpr Ink kRule{0.78, 0.8, 0.83};

/// The paper's or the text's ink, whichever contrasts more with the background (WCAG contrast).
[[nodiscard]] Ink letters_on(const Ink& ground);

/// The ink of "induction", "previous-token", "2 back", …; grey for "mixed" and unknown names.
[[nodiscard]] Ink ink_of_name(std::string_view name);

}  // namespace heed::cli
