// A plan in words: the passes of a call, and the reasons for them.
#pragma once

#include "attention/plan/backward_plan.hpp"
#include "attention/plan/execution_plan.hpp"
#include "heed/attention/plan.hpp"

namespace heed::detail {

AttentionPlan in_words(const Problem& problem, const ExecutionPlan& plan);
/// Plans a call in words, whether it gathers keys or not.
AttentionPlan in_words(const Problem& problem, Kernel wanted);
AttentionPlan in_words(const BackwardProblem& problem, const BackwardPlan& plan);
AttentionPlan in_words(const BackwardProblem& problem, Kernel wanted);

}  // namespace heed::detail
