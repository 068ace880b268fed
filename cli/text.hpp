// Text for people: foreign text made safe to print, its width on a terminal, wrapping, and near misses.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heed::cli {

/// No overlong forms, no surrogates, nothing past U+10FFFF.
[[nodiscard]] bool is_utf8(std::string_view text);

/// The text with what could drive a terminal spelled out: control characters and bytes that are not UTF-8 as
/// \xHH (\n, \r and \t by name), marks that turn the writing direction as \u{HHHH}.
[[nodiscard]] std::string printable(std::string_view text);

/// A token as it is shown, printable and seen: tabs, line ends, and spaces at its ends as the signs ⇥ ⏎ ␍ ␣,
/// other white space there as \u{HHHH}; in quotes where it is nothing else, or empty. The page's tokenText()
/// (src/page/web/data.js) does the same.
[[nodiscard]] std::string token_text(std::string_view token);

/// Columns that printable text takes on a terminal: 0 for a combining mark, 2 for East Asian wide characters
/// and emoji, 1 for all others.
[[nodiscard]] int display_width(std::string_view text);

/// A name with - where it has _, as options are written.
[[nodiscard]] std::string with_dashes(std::string_view name);

/// The parts between separators; one more than there are separators.
[[nodiscard]] std::vector<std::string> split(std::string_view text, char separator);

/// Words broken into lines of at most `width` columns; all lines but the first begin with `indent` spaces. A
/// newline in the text is kept, and [what stands in brackets] is not broken.
[[nodiscard]] std::string wrap(std::string_view text, int width, int indent);

/// The one of `known` that `word` was most likely meant to be (by edit distance), or nothing where none is
/// near.
[[nodiscard]] std::optional<std::string> nearest(std::string_view word,
                                                 const std::vector<std::string>& known);

/// A word as a shell takes it: as it is where it is plain, else in single quotes.
[[nodiscard]] std::string shell_quoted(const std::string& word);

}  // namespace heed::cli
