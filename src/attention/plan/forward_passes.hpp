// Divides the rows of a forward pass into tasks, work items and spans.
#pragma once

#include <span>

#include "attention/plan/execution_plan.hpp"

namespace heed::detail {

/// Chooses the unit and the tiling of `call`, and plans the pass for these segments and at most `threads`
/// threads. `pass` may hold an older plan, whose memory is reused.
void plan_pass(const Problem& problem, const cpu::Arguments& call, std::span<const Segment> segments,
               int threads, ForwardPass& pass);

}  // namespace heed::detail
