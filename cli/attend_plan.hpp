// heed attend --plan: how a call would run.
#pragma once

#include <string>

#include "attend_arguments.hpp"
#include "attend_inputs.hpp"

namespace heed::cli {

[[nodiscard]] std::string name_of(Kernel kernel);

/// Prints the plan of the call, and of its backward pass if a gradient is asked for; computes nothing.
void print_plan(const AttendArguments& arguments, const AttendInputs& inputs);

}  // namespace heed::cli
