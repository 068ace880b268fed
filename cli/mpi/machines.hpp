// What the cost model says of a call over these ranks.
#pragma once

#include <optional>

#include "attend_inputs.hpp"
#include "heed/distributed.hpp"
#include "heed/distributed_plan.hpp"

namespace heed::cli {

/// Nothing where the model cannot say.
[[nodiscard]] std::optional<distributed::SchemePlan> plan_of(const AttendInputs& inputs,
                                                             const distributed::Layout& layout,
                                                             const distributed::Machines& machines,
                                                             distributed::Scheme scheme, bool gradients);

}  // namespace heed::cli
