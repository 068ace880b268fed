// Properties of code points, and their UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/utf8.hpp"

namespace heed::detail {

[[nodiscard]] bool is_white_space(std::uint32_t point);      ///< Unicode's White_Space
[[nodiscard]] bool is_word(std::uint32_t point);             ///< letters, marks, digits, _ and joiners
[[nodiscard]] bool is_numeric(std::uint32_t point);          ///< categories N*
[[nodiscard]] bool is_punctuation(std::uint32_t point);      ///< categories P*, and all of ASCII's
[[nodiscard]] bool is_control(std::uint32_t point);          ///< categories Cc, Cf, Co
[[nodiscard]] bool is_of_unicode_9(std::uint32_t point);     ///< or still lacks a category and normal form
[[nodiscard]] bool is_nonspacing_mark(std::uint32_t point);  ///< category Mn
[[nodiscard]] bool is_mark(std::uint32_t point);             ///< categories M*

/// Maps a code point to lower case; for U+0130, which has two, the first.
[[nodiscard]] std::uint32_t lower_case(std::uint32_t point);

void append_utf8(std::uint32_t point, std::string& text);

/// The begin of the last code point of a text, which must not be empty.
[[nodiscard]] inline std::size_t begin_of_last(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && continues_letter(text[begin])) --begin;
  return begin;
}

}  // namespace heed::detail
