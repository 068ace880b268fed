// A Problem that is a part of another: where its rows and heads stand there.
#pragma once

#include "attention/call/problem.hpp"
#include "heed/part.hpp"

namespace heed::detail {

/// Checks the part, and sets what the Problem says of the whole.
void read_part(const CallPart& part, Problem& problem);

/// Leaves the part's rows of the segments, which are those of the whole, and tells masks, the ScoreMod and
/// dropout where they stand.
void cut_to_part(const CallPart& part, Problem& problem);

}  // namespace heed::detail
