// Converts std::bad_alloc to heed's Error. Checks and kernels need little memory beside the results, but even
// that allocation can fail.
#pragma once

#include <new>

#include "core/message.hpp"

namespace heed::detail {

template <class Work>
auto with_memory_errors(Work work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::out_of_memory, "not enough memory for the workspace of attention");
  }
}

}  // namespace heed::detail
