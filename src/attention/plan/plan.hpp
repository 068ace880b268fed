// Choice of the kernel for a call.
#pragma once

#include "attention/plan/kernels.hpp"
#include "attention/problem/backward_problem.hpp"
#include "attention/problem/problem.hpp"

namespace heed::detail {

template <class Call>
struct PlanFor {
  Kernel name = Kernel::reference;
  std::string_view isa;
  KernelRun (*kernel)(const Call&) = nullptr;
};
using Plan = PlanFor<Problem>;
using BackwardPlan = PlanFor<BackwardProblem>;

/// These throw if the kernel asked for cannot take this call.
Plan make_plan(const Problem& problem, Kernel wanted);
BackwardPlan make_backward_plan(const BackwardProblem& problem, Kernel wanted);

}  // namespace heed::detail
