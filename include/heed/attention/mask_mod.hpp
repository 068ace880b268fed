// A mask given as a compiled function of batch entry, head, query and key (FlexAttention's mask_mod).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "heed/attention/masks.hpp"
#include "heed/export.hpp"

namespace heed {

/// Sets visible[k] to 0 if query i may not see key key_begin + k; other entries stay.
using RestrictRow = void (*)(const void* function, std::int64_t b, std::int64_t h, std::int64_t i,
                             std::int64_t key_begin, std::int64_t key_end, std::uint8_t* visible);

/// A mask from a function that loops over the keys itself. Throws Error (invalid_argument) for an invalid
/// size and a null restrict_row.
[[nodiscard]] HEED_API SparseMask function_mask(std::shared_ptr<const void> function,
                                                RestrictRow restrict_row, std::int64_t batch,
                                                std::int64_t heads, std::int64_t query_length,
                                                std::int64_t key_length);

/// A mask of the pairs for which f(b, h, i, j) returns true; all four arguments are std::int64_t. Every call
/// evaluates f for each pair again, from several threads at once. No tile is known in advance to be empty or
/// full; to skip tiles, combine with a known mask by &, such as SparseMask::expression("j <= i", …). b runs
/// to `batch` and h to `heads`; a size of 1 serves all.
template <class F>
[[nodiscard]] SparseMask mask_mod(F f, std::int64_t batch, std::int64_t heads, std::int64_t query_length,
                                  std::int64_t key_length) {
  static_assert(std::is_invocable_r_v<bool, const F&, std::int64_t, std::int64_t, std::int64_t, std::int64_t>,
                "a mask function is called as f(b, h, i, j) and gives a bool");
  const auto restrict_row = [](const void* function, std::int64_t b, std::int64_t h, std::int64_t i,
                               std::int64_t key_begin, std::int64_t key_end, std::uint8_t* visible) {
    const F& allows = *static_cast<const F*>(function);
    for (std::int64_t j = key_begin; j < key_end; ++j)
      if (!allows(b, h, i, j)) visible[j - key_begin] = 0;
  };
  bool is_null = false;
  if constexpr (std::is_assignable_v<F&, std::nullptr_t>) is_null = f == nullptr;  // not a lambda
  return function_mask(std::make_shared<const F>(std::move(f)), is_null ? nullptr : +restrict_row, batch,
                       heads, query_length, key_length);
}

}  // namespace heed
