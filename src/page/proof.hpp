// The result of a report's check, as JSON for the page.
#pragma once

#include <nlohmann/json.hpp>

#include "heed/inspect/document.hpp"

namespace heed::detail {

/// Counts, each property with its deviation and its bound, and the size of the whole matrix in bytes. A
/// deviation of NaN is null.
[[nodiscard]] nlohmann::ordered_json proof_json(const DocumentCheck& check, const AttentionReport& report);

}  // namespace heed::detail
