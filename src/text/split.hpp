// Cutting words at the matches of a pattern.
#pragma once

#include "text/pattern.hpp"
#include "text/pre_tokenizer.hpp"
#include "text/shared/json_part.hpp"

namespace heed::detail {

/// What becomes of a match: it goes, is a word of its own, belongs to the word before or after it, or is one
/// word with the matches next to it.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// The member "behavior" of a part; an empty fallback: it must be there. Throws Error (io).
[[nodiscard]] SplitBehavior split_behavior_from(const JsonPart& part, const std::string& fallback);

/// With `invert`, what lies between the matches counts as the match.
void split(const Pattern& pattern, SplitBehavior behavior, bool invert, Words& words);

}  // namespace heed::detail
