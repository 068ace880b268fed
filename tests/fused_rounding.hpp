// The rounding of the fused kernel, for compare_results.
#pragma once

#include <string_view>

#include "compare_results.hpp"
#include "heed/attention/attention.hpp"
#include "processor.hpp"

namespace heed::test {

/// f32 arithmetic. The bound of compare_results counts roundings; the slack covers the rest. exp2 errs by up
/// to 1.6 units more than a rounding. Scores are in units of log 2 (two more roundings). softcap's tanh errs
/// by 2.5 ulp. Weights below 2^-125 of the largest are 0; the values of the calls are far below 2^15. A
/// weight that is rounded to bf16 errs by up to 2^-8 of itself: bf16 has 8 significant bits.
inline Rounding fused_rounding(DType dtype, const AttentionOptions& options, std::string_view isa) {
  const bool rounds_weights = multiplies_bf16(isa) && dtype == DType::bf16 &&
                              options.output_dtype.value_or(DType::bf16) == DType::bf16;
  return {.unit = 0x1p-24, .slack = 3, .weight_unit = rounds_weights ? 0x1p-8 : 0, .floor = 0x1p-110};
}

}  // namespace heed::test
