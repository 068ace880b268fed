// Text output: escaping of foreign text, display width, wrapping, and spelling suggestions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/message.hpp"

namespace heed::cli {

using detail::counted;
using detail::there_are;

/// Rejects overlong forms, surrogates, and code points above U+10FFFF.
[[nodiscard]] bool is_utf8(std::string_view text);

/// Escapes everything that could control a terminal. Control characters and invalid UTF-8 bytes become \xHH
/// or \n, \r and \t; marks that change the writing direction become \u{HHHH}.
[[nodiscard]] std::string printable(std::string_view text);

/// A token made printable and visible. Tabs and line ends anywhere, and spaces at its ends, become ⇥ ⏎ ␍ ␣;
/// other white space at its ends becomes \u{HHHH}. Empty or all-white tokens are quoted. The page's
/// tokenText() (src/page/web/data.js) does the same.
[[nodiscard]] std::string token_text(std::string_view token);

/// A word within a line of a page. Marks around right-to-left letters keep the order of the words beside it.
/// The page's isolated() (src/page/web/data.js) does the same.
[[nodiscard]] std::string isolated(const std::string& word);

/// Columns of printable text on a terminal: 0 for a combining mark, 2 for East Asian wide characters and
/// emoji, 1 for all others.
[[nodiscard]] int display_width(std::string_view text);

/// A number by a pattern of printf, such as "%.4g".
[[nodiscard]] std::string formatted(const char* pattern, double value);
/// A number with that many decimals; "-" for NaN.
[[nodiscard]] std::string fixed(double value, int decimals);

/// The same with a sign: "+0.120", "-0.003".
[[nodiscard]] std::string signed_fixed(double value, int decimals);

/// Words with spaces between.
[[nodiscard]] std::string joined_words(const std::string& first, const std::vector<std::string>& more);
[[nodiscard]] std::string joined_words(const std::vector<std::string>& words);

/// Replaces _ by -, as in option names.
[[nodiscard]] std::string with_dashes(std::string_view name);

/// The parts between separators: one more than there are separators.
[[nodiscard]] std::vector<std::string> split(std::string_view text, char separator);

/// Breaks words into lines of at most `width` columns. All lines but the first are indented by `indent`
/// spaces. Newlines in the text are kept, and [text in brackets] is not broken.
[[nodiscard]] std::string wrap(std::string_view text, int width, int indent);

/// The entry of `known` closest to `word` by edit distance, or nothing if none is close.
[[nodiscard]] std::optional<std::string> nearest(std::string_view word,
                                                 const std::vector<std::string>& known);

/// Quotes a word for a shell. Plain words stay as they are, others get single quotes.
[[nodiscard]] std::string shell_quoted(const std::string& word);

}  // namespace heed::cli
