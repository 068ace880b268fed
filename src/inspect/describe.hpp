// The options of a call in words.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "heed/attention.hpp"

namespace heed::detail {

/// What differs from the defaults, under the names that `heed attend` has for it, in the order of
/// AttentionOptions.
std::vector<std::pair<std::string, std::string>> describe_options(const AttentionOptions& options);

}  // namespace heed::detail
