// Tokens in readable form.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "heed/model/tokenizer.hpp"

namespace heed::detail {

/// Implements Tokenizer::shown. Every id must be a token.
[[nodiscard]] std::vector<std::string> shown_tokens(const Tokenizer& tokenizer,
                                                    std::span<const std::int64_t> ids);

}  // namespace heed::detail
