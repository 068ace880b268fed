// Packing of tensors of f32, bf16 or f16, with any strides, to f32: queries as scaled rows, keys as
// transposed panels, values as column panels. Packing also measures norms, so that tiles know in advance how
// large a score can be.
#pragma once

#include "attention/kernels/shared/halves.hpp"
#include "attention/kernels/shared/kv_source.hpp"

namespace heed::detail::HEED_ISA {

/// Returns the nearest finite float of a finite number. A number that exceeds f32 must not become an
/// infinity, because infinities forbid keys. Infinities and NaN stay what they are.
HEED_INLINE float narrowed(double x) {
  constexpr double kMax = 0x1.fffffep127;
  if (__builtin_isinf(x)) return x < 0 ? -__builtin_inff() : __builtin_inff();
  return static_cast<float>(x > kMax ? kMax : x < -kMax ? -kMax : x);
}

inline float read_float(const void* data, DType type, std::int64_t at) {
  switch (type) {
    case DType::f64:
      return narrowed(static_cast<const double*>(data)[at]);
    case DType::f32:
      return static_cast<const float*>(data)[at];
    case DType::bf16:
      return float_of_bits(std::uint32_t{static_cast<const std::uint16_t*>(data)[at]} << 16);
    default:
      return half_to_float(static_cast<const std::uint16_t*>(data)[at]);
  }
}

/// Copies `n` elements from `at` on, `stride` apart, as floats.
inline void read_row(const Operand& in, std::int64_t at, std::int64_t stride, std::int64_t n, float* to) {
  std::int64_t i = 0;
  if (stride == 1) {
    if (in.dtype == DType::f32) {
      const float* from = static_cast<const float*>(in.data) + at;
      for (; i + kLanes <= n; i += kLanes) store(to + i, load(from + i));
      if (i < n) store_first(to + i, n - i, load_first(from + i, n - i));
      return;
    }
    if (in.dtype == DType::bf16 || in.dtype == DType::f16) {
      const std::uint16_t* from = static_cast<const std::uint16_t*>(in.data) + at;
      for (; i + kLanes <= n; i += kLanes)
        store(to + i, in.dtype == DType::bf16 ? load_bf16(from + i) : load_f16(from + i));
    }
  }
  for (; i < n; ++i) to[i] = read_float(in.data, in.dtype, at + i * stride);
}

/// Packs one query row, multiplied by `scale` and padded with zeros to `padded`. Returns its sum of squares.
inline float pack_query(const Operand& query, std::int64_t at, std::int64_t depth, float scale, float* to,
                        std::int64_t padded) {
  Vf squares = zero();
  std::int64_t d = 0;
  if (query.dtype == DType::f32 && query.stride[3] == 1) {
    const float* from = static_cast<const float*>(query.data) + at;
    for (; d + kLanes <= depth; d += kLanes) {
      const Vf x = mul(load(from + d), splat(scale));
      store(to + d, x);
      squares = mul_add(x, x, squares);
    }
    if (d < padded) {
      const Vf x = mul(load_first(from + d, depth - d), splat(scale));
      store(to + d, x);
      squares = mul_add(x, x, squares);
    }
    return reduce_add(squares);
  }
  read_row(query, at, query.stride[3], depth, to);
  for (std::int64_t i = depth; i < padded; ++i) to[i] = 0;
  for (; d < padded; d += kLanes) {
    const Vf x = mul(load(to + d), splat(scale));
    store(to + d, x);
    squares = mul_add(x, x, squares);
  }
  return reduce_add(squares);
}

/// Rows from `first` on to prefetch; width 0: none.
struct RowPrefetch {
  HeadRows rows;
  std::int64_t first, width;
};

/// Prefetches one of them into the second-level cache.
HEED_INLINE void fetch_row(const RowPrefetch& ahead, std::int64_t row) {
  if (ahead.width == 0) return;
  const char* from = ahead.rows.address(ahead.first + row);
  for (std::int64_t byte = 0; byte < ahead.rows.bytes_of(ahead.width); byte += 64)
    __builtin_prefetch(from + byte, 0, 2);
}

/// Measurements of packed keys: the largest sum of squares of a key, and whether all sums of squares are
/// finite. The first is meaningless if the second is false.
struct Measure {
  float largest_square;
  bool in_range;
};

/// Packs keys, times `scale`, to panels [panel][depth][kPanel]; keys beyond the last one are zeros. `scratch`
/// holds kLanes rows of `padded` floats.
inline Measure pack_keys(const RowBlock& keys, float scale, float* to, float* scratch, std::int64_t padded,
                         const RowPrefetch& ahead = {}) {
  const auto [key, first, count, depth] = keys;
  const bool direct = key.has_floats();
  Vf largest = zero();
  Vf total = zero();
  const std::int64_t rounded = round_up(count, kPanel);
  for (std::int64_t k = 0; k < rounded; k += kLanes) {
    float* column = to + k / kPanel * (depth * kPanel) + k % kPanel;
    const std::int64_t valid = smaller(kLanes, count - k);
    for (std::int64_t r = 0; r < valid; ++r) fetch_row(ahead, k + r);
    if (valid <= 0) {
      for (std::int64_t d = 0; d < depth; ++d) store(column + d * kPanel, zero());
      continue;
    }
    const float* rows = key.floats(first + k);
    std::int64_t ld = key.row_stride();
    if (!direct || valid < kLanes) {
      for (std::int64_t r = 0; r < kLanes; ++r) {
        float* row = scratch + r * padded;
        if (r < valid) read_row(key.tensor, key.at(first + k + r), key.element_stride(), depth, row);
        for (std::int64_t d = r < valid ? depth : 0; d < padded; ++d) row[d] = 0;
      }
      rows = scratch;
      ld = padded;
    }
    Vf squares = zero();
    for (std::int64_t d = 0; d < depth; d += kLanes) {
      Vf block[kLanes];
      const std::int64_t width = smaller(kLanes, depth - d);
      if (width == kLanes) {
#pragma GCC unroll 16
        for (int r = 0; r < kLanes; ++r) block[r] = mul(load(rows + r * ld + d), splat(scale));
      } else {
#pragma GCC unroll 16
        for (int r = 0; r < kLanes; ++r) block[r] = mul(load_first(rows + r * ld + d, width), splat(scale));
      }
      transpose(block);
      if (width == kLanes) {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
          store(column + (d + i) * kPanel, block[i]);
          squares = mul_add(block[i], block[i], squares);
        }
      } else {
        alignas(64) float rest[kLanes * kLanes];
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) store(rest + i * kLanes, block[i]);
        for (std::int64_t i = 0; i < width; ++i) {
          const Vf x = load(rest + i * kLanes);
          store(column + (d + i) * kPanel, x);
          squares = mul_add(x, x, squares);
        }
      }
    }
    largest = maximum(largest, squares);
    total = add(total, squares);  // a sum keeps NaN and infinity, a maximum does not
  }
  return {reduce_max(largest), reduce_add(total) < 0x1p120f};
}

/// Packs values to column panels [panel][count][vectors * kLanes]. All panels have kValueVectors vectors,
/// except the last, which has the rest. Columns beyond the width are zeros.
inline void pack_values(const RowBlock& values, float* to, const RowPrefetch& ahead) {
  const auto [value, first, count, width] = values;
  const std::int64_t vectors = (width + kLanes - 1) / kLanes;
  const std::int64_t stride = value.element_stride();
  for (std::int64_t vector = 0; vector < vectors; vector += kValueVectors) {
    const std::int64_t here = smaller(kValueVectors, vectors - vector);
    const std::int64_t columns = smaller(here * kLanes, width - vector * kLanes);
    for (std::int64_t k = 0; k < count; ++k) {
      if (vector == 0) fetch_row(ahead, k);
      float* row = to + (vector * count + k * here) * kLanes;
      read_row(value.tensor, value.at(first + k) + vector * kLanes * stride, stride, columns, row);
      for (std::int64_t c = columns; c < here * kLanes; ++c) row[c] = 0;
    }
  }
}

}  // namespace heed::detail::HEED_ISA
