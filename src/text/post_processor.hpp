// Changes to the tokens of a text: special tokens are added around them, and spaces are trimmed off their
// spans.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "heed/model/tokenizer.hpp"
#include "text/shared/json_part.hpp"
#include "text/vocabulary.hpp"

namespace heed::detail {

/// Processes the tokens of the text. With `add_special` false only spans change. Throws Error
/// (invalid_argument) if it adds ids that are not tokens. Several threads may use one.
using PostProcessor = std::function<void(std::vector<TextToken>& tokens, std::string_view text,
                                         const TokenVocabulary& vocabulary, bool add_special)>;

/// Makes a post-processor from a tokenizer.json. Throws Error (io).
[[nodiscard]] PostProcessor post_processor_from(const JsonPart& part);

}  // namespace heed::detail
