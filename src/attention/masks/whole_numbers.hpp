// Returns the numbers of an i64 or i32 tensor of any rank, in row-major order.
#pragma once

#include <string_view>
#include <vector>

#include "attention/problem/operands.hpp"
#include "core/message.hpp"

namespace heed::detail {

/// Throws for any other dtype.
inline std::vector<std::int64_t> whole_numbers_of(std::string_view name, const TensorView& view) {
  if (view.dtype() != DType::i64 && view.dtype() != DType::i32)
    refuse(name, " has dtype ", view.dtype(), "; i64 or i32 is expected");
  check_memory(name, view);
  const Tensor copy = Tensor::copy_of(view, DType::i64);
  return {copy.values<std::int64_t>().begin(), copy.values<std::int64_t>().end()};
}

}  // namespace heed::detail
