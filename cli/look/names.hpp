// Names of heads, as tables print them.
#pragma once

#include <string>

#include "heed/inspect/reports.hpp"

namespace heed::cli {

/// The name. "too few rows (1)" if there are too few rows to name the head.
[[nodiscard]] std::string name_text(const HeadSummary& head);
/// The score behind the name: "0.66", or "0.66*" for a score without the first key's weight. Empty without a
/// name.
[[nodiscard]] std::string score_text(const HeadSummary& head);
/// "then first-token sink 0.52", or "nearest local 0.41" without a name, or empty.
[[nodiscard]] std::string runner_up_text(const HeadSummary& head);
/// Whether one of these texts contains a *, which kRestNote explains.
[[nodiscard]] bool tells_of_rest(const HeadSummary& head);
inline constexpr const char* kRestNote = "* share of the weight that is not on the first key";

}  // namespace heed::cli
