// The targets of the fused kernel, one per instruction set, and the choice between them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heed/export.hpp"

namespace heed {

/// The format in which a target multiplies tensors of a dtype.
struct TargetFormat {
  std::string dtype;    ///< "f32"
  std::string format;   ///< "three bf16 parts by matrix tiles"
  std::string because;  ///< the measurement that decided it; empty if there was no choice
};

/// An instruction set that the kernel is compiled for.
struct Target {
  std::string name;                   ///< "avx512bf16", as the environment variable HEED_ISA takes it
  std::string description;            ///< one line
  std::vector<std::string> required;  ///< required processor features: "avx2", "fma", …
  bool available = false;             ///< whether processor and system support all of them
  bool chosen = false;                ///< whether calls use it
  std::string why;                    ///< reason for `chosen`: "the processor has no amx_tile"
  std::vector<TargetFormat> formats;  ///< formats of f32, bf16 and f16
};

/// All targets of this build, the best first. The first available one is chosen unless HEED_ISA names
/// another. Throws Error (invalid_argument) if HEED_ISA names a target that this machine lacks.
[[nodiscard]] HEED_API std::vector<Target> targets();

/// Selects the target for all later calls. Must not run while calls are in progress. Throws Error
/// (invalid_argument) if this build lacks the target or this machine cannot run it.
HEED_API void set_target(std::string_view name);

}  // namespace heed
