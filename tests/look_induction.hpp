// Runs `heed look` on the induction model that comes with heed.
#pragma once

#include <string>
#include <vector>

#include "command.hpp"

namespace heed::test {

inline const std::string kInductionText = "to be or not to be or";

/// Runs heed look --model induction [text] more…
inline CommandResult look_at_induction(const std::vector<std::string>& more,
                                       const std::string& text = kInductionText) {
  std::vector<std::string> all = {"look", "--model", "induction"};
  if (!text.empty()) all.push_back(text);
  all.insert(all.end(), more.begin(), more.end());
  return run_heed(all);
}

}  // namespace heed::test
