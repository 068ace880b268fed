// What a text is cut at, or what is replaced in it: a string, a regular expression, a kind of code points.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/regex.hpp"
#include "text/shared/aligned.hpp"
#include "text/shared/json_part.hpp"

namespace heed::detail {

/// Immutable; several threads may use one.
class Pattern {
 public:
  virtual ~Pattern() = default;
  /// The matches, in order, apart from each other.
  [[nodiscard]] virtual std::vector<TextRange> find(std::string_view text) const = 0;
};

/// The member "pattern" of a part: {"String": …} or {"Regex": …}. Throws Error (io).
[[nodiscard]] std::unique_ptr<const Pattern> pattern_from(const JsonPart& part);
/// Matches of the regular expression. Throws Error (io).
[[nodiscard]] std::unique_ptr<const Pattern> regex_pattern(const std::string& regex, const JsonPart& part);
/// Matches of the string, which is not empty.
[[nodiscard]] std::unique_ptr<const Pattern> string_pattern(std::string string);
/// Each code point for which the function holds.
[[nodiscard]] std::unique_ptr<const Pattern> point_pattern(bool (*holds)(std::uint32_t point));

/// Puts the content in place of each match. It comes from the last code point of the match.
void replace(const Pattern& pattern, std::string_view content, AlignedText& text);
/// Puts a prefix before a text that is not empty. It comes from the first code point of the text.
void prepend(std::string_view prefix, AlignedText& text);

}  // namespace heed::detail
