// Capabilities of the terminal behind a file descriptor.
#pragma once

#include <functional>
#include <iosfwd>

namespace heed::cli {

enum class Color {
  none,
  palette,  ///< xterm's 256 colours: ESC[48;5;Nm
  full,     ///< 24 bits: ESC[48;2;R;G;Bm
};

struct Terminal {
  bool interactive = false;   ///< a terminal, not a file or a pipe
  Color color = Color::none;  ///< none if not a terminal, or with NO_COLOR
  int width = 80;             ///< columns
};

/// Colour follows COLORTERM and TERM; setting NO_COLOR to anything disables it (no-color.org). The width is
/// COLUMNS if that is a number, else the terminal's width, else 80.
[[nodiscard]] Terminal terminal_at(int descriptor);

/// A destination of text: at most `width` columns (60 or more), with escape sequences only if color is not
/// none.
struct TextOutput {
  std::ostream& stream;
  Color color = Color::none;
  int width = 80;
};

/// Standard output, with at least 60 columns.
[[nodiscard]] TextOutput standard_output();

/// Reserves the descriptors of closed standard streams. Otherwise the next opened file would get such a
/// descriptor, and printed text would end up in it. Using a reserved stream still fails. Call this function
/// first.
void hold_standard_streams();

/// Throws Error (io) if standard output is closed. Long commands call it before their work.
void require_standard_output();

/// Runs work that prints, and flushes. Throws Error (io) with the reason if the text could not be written.
void with_standard_output(const std::function<void()>& work);

}  // namespace heed::cli
