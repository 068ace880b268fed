// Detects results that would overwrite each other, or overwrite memory still to be read.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "attention/problem/problem.hpp"

namespace heed::detail {

/// Memory that a call or a cache uses.
struct MemoryUse {
  const char* name;
  Operand view;
  std::array<std::int64_t, 4> size;
};

/// Throws if `written` certainly shares memory with `other`.
void check_overlap(const MemoryUse& written, const MemoryUse& other);
/// False if the two certainly share no memory, because one ends before the other begins.
bool may_overlap(const MemoryUse& a, const MemoryUse& b);
/// Throws if an output certainly shares memory with another output or with a tensor that the call reads;
/// `more` are read, too.
/// Views that interleave without touching (the halves of a packed array) pass. So do the few overlaps that
/// only an element-by-element comparison would find.
void check_overlaps(const Problem& problem, std::span<const MemoryUse> more = {});
void check_overlaps(const BackwardProblem& problem);

}  // namespace heed::detail
