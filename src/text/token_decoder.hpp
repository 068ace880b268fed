// Turning tokens back into text.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "text/shared/json_part.hpp"

namespace heed::detail {

/// Turns tokens into pieces of text, whose concatenation is the text. Several threads may use one.
using TokenDecoder = std::function<void(std::vector<std::string>& tokens)>;

/// Makes a decoder from a tokenizer.json. Throws Error (io).
[[nodiscard]] TokenDecoder token_decoder_from(const JsonPart& part);

}  // namespace heed::detail
