// A Problem as the plain Call that kernel units take.
#pragma once

#include "attention/cpu/call.hpp"
#include "attention/problem.hpp"

namespace heed::detail {

cpu::Input input_of(const Operand& from);
cpu::Output output_of(const Target& to);

/// All of it: inputs, options and results.
cpu::Call call_of(const Problem& problem);

}  // namespace heed::detail
