// Tokens as people read them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "heed/text_tokenizer.hpp"

namespace heed::detail {

/// What TextTokenizer::shown promises. Every id is a token.
[[nodiscard]] std::vector<std::string> shown_tokens(const TextTokenizer& tokenizer,
                                                    std::span<const std::int64_t> ids);

}  // namespace heed::detail
