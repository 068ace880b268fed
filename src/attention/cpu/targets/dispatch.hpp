// Which target's kernels this process runs.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "heed/export.hpp"

#include "attention/cpu/kernel/arguments.hpp"

namespace heed::detail::cpu {

/// What a dtype is multiplied in, and the figure that decided it.
struct FormatEntry {
  std::string_view dtype, format, because;
};

/// A target of this build.
struct TargetEntry {
  std::string_view name;
  std::string_view description;
  std::vector<std::string_view> required;  ///< features of a processor
  std::vector<Kernels (*)()> units;        ///< the last one computes everything
  std::vector<FormatEntry> formats;
  std::string_view passed_over_on = {};  ///< the vendor on whose processors the next one is taken instead
  std::string_view passed_over_because = {};  ///< and the figure that decided it
};

/// The kernels of a target: each call goes to the first unit that takes it.
class TargetKernels {
 public:
  explicit TargetKernels(const TargetEntry& entry);
  [[nodiscard]] std::string_view name() const { return name_; }
  [[nodiscard]] const Kernels& forward(const Arguments& call) const;
  [[nodiscard]] const Kernels& weights_pass(const Arguments& call) const;
  [[nodiscard]] const Kernels& backward(const BackwardArguments& call) const;
  /// The unit that computes everything, scores among it.
  [[nodiscard]] const Kernels& all() const { return units_.back(); }

 private:
  std::string_view name_;
  std::vector<Kernels> units_;
};

/// All of them, the best first.
const std::vector<TargetEntry>& target_entries();

/// The first one that a processor of this vendor with these features can run and where it is not passed over.
const TargetEntry& best_target(const std::function<bool(std::string_view)>& processor_has,
                               std::string_view vendor);

/// What serves a vendor's processors.
ReadAhead read_ahead(std::string_view vendor);

/// The kernels that calls take: of the best target, or of the one that HEED_ISA or set_target names. Throws
/// heed::Error where HEED_ISA names what this machine does not have.
HEED_API const TargetKernels& kernels();

}  // namespace heed::detail::cpu
