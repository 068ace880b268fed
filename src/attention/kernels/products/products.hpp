// Products of rows with a model's weights, and activation functions, on plain arrays of f32.
//
// A product consists of tiles of kProductRows rows by two vectors of outputs. Both sides are packed, so that
// a tile reads a[i][row] and b[i][output] contiguously. Few rows are not worth packing. For them, weights are
// read in place: each output is a dot product along contiguous weights, or, for the other layout, rows of
// weights are added up.
#pragma once

#include "attention/kernels/products/blocks.hpp"
#include "attention/kernels/shared/arguments.hpp"
#include "attention/kernels/shared/exp2.hpp"

namespace heed::detail::HEED_ISA {

/// Two sums per row of a tile, two vectors of outputs and one of a row fit into the registers.
inline constexpr int kProductRows = kRegisters >= 32 ? 12 : 6;
inline constexpr int kProductOutputs = 2 * kLanes;
/// Outputs and rows per block of dot products.
inline constexpr int kDotOutputs = kRegisters >= 32 ? 4 : 2;
inline constexpr int kDotRows = 4;

/// c[row][output] += sum_i a[i][row] b[i][output]; rows of c are `stride` apart.
inline void add_tile(const float* a, const float* b, std::int64_t depth, float* c, std::int64_t stride) {
  Vf sum[kProductRows][2];
#pragma GCC unroll 12
  for (int row = 0; row < kProductRows; ++row) {
    sum[row][0] = zero();
    sum[row][1] = zero();
  }
  for (std::int64_t i = 0; i < depth; ++i, a += kProductRows, b += kProductOutputs) {
    const Vf low = load(b), high = load(b + kLanes);
#pragma GCC unroll 12
    for (int row = 0; row < kProductRows; ++row) {
      const Vf x = splat(a[row]);
      sum[row][0] = mul_add(x, low, sum[row][0]);
      sum[row][1] = mul_add(x, high, sum[row][1]);
    }
  }
#pragma GCC unroll 12
  for (int row = 0; row < kProductRows; ++row, c += stride) {
    store(c, add(load(c), sum[row][0]));
    store(c + kLanes, add(load(c + kLanes), sum[row][1]));
  }
}

/// Transposes rows [count][depth], `stride` apart, to [depth][width]; count <= width, and columns beyond
/// count are 0.
inline void pack_transposed(const float* rows, std::int64_t stride, int count, std::int64_t depth, int width,
                            float* to) {
  for (int first = 0; first < width; first += kLanes) {
    const std::int64_t columns = width - first < kLanes ? width - first : kLanes;
    for (std::int64_t i = 0; i < depth; i += kLanes) {
      const std::int64_t steps = depth - i < kLanes ? depth - i : kLanes;
      Vf block[kLanes];
#pragma GCC unroll 16
      for (int lane = 0; lane < kLanes; ++lane) {
        const float* from = rows + (first + lane) * stride + i;
        block[lane] = first + lane >= count ? zero() : steps == kLanes ? load(from) : load_first(from, steps);
      }
      transpose(block);
#pragma GCC unroll 16
      for (int step = 0; step < kLanes; ++step) {
        if (step >= steps) break;
        float* at = to + (i + step) * width + first;
        if (columns == kLanes)
          store(at, block[step]);
        else
          store_first(at, columns, block[step]);
      }
    }
  }
}

inline void widen_bf16(const std::uint16_t* from, std::int64_t size, float* to) {
  std::int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) store(to + i, load_bf16(from + i));
  for (; i < size; ++i) to[i] = float_of_bits(std::uint32_t{from[i]} << 16);
}

inline void widen_f16(const std::uint16_t* from, std::int64_t size, float* to) {
  std::int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) store(to + i, load_f16(from + i));
  for (; i < size; ++i) to[i] = half_to_float(from[i]);
}

/// How numbers of a row are read into vectors: all lanes of one, or the first n.
struct FloatRow {
  using Number = float;
  HEED_INLINE static Vf all(const float* p) { return load(p); }
  HEED_INLINE static Vf first(const float* p, std::int64_t n) { return load_first(p, n); }
};
struct Bf16Row {
  using Number = std::uint16_t;
  HEED_INLINE static Vf all(const std::uint16_t* p) { return load_bf16(p); }
  HEED_INLINE static Vf first(const std::uint16_t* p, std::int64_t n) {
    float widened[kLanes];
    widen_bf16(p, n, widened);
    return load_first(widened, n);
  }
};
struct F16Row {
  using Number = std::uint16_t;
  HEED_INLINE static Vf all(const std::uint16_t* p) { return load_f16(p); }
  HEED_INLINE static Vf first(const std::uint16_t* p, std::int64_t n) {
    float widened[kLanes];
    widen_f16(p, n, widened);
    return load_first(widened, n);
  }
};

/// The products from a row and an output on.
template <class Row, std::size_t kRows, std::size_t kOutputs>
HEED_INLINE void dot_block(const cpu::DotProducts<typename Row::Number>& dots, std::int64_t first_row,
                           std::int64_t first_output) {
  const std::int64_t depth = dots.depth, x_stride = dots.x_stride, w_stride = dots.w_stride;
  const float* x = dots.x + first_row * x_stride;
  const typename Row::Number* w = dots.w + first_output * w_stride;
  float* y = dots.y + first_row * dots.y_stride + first_output;
  Vf sum[kRows][kOutputs];
#pragma GCC unroll 4
  for (int row = 0; row < int{kRows}; ++row)
#pragma GCC unroll 4
    for (int output = 0; output < int{kOutputs}; ++output) sum[row][output] = zero();
  const auto add_step = [&](auto read_x, auto read_w, std::int64_t i) __attribute__((always_inline)) {
    Vf weight[kOutputs];
    // Prefetchers of processors follow several rows side by side badly, so the next rows are asked for.
#pragma GCC unroll 4
    for (int output = 0; output < int{kOutputs}; ++output) {
      weight[output] = read_w(w + output * w_stride + i);
      __builtin_prefetch(w + (int{kOutputs} + output) * w_stride + i, 0, 2);
    }
#pragma GCC unroll 4
    for (int row = 0; row < int{kRows}; ++row) {
      const Vf value = read_x(x + row * x_stride + i);
#pragma GCC unroll 4
      for (int output = 0; output < int{kOutputs}; ++output)
        sum[row][output] = mul_add(value, weight[output], sum[row][output]);
    }
  };
  std::int64_t i = 0;
  for (; i + kLanes <= depth; i += kLanes)
    add_step(
        [](const float* p) __attribute__((always_inline)) { return load(p); },
        [](const typename Row::Number* p) __attribute__((always_inline)) { return Row::all(p); }, i);
  if (i < depth)
    add_step(
        [rest = depth - i](const float* p) __attribute__((always_inline)) { return load_first(p, rest); },
        [rest = depth - i](const typename Row::Number* p)
            __attribute__((always_inline)) { return Row::first(p, rest); },
        i);
#pragma GCC unroll 4
  for (int row = 0; row < int{kRows}; ++row)
#pragma GCC unroll 4
    for (int output = 0; output < int{kOutputs}; ++output)
      y[row * dots.y_stride + output] += reduce_add(sum[row][output]);
}

template <class Row, std::size_t kOutputs>
inline void dots_of(const cpu::DotProducts<typename Row::Number>& dots, std::int64_t output) {
  std::int64_t row = 0;
  for (; row + kDotRows <= dots.rows; row += kDotRows) dot_block<Row, kDotRows, kOutputs>(dots, row, output);
  if (dots.rows - row == 3) dot_block<Row, 3, kOutputs>(dots, row, output);
  if (dots.rows - row == 2) dot_block<Row, 2, kOutputs>(dots, row, output);
  if (dots.rows - row == 1) dot_block<Row, 1, kOutputs>(dots, row, output);
}

template <class Row>
inline void add_dots(const cpu::DotProducts<typename Row::Number>& dots) {
  std::int64_t output = 0;
  for (; output + kDotOutputs <= dots.outputs; output += kDotOutputs) dots_of<Row, kDotOutputs>(dots, output);
  for (; output < dots.outputs; ++output) dots_of<Row, 1>(dots, output);
}

/// y[j] += sum_i factor[i] w[i][j], over four rows of weights, for j in [0, size).
inline void add_four_rows(const float* factor, const float* w, std::int64_t w_stride, std::int64_t size,
                          float* y) {
  const Vf f0 = splat(factor[0]), f1 = splat(factor[1]), f2 = splat(factor[2]), f3 = splat(factor[3]);
  const float *w1 = w + w_stride, *w2 = w1 + w_stride, *w3 = w2 + w_stride;
  std::int64_t j = 0;
  for (; j + kLanes <= size; j += kLanes) {
#pragma GCC unroll 4
    for (int row = 4; row < 8; ++row)  // as in dot_block()
      __builtin_prefetch(w + row * w_stride + j, 0, 2);
    Vf sum = mul_add(f0, load(w + j), load(y + j));
    sum = mul_add(f1, load(w1 + j), sum);
    sum = mul_add(f2, load(w2 + j), sum);
    store(y + j, mul_add(f3, load(w3 + j), sum));
  }
  for (; j < size; ++j) y[j] += factor[0] * w[j] + factor[1] * w1[j] + factor[2] * w2[j] + factor[3] * w3[j];
}

/// x / (1 + 2^t). For t > 100, the result is a zero with the sign of x.
HEED_INLINE Vf times_sigmoid(Vf x, Vf t) {
  const Vf limited = maximum(minimum(t, splat(100.0f)), splat(kSmallestExponent));
  const Vf e = mul(exp2_bounded(limited, splat(kRound)), splat(static_cast<float>(1 / kGainExact)));
  return select(greater(t, splat(100.0f)), mul(x, zero()), div(x, add(splat(1.0f), e)));
}

inline constexpr float kLog2OfE = 1.44269504088896340736f;

HEED_INLINE Vf silu_of(Vf x) { return times_sigmoid(x, mul(x, splat(-kLog2OfE))); }

/// Uses (1 + tanh u) / 2 = 1 / (1 + e^-2u).
HEED_INLINE Vf gelu_tanh_of(Vf x) {
  constexpr float kScale = -2 * kLog2OfE * 0.7978845608028654f;  // sqrt(2 / pi)
  const Vf square = minimum(mul(x, x), splat(1e20f));
  return times_sigmoid(x, mul(x, mul_add(square, splat(kScale * 0.044715f), splat(kScale))));
}

/// For a = |x|: Phi(-a) = e^(-a^2 / 2) P(t), t = 1 / (1 + 0.35 a), where P has degree 7 and no constant term
/// (Hastings's form, fitted to the smallest largest error, 5.3e-9).
HEED_INLINE Vf gelu_of(Vf x) {
  const Vf a = absolute(x);
  const Vf t = div(splat(1.0f), mul_add(a, splat(0.35f), splat(1.0f)));
  Vf p = splat(0.0320837242540466f);
  p = mul_add(p, t, splat(-0.1260628824843754f));
  p = mul_add(p, t, splat(0.09899786338592638f));
  p = mul_add(p, t, splat(0.1224395497778499f));
  p = mul_add(p, t, splat(0.07926815913874792f));
  p = mul_add(p, t, splat(0.1558020688915278f));
  p = mul(mul_add(p, t, splat(0.13747152225094808f)), t);
  const Vf power = maximum(mul(mul(a, a), splat(-kLog2OfE / 2)), splat(kSmallestExponent));
  const Vf tail = mul(p, mul(exp2_bounded(power, splat(kRound)), splat(static_cast<float>(1 / kGainExact))));
  return mul(x, select(greater(zero(), x), tail, sub(splat(1.0f), tail)));
}

template <class Function>
HEED_INLINE void each_value(float* x, std::int64_t size, Function function) {
  std::int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) store(x + i, function(load(x + i)));
  if (i < size) store_first(x + i, size - i, function(load_first(x + i, size - i)));
}
inline void apply_gelu(float* x, std::int64_t size) {
  each_value(
      x, size, [](Vf v) __attribute__((always_inline)) { return gelu_of(v); });
}
inline void apply_gelu_tanh(float* x, std::int64_t size) {
  each_value(
      x, size, [](Vf v) __attribute__((always_inline)) { return gelu_tanh_of(v); });
}
inline void apply_silu(float* x, std::int64_t size) {
  each_value(
      x, size, [](Vf v) __attribute__((always_inline)) { return silu_of(v); });
}

inline cpu::Products make_products() {
  return {.tile_rows = kProductRows,
          .tile_outputs = kProductOutputs,
          .add_tile = add_tile,
          .pack_transposed = pack_transposed,
          .add_dots = add_dots<FloatRow>,
          .add_dots_bf16 = add_dots<Bf16Row>,
          .add_dots_f16 = add_dots<F16Row>,
          .blocks = kBlockProducts,
          .needs_byte_dots = kNeedsByteDots,
          .add_four_rows = add_four_rows,
          .widen_bf16 = widen_bf16,
          .widen_f16 = widen_f16,
          .gelu = apply_gelu,
          .gelu_tanh = apply_gelu_tanh,
          .silu = apply_silu};
}

}  // namespace heed::detail::HEED_ISA
