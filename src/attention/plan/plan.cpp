#include "attention/plan/plan.hpp"

#include "attention/plan/kernels.hpp"
#include "core/message.hpp"

namespace heed::detail {

Plan make_plan(const Problem& problem, Kernel wanted) {
  const bool fused = wanted != Kernel::reference && fused_supports(problem);
  if (wanted == Kernel::fused && !fused)
    refuse(
        "kernel is fused, which supports f32, f16 and bf16, head and value dimensions from 1 to 1024, top_k "
        "up "
        "to 1024 (of fewer than 2^31 keys) and maps up to 32768 columns; automatic or reference is expected "
        "for this call");
  if (fused) return {Kernel::fused, fused_isa(), run_fused};
  return {Kernel::reference, "f64 reference", run_reference};
}

BackwardPlan make_backward_plan(const BackwardProblem& problem, Kernel wanted) {
  const bool fused = wanted != Kernel::reference && fused_backward_supports(problem);
  if (wanted == Kernel::fused && !fused)
    refuse(
        "kernel is fused, whose backward pass supports f32, f16 and bf16, head and value dimensions from 1 "
        "to "
        "1024, but no gradient of the weights; automatic or reference is expected for this call");
  if (fused) return {Kernel::fused, fused_isa(), run_fused_backward};
  return {Kernel::reference, "f64 reference", run_reference_backward};
}

}  // namespace heed::detail
