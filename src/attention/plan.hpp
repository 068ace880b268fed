// Which kernel a call takes.
#pragma once

#include "attention/problem.hpp"

namespace heed::detail {

struct Plan {
  Kernel name = Kernel::reference;
  std::string_view isa;
  int (*kernel)(const Problem&) = nullptr;  ///< what is called; returns how many threads it used
};

/// Throws where the kernel asked for cannot do this call.
Plan make_plan(const Problem& problem, Kernel wanted);

}  // namespace heed::detail
