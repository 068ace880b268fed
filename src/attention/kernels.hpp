// The kernels. Each takes a checked Problem and writes every result that it has a Target for; none decides,
// checks or allocates results. A new one is a new file, a line here and a line in plan.cpp.
#pragma once

#include "attention/problem.hpp"

namespace heed::detail {

/// In f64, one row at a time, on one thread: the oracle that the others are tested against.
void run_reference(const Problem& problem);

}  // namespace heed::detail
