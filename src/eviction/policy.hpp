#pragma once

#include "heed/eviction.hpp"

namespace heed::detail {

/// Throws Error (invalid_argument) where a member is out of its range.
void check(const EvictionPolicy& policy);

}  // namespace heed::detail
