// Proof that what is shown is so: rows, keys and bins of the map computed again, plainly (look/plain.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "look/answer.hpp"

namespace heed::cli {

/// One property, and how far the worst of what was checked is from it.
struct CheckLine {
  std::string what;
  double deviation = 0;  ///< relative to the size of what is compared
  double allowed = 0;    ///< where deviation / allowed is largest
  [[nodiscard]] bool holds() const { return deviation <= allowed; }  // NaN does not
};

struct Check {
  std::int64_t rows = 0;       ///< of all heads asked for, whose figures were all compared
  std::int64_t nan_rows = 0;   ///< besides: that they are NaN was checked
  std::int64_t lost_rows = 0;  ///< besides: scores so large that rounding leaves nothing to compare
  std::int64_t keys = 0;       ///< what they received was compared
  std::int64_t bins = 0;       ///< of the map
  /// Batch entry and head: none of its rows could be compared.
  std::vector<std::pair<std::int64_t, std::int64_t>> bare_heads;
  bool output = true;  ///< weights times values were compared with the output
  std::vector<CheckLine> lines;
  [[nodiscard]] bool holds() const;
};

/// Takes `rows` rows of every head asked for, the first and last among them, evenly. For each the scores are
/// computed in f64 from query and key, one by one, and from them all that the report says of the row. As many
/// keys and bins of the map are summed again, with the report's lse of each row, and the means of the summary
/// are taken again from the figures of the rows.
[[nodiscard]] Check check_report(const Subject& subject, const LookArguments& arguments);

}  // namespace heed::cli
