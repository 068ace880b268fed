// What a page holds of a report.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "heed/inspect.hpp"
#include "page/block.hpp"

namespace heed::detail {

struct PageReport {
  nlohmann::ordered_json about;      ///< sizes, summaries of the heads, what else is held
  std::vector<PageBlock> overview;   ///< what the first picture needs
  std::vector<PageBlock> in_detail;  ///< the rest, head by head
  std::string left_out;              ///< of the report, in words; "" for nothing
};

/// How much of a report a page holds.
struct PageDetail {
  bool weights = true;     ///< every weight, where the report has them; else a map
  std::int64_t bins = 0;   ///< of the map, a side at most; 0: as many as the report's
  bool curves = true;      ///< entropy and the like of each row, what each key received
  std::int64_t most = -1;  ///< bytes of all of it; -1: any
};

/// Nothing where `detail` takes more bytes than it may.
[[nodiscard]] std::optional<PageReport> page_report(const AttentionReport& report, const PageDetail& detail);

}  // namespace heed::detail
