// A Problem that is a part of another one, and the place of its rows and heads in the whole.
#pragma once

#include "attention/problem/problem.hpp"
#include "heed/attention/part.hpp"

namespace heed::detail {

/// Checks the part, and sets the Problem's members that describe the whole call.
void read_part(const CallPart& part, Problem& problem);

/// Reduces the segments of the whole call to the part's rows. Tells masks, the ScoreMod and dropout where
/// those rows stand in the whole.
void cut_to_part(const CallPart& part, Problem& problem);

}  // namespace heed::detail
