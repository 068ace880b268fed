// Patterns at which a text is split or replaced: a string, a regular expression, a class of code points.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/regex.hpp"
#include "text/shared/aligned.hpp"
#include "text/shared/json_part.hpp"

namespace heed::detail {

/// Finds the matches in a text, in order and disjoint. Several threads may use one.
using Pattern = std::function<std::vector<TextRange>(std::string_view text)>;

/// Reads the member "pattern" of a part: {"String": …} or {"Regex": …}. Throws Error (io).
[[nodiscard]] Pattern pattern_from(const JsonPart& part);
/// Matches a regular expression. Throws Error (io).
[[nodiscard]] Pattern regex_pattern(const std::string& regex, const JsonPart& part);
/// Matches a string, which must not be empty.
[[nodiscard]] Pattern string_pattern(std::string string);
/// Matches each code point for which the function holds.
[[nodiscard]] Pattern point_pattern(bool (*holds)(std::uint32_t point));

/// Replaces each match by the content. The content's origin is the last code point of the match.
void replace(const Pattern& pattern, std::string_view content, AlignedText& text);
/// Prepends a prefix to a text that is not empty. The prefix's origin is the first code point of the text.
void prepend(std::string_view prefix, AlignedText& text);

}  // namespace heed::detail
