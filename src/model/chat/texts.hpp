// Python's str methods, in code points.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/value.hpp"

namespace heed::detail::chat {

[[nodiscard]] std::vector<std::string_view> characters_of(std::string_view text, Work& work);

/// The position of `part` from `from` on, or npos; in time linear in the text.
[[nodiscard]] std::size_t find_in(std::string_view text, std::string_view part, std::size_t from = 0);

enum class Side { both, left, right };
/// str.strip(): without whitespace, or the given characters, at its ends.
[[nodiscard]] std::string_view stripped(std::string_view text, const std::optional<std::string>& characters,
                                        Side side, Work& work);
/// str.split() and, from the right, str.rsplit(), with at most `most` cuts, or any number if negative.
[[nodiscard]] std::vector<Value> split_text(std::string_view text,
                                            const std::optional<std::string>& separator, std::int64_t most,
                                            bool from_right, Work& work);
[[nodiscard]] std::string replaced(std::string_view text, std::string_view old, std::string_view by,
                                   std::int64_t most, Work& work);

/// `title` is str.title(); `words` is Jinja's filter, whose words begin behind spaces and ( { [ < -.
enum class Case { upper, lower, title, words, capitalized };
/// Throws Error (invalid_argument) for letters beyond ASCII.
[[nodiscard]] std::string in_case(std::string_view text, Case wanted);

}  // namespace heed::detail::chat
