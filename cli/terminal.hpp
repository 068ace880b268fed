// What the terminal behind a file descriptor can show.
#pragma once

#include <iosfwd>

namespace heed::cli {

enum class Color {
  none,
  palette,  ///< xterm's 256 colours: ESC[48;5;Nm
  full,     ///< 24 bits: ESC[48;2;R;G;Bm
};

struct Terminal {
  bool interactive = false;   ///< a terminal, not a file or a pipe
  Color color = Color::none;  ///< none where it is not a terminal, and with NO_COLOR
  int width = 80;             ///< columns
};

/// Colour follows COLORTERM and TERM, and is off where NO_COLOR is set to anything (no-color.org). The width
/// is COLUMNS where that is a number, else what the terminal says, else 80.
[[nodiscard]] Terminal terminal_at(int descriptor);

/// Where text is printed: at most `width` columns (60 or more), with escapes only where color is not none.
struct TextOutput {
  std::ostream& stream;
  Color color = Color::none;
  int width = 80;
};

}  // namespace heed::cli
