// Describes a random call, for the message of a failed test.
#pragma once

#include <string>

#include "random_call.hpp"

namespace heed::test {

/// Seed, tensors, and the options as flags of `heed attend`.
std::string describe(const RandomCall& call);

}  // namespace heed::test
