// Whether results would be written over each other, or over what is still to be read.
#pragma once

#include "attention/call/backward_problem.hpp"
#include "attention/call/problem.hpp"

namespace heed::detail {

/// Throws where an output surely shares memory with another output or with a tensor that the call reads.
/// Views that interleave without touching (the halves of a packed array) pass, and so do the few overlaps
/// that only a comparison of every element would find.
void check_overlaps(const Problem& problem);
void check_overlaps(const BackwardProblem& problem);

}  // namespace heed::detail
