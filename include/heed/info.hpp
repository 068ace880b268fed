// What this build of heed is, and what it makes of the machine that it runs on.
#pragma once

#include <string>
#include <vector>

#include "heed/export.hpp"

namespace heed {

struct Info {
  std::string version;     ///< "0.1.0"
  std::string compiler;    ///< "GNU 12.2.0"
  std::string build_type;  ///< "Release"
  std::string flags;       ///< compiler flags and sanitizers of the build
  std::string processor;   ///< the model as the system names it, or its architecture
  std::vector<std::string>
      features;        ///< instruction sets of the processor that matter here: "avx2", "fma", …
  std::string kernel;  ///< what Kernel::automatic takes: "reference" or "fused"
  std::string isa;     ///< its instruction set, as AttentionResult::isa gives it
  int threads = 1;     ///< what a call takes at most when it does not say
};

[[nodiscard]] HEED_API Info info();

}  // namespace heed
