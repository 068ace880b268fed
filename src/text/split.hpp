// Splitting words at the matches of a pattern.
#pragma once

#include "text/pattern.hpp"
#include "text/pre_tokenizer.hpp"
#include "text/shared/json_part.hpp"

namespace heed::detail {

/// What happens to a match: it is dropped, becomes a word of its own, joins the word before or after it, or
/// forms one word with adjacent matches.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// Reads the member "behavior" of a part, which is required if the fallback is empty. Throws Error (io).
[[nodiscard]] SplitBehavior split_behavior_from(const JsonPart& part, const std::string& fallback);

/// With `invert`, the text between matches is treated as the match.
void split(const Pattern& pattern, SplitBehavior behavior, bool invert, Words& words);

}  // namespace heed::detail
