// Renders a chat template.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/chat/value.hpp"

namespace heed::detail::chat {

/// The output of a template whose variables have these values. Throws Error (invalid_argument), without
/// naming the template, for one that is broken, that takes too much, or that uses what heed does not know;
/// and with the template's own words for messages that it refuses.
[[nodiscard]] std::string rendered(std::string_view source,
                                   std::vector<std::pair<std::string, Value>> variables);

}  // namespace heed::detail::chat
