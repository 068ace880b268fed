#include "look/check.hpp"

#include <cstdio>
#include <ostream>

#include "draw/lettering.hpp"
#include "heed/error.hpp"
#include "look/print.hpp"

namespace heed::cli {
namespace {

std::string count_text(std::int64_t count, const char* one) {
  return std::to_string(count) + " " + one + (count == 1 ? "" : "s");
}

}  // namespace

void print_check(const TextOutput& output, const Document& document, const DocumentCheck& check) {
  std::string counts = "checked in f64: " + count_text(check.rows, "row");
  if (check.keys > 0) counts += ", " + count_text(check.keys, "key");
  if (check.bins > 0) counts += ", " + count_text(check.bins, "bin") + " of the map";
  output.stream << '\n' << counts << '\n';
  if (check.nan_rows > 0) output.stream << count_text(check.nan_rows, "row") << " of NaN, not compared\n";
  if (check.lost_rows > 0)
    output.stream << count_text(check.lost_rows, "row")
                  << " not compared: rounding leaves nothing of such scores\n";
  for (const auto& [batch, head] : check.bare_heads)
    output.stream << plane_text(document, batch, head) << ": no row could be compared\n";
  if (!check.output && !document.has_value)
    output.stream << "the output was not rebuilt: the document holds no values\n";
  else if (!check.output)
    output.stream << "the output was not rebuilt: dropout drops some of its weights\n";
  for (const CheckLine& line : check.lines) {
    char text[64];
    std::snprintf(text, sizeof text, "%9.2e  (at most %.2e)", line.deviation, line.allowed);
    output.stream << left_aligned(line.what, 42) << text << (line.holds() ? "" : "  MISMATCH") << '\n';
  }
}

Json checks_json(const DocumentCheck& check) {
  Json list = Json::array();
  for (const CheckLine& line : check.lines)
    list.push_back({{"what", line.what},
                    {"deviation", line.deviation},
                    {"allowed", line.allowed},
                    {"holds", line.holds()}});
  return list;
}

Json checked_json(const DocumentCheck& check) {
  return {{"rows", check.rows},
          {"nan_rows", check.nan_rows},
          {"lost_rows", check.lost_rows},
          {"keys", check.keys},
          {"bins", check.bins}};
}

void require_that_it_holds(const DocumentCheck& check, const std::string& option) {
  if (!check.holds())
    throw Error(ErrorCode::internal, option + " found a mismatch: what is shown is not what was computed");
  if (check.rows > 0) return;
  const bool nan = check.nan_rows > 0 && check.lost_rows == 0;
  throw Error(ErrorCode::internal,
              option + " could compare no row: " +
                  (nan                   ? "all that it took are NaN"
                   : check.lost_rows > 0 ? "rounding leaves nothing of scores as large as these"
                                         : "there is none"));
}

}  // namespace heed::cli
