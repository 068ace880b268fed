// What a page holds of a report.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "heed/report.hpp"
#include "page/block.hpp"

namespace heed::detail {

struct PageReport {
  nlohmann::ordered_json about;      ///< sizes, summaries of the heads, what else is held
  std::vector<PageBlock> overview;   ///< what the first picture needs
  std::vector<PageBlock> in_detail;  ///< the rest, head by head
};

[[nodiscard]] PageReport page_report(const AttentionReport& report);

}  // namespace heed::detail
