// A matrix product in f64, for rows that f32 cannot hold. Each product and each sum is rounded separately, so
// every target gives the same bits.
#pragma once

#include "attention/kernels/shared/arguments.hpp"

namespace heed::detail::HEED_ISA {

inline constexpr std::size_t kDoubles = kLanes / 2;
using Vd = double __attribute__((vector_size(kDoubles * sizeof(double))));

HEED_INLINE void load_doubles(Vd& to, const double* from) { __builtin_memcpy(&to, from, sizeof to); }

/// Computes kRows rows of c from `row` on, in kVectors vectors from `column` on.
template <std::size_t kRows, std::size_t kVectors>
void add_f64_tile(const cpu::F64Product& x, std::int64_t row, std::int64_t column) {
  constexpr int kHigh = kRows, kWide = kVectors;
  double* c = x.c + row * x.c_row + column;
  const double *a = x.a + row * x.a_row, *b = x.b + column;
  Vd sum[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kHigh; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kWide; ++v) load_doubles(sum[r][v], c + r * x.c_row + v * std::int64_t{kDoubles});
  for (std::int64_t k = 0; k < x.depth; ++k, a += x.a_step, b += x.b_row) {
    Vd term[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kWide; ++v) load_doubles(term[v], b + v * std::int64_t{kDoubles});
#pragma GCC unroll 4
    for (int r = 0; r < kHigh; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kWide; ++v) sum[r][v] += a[r * x.a_row] * term[v];
  }
#pragma GCC unroll 4
  for (int r = 0; r < kHigh; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kWide; ++v)
      __builtin_memcpy(c + r * x.c_row + v * std::int64_t{kDoubles}, &sum[r][v], sizeof(Vd));
}

template <std::size_t kVectors>
inline void add_f64_columns(const cpu::F64Product& x, std::int64_t column) {
  std::int64_t row = 0;
  for (; row + 4 <= x.rows; row += 4) add_f64_tile<4, kVectors>(x, row, column);
  for (; row < x.rows; ++row) add_f64_tile<1, kVectors>(x, row, column);
}

inline void add_f64_product(const cpu::F64Product& x) {
  constexpr std::size_t kWide = kRegisters >= 32 ? 4 : 2;
  constexpr std::int64_t kColumns = kWide * kDoubles;
  std::int64_t column = 0;
  for (; column + kColumns <= x.columns; column += kColumns) add_f64_columns<kWide>(x, column);
  for (; column < x.columns; column += std::int64_t{kDoubles}) add_f64_columns<1>(x, column);
}

}  // namespace heed::detail::HEED_ISA
