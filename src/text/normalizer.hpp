// Changes to a text before it is split into words: normal forms, case, accents, replacements.
#pragma once

#include <functional>

#include "text/shared/aligned.hpp"
#include "text/shared/json_part.hpp"

namespace heed::detail {

/// Several threads may use one.
using Normalizer = std::function<void(AlignedText& text)>;

/// Makes a normalizer from a tokenizer.json. Throws Error (io).
[[nodiscard]] Normalizer normalizer_from(const JsonPart& part);

}  // namespace heed::detail
