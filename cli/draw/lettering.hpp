// Text fitted to a width on the terminal. All text here is already printable().
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heed::cli {

/// Splits text into characters as a terminal shows them, each with its combining marks.
[[nodiscard]] std::vector<std::string> characters(std::string_view text);
/// At most `width` columns. Text that is cut ends in "…".
[[nodiscard]] std::string shortened(std::string_view text, int width);
/// Exactly `width` columns: shortened, then padded with spaces on the right or on the left.
[[nodiscard]] std::string left_aligned(std::string_view text, int width);
[[nodiscard]] std::string right_aligned(std::string_view text, int width);
/// Cells of a table side by side, each padded to its width; a cell of negative width is aligned to the left.
[[nodiscard]] std::string in_columns(const std::vector<std::string>& cells, const std::vector<int>& widths);
/// The same as a whole line, without spaces at its end.
[[nodiscard]] std::string line_of(const std::vector<std::string>& cells, const std::vector<int>& widths);
[[nodiscard]] std::string spaces(int count);
/// The display width of the widest text.
[[nodiscard]] int widest(const std::vector<std::string>& texts);

/// The words, printable and distinct. Repeated words are numbered: "the₁", "the₂", ….
[[nodiscard]] std::vector<std::string> labels_of(const std::vector<std::string>& words);

}  // namespace heed::cli
