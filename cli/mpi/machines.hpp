// The cost model's prediction for a call over these ranks.
#pragma once

#include <optional>

#include "attend_inputs.hpp"
#include "heed/distributed/attention.hpp"
#include "heed/distributed/plan.hpp"

namespace heed::cli {

/// The predicted plan; nothing if the model cannot predict the call.
[[nodiscard]] std::optional<distributed::SchemePlan> plan_of(const AttendInputs& inputs,
                                                             const distributed::Layout& layout,
                                                             const distributed::Machines& machines,
                                                             distributed::Scheme scheme, bool gradients);

}  // namespace heed::cli
