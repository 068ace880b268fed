#pragma once

#include "heed/attention/eviction.hpp"

namespace heed::detail {

/// Throws Error (invalid_argument) if a member is out of range.
void check(const EvictionPolicy& policy);

}  // namespace heed::detail
