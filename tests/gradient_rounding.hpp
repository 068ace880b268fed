// The rounding of the fused backward pass, for compare_gradients.
#pragma once

#include <string_view>

#include "backward_call.hpp"
#include "processor.hpp"

namespace heed::test {

inline bool is_served_by_tiles(const BackwardCall& made, std::string_view target, DType dtype) {
  return multiplies_bf16(target) && made.call.query.dtype() == dtype &&
         made.inputs.grad_output.dtype() == dtype;
}

/// f32 arithmetic. The slack is the forward pass's (fused_rounding.hpp); it also covers the rounding of lse
/// to f32. Delta is computed from the rounded output, which adds half a unit of its dtype twice. In f16,
/// small outputs err by up to 2^-25 each. Matrix tiles round weights and their gradients to bf16.
inline Rounding gradient_rounding(const BackwardCall& made, std::string_view target) {
  const DType output = made.inputs.output.dtype();
  const bool rounds = is_served_by_tiles(made, target, DType::bf16);
  const double delta = (output == DType::bf16  ? 0x1p-8
                        : output == DType::f16 ? 0x1p-10
                                               : 0) +
                       (rounds ? 0x1p-8 : 0);
  return {
      .unit = 0x1p-24, .slack = 3, .weight_unit = delta, .floor = output == DType::f16 ? 0x1p-18 : 0x1p-100};
}

}  // namespace heed::test
