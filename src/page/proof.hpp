// What a check of a report found, as the page has it.
#pragma once

#include <nlohmann/json.hpp>

#include "heed/document.hpp"

namespace heed::detail {

/// Counts, each property with its deviation and what is allowed, and the size of the whole matrix in bytes.
/// A deviation that is no number is null.
[[nodiscard]] nlohmann::ordered_json proof_json(const DocumentCheck& check, const AttentionReport& report);

}  // namespace heed::detail
