// The sums of the rows that the forward passes computed, for results that need them.
#pragma once

#include <span>

#include "attention/kernels/shared/arguments.hpp"

namespace heed::detail {

/// Each is [B, H, Lq], row-major. A weight is exp2(score - shift) * inverse.
struct RowSums {
  std::span<const cpu::RowStatus> status;
  std::span<const float> shift, inverse;
};

}  // namespace heed::detail
