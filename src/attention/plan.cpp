#include "attention/plan.hpp"

#include "attention/kernels.hpp"
#include "attention/message.hpp"

namespace heed::detail {

Plan make_plan(const Problem&, Kernel wanted) {
  if (wanted == Kernel::fused)
    refuse("kernel is fused, and this build has no fused kernel; automatic or reference is expected");
  return {{Kernel::reference, "f64 reference", 1}, run_reference};
}

}  // namespace heed::detail
