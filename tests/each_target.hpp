// The targets that this machine can run, in one process: what a test compares with is computed once for all.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "heed/targets.hpp"

namespace heed::test {

/// Names of this build's targets. While it lives, set_target may be called; then calls take the target of
/// before.
class EachTarget {
 public:
  EachTarget() {
    for (const Target& target : targets()) {
      if (target.chosen) before_ = target.name;
#if defined(HEED_EMULATED)
      if (target.name.ends_with("emulated")) continue;  // on an emulated processor
#endif
      (target.available ? available_ : missing_).push_back(target.name);
    }
  }
  ~EachTarget() { set_target(before_); }
  EachTarget(const EachTarget&) = delete;
  EachTarget& operator=(const EachTarget&) = delete;

  [[nodiscard]] const std::vector<std::string>& available() const { return available_; }
  [[nodiscard]] bool has(std::string_view name) const {
    return std::find(available_.begin(), available_.end(), name) != available_.end();
  }
  /// "avx512, avx2": what this processor lacks; empty where it has all.
  [[nodiscard]] std::string missing() const {
    std::string names;
    for (const std::string& name : missing_) names += (names.empty() ? "" : ", ") + name;
    return names;
  }

 private:
  std::vector<std::string> available_, missing_;
  std::string before_;
};

}  // namespace heed::test
