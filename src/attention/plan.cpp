#include "attention/plan.hpp"

#include "attention/kernels.hpp"
#include "attention/message.hpp"

namespace heed::detail {

Plan make_plan(const Problem& problem, Kernel wanted) {
  const bool fused = wanted != Kernel::reference && fused_supports(problem);
  if (wanted == Kernel::fused && !fused)
    refuse(
        "kernel is fused, which does f32, f16 and bf16, head and value dimensions from 1 to 1024, top_k up "
        "to "
        "1024 and maps up to 32768 columns; automatic or reference is expected for this call");
  if (fused) return {Kernel::fused, fused_isa(), run_fused};
  return {Kernel::reference, "f64 reference", run_reference};
}

BackwardPlan make_backward_plan(const BackwardProblem&, Kernel wanted) {
  if (wanted == Kernel::fused)
    refuse("kernel is fused, which has no backward pass; automatic or reference is expected");
  return {Kernel::reference, "f64 reference", run_reference_backward};
}

}  // namespace heed::detail
