// Which target's kernels this process runs.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "attention/cpu/kernel/arguments.hpp"

namespace heed::detail::cpu {

/// A target of this build.
struct TargetEntry {
  std::string_view name;
  std::string_view description;
  std::vector<std::string_view> required;  ///< features of a processor
  Kernels (*kernels)();
};

/// All of them, the best first; the last one needs nothing.
const std::vector<TargetEntry>& target_entries();

/// The best one that a processor with these features can state.
const TargetEntry& best_target(const std::function<bool(std::string_view)>& processor_has);

/// The kernels that calls take: of the best target, or of the one that HEED_ISA or set_target names. Throws
/// heed::Error where HEED_ISA names what this machine does not have.
const Kernels& kernels();

}  // namespace heed::detail::cpu
