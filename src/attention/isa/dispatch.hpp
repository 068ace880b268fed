// Choice of the target whose kernels this process runs.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "heed/export.hpp"

#include "attention/kernels/shared/arguments.hpp"

namespace heed::detail::cpu {

/// The format in which a dtype is multiplied, and the measurement behind that choice. `heed info` prints
/// both; the order of a target's units decides.
struct FormatEntry {
  std::string_view dtype, format, because;
};

/// A target of this build.
struct TargetEntry {
  std::string_view name;
  std::string_view description;
  std::vector<std::string_view> required;  ///< required processor features
  std::vector<Kernels (*)()> units;        ///< the last one computes everything
  std::vector<FormatEntry> formats;
  std::string_view passed_over_on = {};       ///< vendor on whose processors the next target is used instead
  std::string_view passed_over_because = {};  ///< the measurement behind that
};

/// The kernels of a target; each call uses the first unit that takes it.
class TargetKernels {
 public:
  explicit TargetKernels(const TargetEntry& entry);
  [[nodiscard]] std::string_view name() const { return name_; }
  [[nodiscard]] std::span<const Kernels> units() const { return units_; }
  [[nodiscard]] const Kernels& forward(const Arguments& call) const;
  [[nodiscard]] const Kernels& weights_pass(const Arguments& call) const;
  [[nodiscard]] const Kernels& backward(const BackwardArguments& call) const;
  /// The unit that computes everything, including scores.
  [[nodiscard]] const Kernels& all() const { return units_.back(); }
  /// The unit that multiplies bf16 with weights, or nullptr.
  [[nodiscard]] const Kernels* bf16_panels() const {
    for (const Kernels& unit : units_)
      if (unit.add_bf16_panel != nullptr) return &unit;
    return nullptr;
  }

 private:
  std::string_view name_;
  std::vector<Kernels> units_;
};

/// All targets, the best first.
const std::vector<TargetEntry>& target_entries();

/// Returns the first target that a processor of this vendor with these features can run, and that is not
/// passed over. Throws heed::Error if there is none: a build for one processor can be moved to another.
const TargetEntry& best_target(const std::function<bool(std::string_view)>& processor_has,
                               std::string_view vendor,
                               std::span<const TargetEntry> entries = target_entries());

/// The best prefetch distances for a vendor's processors.
ReadAhead read_ahead(std::string_view vendor);

/// The kernels that calls use. They belong to the best target, or to the one that HEED_ISA or set_target
/// names. Throws heed::Error if HEED_ISA names a target that this machine does not have.
HEED_API const TargetKernels& kernels();

}  // namespace heed::detail::cpu
