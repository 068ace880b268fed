// The table of heads as JSON and CSV.
#pragma once

#include <string>
#include <vector>

#include "look/heads_order.hpp"
#include "look/tables.hpp"

namespace heed::cli {

[[nodiscard]] Json heads_json(const Document& document, const std::vector<HeadSummary>& heads,
                              const Needle& needle);
[[nodiscard]] Json received_json(const Document& document, const std::vector<ReceivedKey>& keys);
[[nodiscard]] Json cost_json(const std::vector<CostLine>& cost);
[[nodiscard]] std::string heads_csv(const Document& document, const std::vector<HeadSummary>& heads);

}  // namespace heed::cli
