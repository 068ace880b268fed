// Words made to fit a place on the terminal. All text here is printable() already.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heed::cli {

/// The characters as a terminal shows them: each with the combining marks that follow it.
[[nodiscard]] std::vector<std::string> characters(std::string_view text);
/// At most `width` columns; where that cuts the text, the last of them is "…".
[[nodiscard]] std::string shortened(std::string_view text, int width);
/// Exactly `width` columns: shortened, then filled with spaces behind it or in front of it.
[[nodiscard]] std::string left_aligned(std::string_view text, int width);
[[nodiscard]] std::string right_aligned(std::string_view text, int width);
[[nodiscard]] std::string spaces(int count);
/// Columns of the widest one.
[[nodiscard]] int widest(const std::vector<std::string>& texts);

/// The words, made printable, and told apart: of a word that occurs more than once, "the", the labels are
/// "the₁", "the₂", …
[[nodiscard]] std::vector<std::string> labels_of(const std::vector<std::string>& words);

}  // namespace heed::cli
