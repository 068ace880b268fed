// Detects results that would overwrite each other, or overwrite memory still to be read.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "attention/problem/problem.hpp"

namespace heed::detail {

/// Memory that a call reads besides the tensors of its Problem.
struct ReadMemory {
  const char* name;
  Operand view;
  std::array<std::int64_t, 4> size;
};

/// Throws if an output certainly shares memory with another output or with a tensor that the call reads.
/// Views that interleave without touching (the halves of a packed array) pass. So do the few overlaps that
/// only an element-by-element comparison would find.
void check_overlaps(const Problem& problem, std::span<const ReadMemory> more = {});
void check_overlaps(const BackwardProblem& problem);

}  // namespace heed::detail
