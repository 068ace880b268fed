// The targets that this machine can run, in one process: what a test compares with is computed once for all.
// HEED_ISA leaves the one that it names.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "heed/targets.hpp"
#include "support.hpp"

namespace heed::test {

/// Names of this build's targets. While it lives, set_target may be called; then calls take the target of
/// before.
class EachTarget {
 public:
  EachTarget() {
    for (const Target& target : targets()) {
      if (target.chosen) before_ = target.name;
      if (is_forced_ && !target.chosen) continue;
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

  /// Emulations are slow: beside other targets, one makes one in `one_in` of the random calls. Of a share of
  /// the calls it makes twice as many, so that few calls still take all paths.
  [[nodiscard]] bool takes(std::string_view target, std::uint64_t index, std::uint64_t one_in) const {
    return !is_thinned(target) || index % (makes_all_calls() ? one_in : (one_in + 1) / 2) == 0;
  }
  /// How often all random calls together take each path of a target at least.
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
