// The targets that the fused kernel is compiled for, one an instruction set, and which of them calls take.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heed/export.hpp"

namespace heed {

/// What a target multiplies tensors of a dtype in.
struct TargetFormat {
  std::string dtype;    ///< "f32"
  std::string format;   ///< "three bf16 parts by matrix tiles"
  std::string because;  ///< the figure that decided it; empty where nothing had to be decided
};

struct Target {
  std::string name;                   ///< "avx512bf16", as the environment variable HEED_ISA takes it
  std::string description;            ///< one line
  std::vector<std::string> required;  ///< features of a processor that it needs: "avx2", "fma", …
  bool available = false;             ///< whether this processor, and the system, has all of them
  bool chosen = false;                ///< whether calls take it
  std::string why;                    ///< why it is chosen or not: "the processor has no amx_tile"
  std::vector<TargetFormat> formats;  ///< of f32, bf16 and f16
};

/// All targets of this build, the best first. The first available one is chosen, unless HEED_ISA names
/// another. Throws Error (invalid_argument) where HEED_ISA names what this machine does not have.
[[nodiscard]] HEED_API std::vector<Target> targets();

/// Calls take this target from now on; not while calls are under way. Throws Error (invalid_argument) where
/// this build does not have it or this machine cannot run it.
HEED_API void set_target(std::string_view name);

}  // namespace heed
