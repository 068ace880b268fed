// Which kernel a call takes.
#pragma once

#include "attention/problem.hpp"

namespace heed::detail {

struct Plan {
  AttentionRun run;                          ///< what the caller is told
  void (*kernel)(const Problem&) = nullptr;  ///< what is called
};

/// Throws where the kernel asked for cannot do this call.
Plan make_plan(const Problem& problem, Kernel wanted);

}  // namespace heed::detail
