// Proof that what is shown is so: rows computed again, plainly.
#pragma once

#include <string>
#include <vector>

#include "look/answer.hpp"

namespace heed::cli {

/// One property, and how far the worst of the rows is from it.
struct CheckLine {
  std::string what;
  double deviation = 0;  ///< relative to the size of what is compared
  double allowed = 0;    ///< for the row where deviation / allowed is largest
  [[nodiscard]] bool holds() const { return deviation <= allowed; }  // NaN does not
};

/// Takes `rows` rows of every head asked for, the first and last among them, evenly. For each the scores are
/// computed in f64 from query and key, one by one, and from them all that the report says of the row. Then
/// what was received and the rows of the map must sum to the rows.
[[nodiscard]] std::vector<CheckLine> check_report(const Subject& subject, const LookArguments& arguments);

}  // namespace heed::cli
