// The parts of a report in a page.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "heed/inspect/reports.hpp"
#include "page/block.hpp"

namespace heed::detail {

struct PageReport {
  nlohmann::ordered_json about;      ///< sizes, summaries of the heads, list of the other contents
  std::vector<PageBlock> overview;   ///< the blocks for the first picture
  std::vector<PageBlock> in_detail;  ///< the rest, head by head
  std::string left_out;              ///< the omitted parts, in words; "" for none
};

struct PageDetail {
  bool weights = true;     ///< every weight, if the report has them; else a map
  std::int64_t bins = 0;   ///< of the map, at most, per side; 0: as many as the report has
  bool curves = true;      ///< entropy and the like of each row, and `received` of each key
  std::int64_t most = -1;  ///< the limit in bytes; -1: none
};

/// Nothing if `detail` takes more bytes than its limit.
[[nodiscard]] std::optional<PageReport> page_report(const AttentionReport& report, const PageDetail& detail);

}  // namespace heed::detail
