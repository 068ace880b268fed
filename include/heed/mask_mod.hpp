// A mask as a function of batch entry, head, query and key, compiled (FlexAttention's mask_mod).
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "heed/export.hpp"
#include "heed/masks.hpp"

namespace heed {

/// visible[k] becomes 0 where query i may not see key key_begin + k; else it stays.
using RestrictRow = void (*)(const void* function, std::int64_t b, std::int64_t h, std::int64_t i,
                             std::int64_t key_begin, std::int64_t key_end, std::uint8_t* visible);

/// For those who write the loop over keys themselves. Throws Error (invalid_argument) for a size that is no
/// size.
[[nodiscard]] HEED_API SparseMask function_mask(std::shared_ptr<const void> function,
                                                RestrictRow restrict_row, std::int64_t batch,
                                                std::int64_t heads, std::int64_t query_length,
                                                std::int64_t key_length);

/// What f(b, h, i, j) allows, all four std::int64_t. It is asked about each pair anew in every call, by
/// several threads at once, and of no tile it is known beforehand that all or nothing is allowed: add what is
/// known so by &, as SparseMask::expression("j <= i", …). b counts to `batch` and h to `heads`; 1 serves all.
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
  return function_mask(std::make_shared<const F>(std::move(f)), restrict_row, batch, heads, query_length,
                       key_length);
}

}  // namespace heed
