// The plan of a backward call. Like ExecutionPlan, it depends on no number in the tensors.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "attention/kernels/shared/backward_arguments.hpp"
#include "attention/problem/problem.hpp"

namespace heed::detail {

struct BackwardPlan {
  /// Throws if the kernel asked for cannot take this call.
  BackwardPlan(const BackwardProblem& problem, Kernel wanted);
  /// A plan of some tasks of a call that the fused kernel takes.
  BackwardPlan(const BackwardProblem& problem, std::vector<cpu::BackwardTask> some_tasks);

  Kernel kernel = Kernel::reference;
  std::string_view isa = "f64 reference";

  // The rest is for the fused kernel.
  int threads = 1;                       ///< most threads of a phase
  cpu::BackwardArguments call{};         ///< without the memory that belongs to a run
  bool sums_bias = false;                ///< several scores share a bias, whose gradients are summed in f64
  std::vector<cpu::BackwardTask> tasks;  ///< without their memory
  /// First task of each phase, and the end. Phases run one after the other; tasks of one share no bias.
  std::vector<std::size_t> phases;
  const cpu::Kernels* unit = nullptr;  ///< of all heads at first
  /// The unit of heads with rows that f32 cannot hold. They run again, without those rows.
  const cpu::Kernels* unit_of_failed = nullptr;
  cpu::BackwardTiling tiling{}, tiling_of_failed{};
  const cpu::Kernels* lse_unit = nullptr;  ///< recomputes the rows' sums where the given lse is too coarse
  cpu::Tiling lse_tiling{};

 private:
  void plan_fused(const BackwardProblem& problem);
};

}  // namespace heed::detail
