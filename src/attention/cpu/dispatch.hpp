// Which kernel unit this machine runs.
#pragma once

#include "attention/cpu/call.hpp"

namespace heed::detail::cpu {

/// The best unit that the processor has, or the one named by the environment variable HEED_ISA. Chosen once.
/// Throws heed::Error where HEED_ISA names a unit that this build or this processor does not have.
const Kernels& kernels();

}  // namespace heed::detail::cpu
