// The options of a call in words, and the words of its rows and keys.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "heed/attention.hpp"

namespace heed::detail {

/// What differs from the defaults, under the names that `heed attend` has for it, in the order of
/// AttentionOptions.
std::vector<std::pair<std::string, std::string>> describe_options(const AttentionOptions& options);

/// Throws Error (invalid_argument) unless there are none, or as many as `of` is long.
void check_tokens(const char* name, const std::vector<std::string>& tokens, std::int64_t expected,
                  const char* of);

}  // namespace heed::detail
