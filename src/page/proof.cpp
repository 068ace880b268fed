#include "page/proof.hpp"

#include <cmath>

namespace heed::detail {
namespace {

using Json = nlohmann::ordered_json;

// The bytes of all weights if they were stored.
double matrix_bytes(const AttentionReport& report) {
  const double cells = static_cast<double>(report.batch) * static_cast<double>(report.heads) *
                       static_cast<double>(report.queries) * static_cast<double>(report.keys);
  return cells * (report.dtype == DType::f64 ? 8 : 4);
}

}  // namespace

Json proof_json(const DocumentCheck& check, const AttentionReport& report) {
  Json lines = Json::array();
  for (const CheckLine& line : check.lines)
    lines.push_back({{"what", line.what},
                     {"deviation", std::isfinite(line.deviation) ? Json(line.deviation) : Json()},
                     {"allowed", line.allowed},
                     {"holds", line.holds()}});
  return {{"holds", check.holds()},
          {"rows", check.rows},
          {"keys", check.keys},
          {"bins", check.bins},
          {"nan_rows", check.nan_rows},
          {"lost_rows", check.lost_rows},
          {"bare_heads", check.bare_heads},
          {"matrix_bytes", matrix_bytes(report)},
          {"lines", lines}};
}

}  // namespace heed::detail
