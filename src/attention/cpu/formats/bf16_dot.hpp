// Packing for products of bf16 pairs: the layouts of pack.hpp with two elements where that has one float.
// Queries and keys pair neighbours along their depth, values pair neighbouring keys. Nothing is rounded:
// elements are copied.
#pragma once

#include "attention/cpu/kernel/pack.hpp"

namespace heed::detail::HEED_ISA {

/// Copies `n` bf16 elements, `stride` apart, and zeros up to `padded`.
inline void copy_bf16(const std::uint16_t* from, std::int64_t stride, std::int64_t n, std::uint16_t* to,
                      std::int64_t padded) {
  if (stride == 1) {
    __builtin_memcpy(to, from, static_cast<std::size_t>(n) * sizeof *to);
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i] = from[i * stride];
  }
  for (std::int64_t i = n; i < padded; ++i) to[i] = 0;
}

HEED_INLINE Vf add_squares(Vf pairs, Vf sum) {
  const Vf low = low_halves(pairs);
  const Vf high = high_halves(pairs);
  return mul_add(low, low, mul_add(high, high, sum));
}

// The functions below are templates so that targets without bf16 dot products do not compile them.

/// Packs one query row, unscaled. Returns the sum of the squares that it has when scaled.
template <bool kBf16Dot>
float pack_query_bf16_dot(const Input& query, std::int64_t at, std::int64_t depth, float scale, float* to,
                          std::int64_t padded) {
  copy_bf16(static_cast<const std::uint16_t*>(query.data) + at, query.stride[3], depth,
            reinterpret_cast<std::uint16_t*>(to), 2 * padded);
  Vf squares = zero();
  for (std::int64_t d = 0; d < padded; d += kLanes) squares = add_squares(load(to + d), squares);
  return reduce_add(squares) * scale * scale;
}

/// Keys to panels [panel][(depth + 1) / 2][kPanel] of pairs. `scratch` holds kLanes rows of `padded` floats.
template <bool kBf16Dot>
Measure pack_keys_bf16_dot(const Input& key, std::int64_t at, std::int64_t count, std::int64_t depth,
                           float* to, float* scratch, std::int64_t padded) {
  const std::int64_t pairs = (depth + 1) / 2;
  Vf largest = zero();
  Vf total = zero();
  const std::int64_t rounded = round_up(count, kPanel);
  for (std::int64_t k = 0; k < rounded; k += kLanes) {
    float* column = to + k / kPanel * (pairs * kPanel) + k % kPanel;
    const std::int64_t valid = larger(0, smaller(kLanes, count - k));
    for (std::int64_t r = 0; r < kLanes; ++r)
      copy_bf16(
          static_cast<const std::uint16_t*>(key.data) + at + (k + smaller(r, valid - 1)) * key.stride[2],
          key.stride[3], r < valid ? depth : 0, reinterpret_cast<std::uint16_t*>(scratch + r * padded),
          2 * padded);
    Vf squares = zero();
    for (std::int64_t d = 0; d < pairs; d += kLanes) {
      Vf block[kLanes];
#pragma GCC unroll 16
      for (int r = 0; r < kLanes; ++r) block[r] = load(scratch + r * padded + d);
      transpose(block);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        if (d + i < pairs) store(column + (d + i) * kPanel, block[i]);
        squares = add_squares(block[i], squares);
      }
    }
    largest = maximum(largest, squares);
    total = add(total, squares);
  }
  return {reduce_max(largest), reduce_add(total) < 0x1p120f};
}

/// Values to column panels [panel][(count + 1) / 2][vectors * kLanes] of pairs; a last odd key is paired with
/// zeros.
template <bool kBf16Dot>
void pack_values_bf16_dot(const Input& value, std::int64_t at, std::int64_t count, std::int64_t width,
                          float* to) {
  const std::int64_t vectors = (width + kLanes - 1) / kLanes;
  const std::int64_t pairs = (count + 1) / 2;
  const std::uint16_t* data = static_cast<const std::uint16_t*>(value.data) + at;
  for (std::int64_t first = 0; first < vectors; first += kValueVectors) {
    const std::int64_t here = smaller(kValueVectors, vectors - first);
    for (std::int64_t p = 0; p < pairs; ++p)
      for (std::int64_t v = 0; v < here; ++v) {
        const std::int64_t column = (first + v) * kLanes;
        const std::int64_t columns = smaller(kLanes, width - column);
        const std::uint16_t* low = data + 2 * p * value.stride[2] + column * value.stride[3];
        const std::uint16_t* high = low + value.stride[2];
        const bool odd = 2 * p + 1 == count;
        std::uint16_t rest[2][kLanes];
        if (value.stride[3] != 1 || columns < kLanes || odd) {
          copy_bf16(low, value.stride[3], columns, rest[0], kLanes);
          copy_bf16(high, value.stride[3], odd ? 0 : columns, rest[1], kLanes);
          low = rest[0];
          high = rest[1];
        }
        store(to + (first * pairs + p * here + v) * kLanes, interleave_bf16(low, high));
      }
  }
}

}  // namespace heed::detail::HEED_ISA
