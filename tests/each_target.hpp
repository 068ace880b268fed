// Runs a test on every target of this machine in one process, so that reference results are computed only
// once. HEED_ISA restricts it to one target.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "heed/attention/targets.hpp"
#include "support.hpp"

namespace heed::test {

/// The names of this build's targets. While an instance lives, set_target() may be called. The destructor
/// restores the previous target.
class EachTarget {
 public:
  EachTarget() {
    for (const Target& target : targets()) {
      if (target.chosen) before_ = target.name;
      if (is_forced_ && !target.chosen) continue;
#if defined(HEED_EMULATED)
      if (target.name == "plain") continue;  // no AArch64 processor takes it
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
  /// The targets that this processor does not support, such as "avx512, avx2"; empty if it supports all.
  [[nodiscard]] std::string missing() const {
    std::string names;
    for (const std::string& name : missing_) names += (names.empty() ? "" : ", ") + name;
    return names;
  }

  /// Returns whether `target` makes random call `index`. Emulations are slow: unless HEED_ISA forces one, it
  /// makes one in `one_in` of the calls. If HEED_TEST_SHARE skips calls, it makes twice that fraction, so
  /// that few calls still take all paths.
  [[nodiscard]] bool takes(std::string_view target, std::uint64_t index, std::uint64_t one_in) const {
    return !is_thinned(target) || index % (makes_all_calls() ? one_in : (one_in + 1) / 2) == 0;
  }
  /// The minimum number of times that all random calls together must take each path of a target.
  [[nodiscard]] std::uint64_t least_paths(std::string_view target) const {
    if (!is_thinned(target)) return 100;
    return makes_all_calls() ? 10 : 0;
  }

 private:
  [[nodiscard]] bool is_thinned(std::string_view target) const {
    return target.ends_with("emulated") && !is_forced_;
  }

  bool is_forced_ = std::getenv("HEED_ISA") != nullptr;
  std::vector<std::string> available_, missing_;
  std::string before_;
};

}  // namespace heed::test
