// The targets that the fused kernel is compiled for, one an instruction set, and which of them calls take.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heed/export.hpp"

namespace heed {

struct Target {
  std::string name;                   ///< "avx512bf16", as the environment variable HEED_ISA takes it
  std::string description;            ///< one line
  std::vector<std::string> required;  ///< features of a processor that it needs: "avx2", "fma", …
  bool available = false;             ///< whether this processor, and the system, has all of them
  bool chosen = false;                ///< whether calls take it
  std::string why;                    ///< why it is chosen or not: "the processor has no amx_tile"
};

/// All targets of this build, the best first. The first available one is chosen, unless HEED_ISA names
/// another. Throws Error (invalid_argument) where HEED_ISA names what this machine does not have.
[[nodiscard]] HEED_API std::vector<Target> targets();

/// Calls take this target from now on; not while calls are under way. Throws Error (invalid_argument) where
/// this build does not have it or this machine cannot run it.
HEED_API void set_target(std::string_view name);

}  // namespace heed
