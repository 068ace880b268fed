// Information on this build of heed and on the machine.
#pragma once

#include <string>
#include <vector>

#include "heed/export.hpp"

namespace heed {

/// The library's build, and the processor that it runs on.
struct Info {
  std::string version;                ///< "0.1.0"
  std::string compiler;               ///< "GNU 12.2.0"
  std::string build_type;             ///< "Release"
  std::string flags;                  ///< compiler flags and sanitizers of the build
  std::string processor;              ///< model name from the system, or the architecture
  std::vector<std::string> features;  ///< relevant instruction sets of the processor: "avx2", "fma", …
  std::string kernel;                 ///< what Kernel::automatic selects: "reference" or "fused"
  std::string isa;                    ///< its instruction set, as in AttentionResult::isa
  int threads = 1;                    ///< default number of threads of a call
};

/// Describes this build of heed and this machine.
[[nodiscard]] HEED_API Info info();

}  // namespace heed
