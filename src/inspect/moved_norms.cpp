// Norms of gated values after the output projection, by the quadratic form (g v)^T W W^T (g v).
#include <algorithm>
#include <cmath>
#include <vector>

#include "attention/problem/operands.hpp"
#include "core/index.hpp"
#include "core/message.hpp"
#include "heed/inspect/moved.hpp"
#include "heed/parallel.hpp"

namespace heed {
namespace {

using detail::index;
using detail::refuse;

constexpr std::int64_t kKeysAtOnce = 256;

Tensor doubles_of(const char* name, const TensorView& view) {
  if (!is_floating(view.dtype()))
    refuse(name, " has dtype ", view.dtype(), "; f64, f32, f16 or bf16 is expected");
  detail::check_memory(name, view);
  return Tensor::copy_of(view, DType::f64);
}

// W W^T of each head, [H, Dv, Dv].
Tensor squares_of(const Tensor& projection, int threads) {
  const std::int64_t width = projection.size(1), outputs = projection.size(2);
  Tensor squares({projection.size(0), width, width}, DType::f64);
  const double* from = projection.values<double>().data();
  double* to = squares.values<double>().data();
  parallel_for(projection.size(0) * width, threads, [&](std::int64_t row, int) {
    const double* a = from + row * outputs;
    const double* head = from + row / width * width * outputs;
    for (std::int64_t e = 0; e < width; ++e) {
      double sum = 0;
      for (std::int64_t m = 0; m < outputs; ++m) sum += a[m] * head[e * outputs + m];
      to[row * width + e] = sum;
    }
  });
  return squares;
}

// The norms of keys [0, count) of `values` [Dv, stride], for one gate (nullptr: ones).
void write_norms(const double* square, const double* gate, const double* values, std::int64_t width,
                 std::int64_t stride, std::int64_t count, double* to) {
  std::vector<double> all(index(count)), part(all.size());
  for (std::int64_t d = 0; d < width; ++d) {
    std::ranges::fill(part, 0.0);
    for (std::int64_t e = 0; e <= d; ++e) {  // the square is symmetric
      double factor = square[d * width + e] * (e == d ? 1 : 2);
      if (gate != nullptr) factor *= gate[d] * gate[e];
      for (std::int64_t j = 0; j < count; ++j) part[index(j)] += factor * values[e * stride + j];
    }
    for (std::int64_t j = 0; j < count; ++j) all[index(j)] += part[index(j)] * values[d * stride + j];
  }
  for (std::int64_t j = 0; j < count; ++j)  // rounding may leave a sum below 0
    to[j] = std::sqrt(all[index(j)] < 0 ? 0 : all[index(j)]);
}

}  // namespace

Tensor moved_norms(const TensorView& value, const TensorView& projection,
                   const std::optional<TensorView>& gate, int threads) {
  return detail::with_memory_errors([&] {
    if (value.rank() != 4 || value.size(3) == 0)
      refuse("value has shape ", value.shape(), "; [B, Hkv, Lk, Dv] is expected");
    const std::int64_t batch = value.size(0), kv_heads = value.size(1), keys = value.size(2),
                       width = value.size(3);
    if (projection.rank() != 3 || projection.size(1) != width || kv_heads == 0 ||
        projection.size(0) % kv_heads != 0)
      refuse("projection has shape ", projection.shape(), "; [H, ", width, ", M] with H a multiple of ",
             kv_heads, " is expected");
    const std::int64_t heads = projection.size(0);
    const std::int64_t rows = gate && gate->rank() == 4 ? gate->size(2) : 1;
    if (gate && gate->shape() != Dims{batch, heads, rows, width} &&
        gate->shape() != Dims{batch, heads, rows, 1})
      refuse("gate has shape ", gate->shape(), "; [", batch, ", ", heads, ", Lq, ", width, "] or [", batch,
             ", ", heads, ", Lq, 1] is expected");
    if (threads < 0) refuse("threads is ", threads, "; 0 (all of the machine) or more is expected");
    if (threads == 0) threads = default_threads();

    const Tensor values = doubles_of("value", value.transpose(2, 3));  // [B, Hkv, Dv, Lk]
    const Tensor squares = squares_of(doubles_of("projection", projection), threads);
    const Tensor gates = gate ? doubles_of("gate", *gate) : Tensor({0}, DType::f64);
    const bool of_channels = gate && gate->shape() == Dims{batch, heads, rows, width} && width > 1;
    Tensor norms({batch, heads, rows, keys}, DType::f32);
    const double* factors = gates.values<double>().data();
    float* to = norms.values<float>().data();
    const std::int64_t blocks = (keys + kKeysAtOnce - 1) / kKeysAtOnce,
                       rows_of_head = of_channels ? rows : std::min<std::int64_t>(rows, 1);
    parallel_for(batch * heads * rows_of_head * blocks, threads, [&](std::int64_t item, int) {
      const std::int64_t first = item % blocks * kKeysAtOnce, i = item / blocks % rows_of_head;
      const std::int64_t bh = item / blocks / rows_of_head, head = bh % heads;
      const std::int64_t kv = bh / heads * kv_heads + head / (heads / kv_heads);
      std::vector<double> part(kKeysAtOnce);
      write_norms(squares.values<double>().data() + head * width * width,
                  of_channels ? factors + (bh * rows + i) * width : nullptr,
                  values.values<double>().data() + kv * width * keys + first, width, keys,
                  std::min(kKeysAtOnce, keys - first), part.data());
      // With a number for each row, all rows of a head are multiples of one.
      for (std::int64_t row = i; row < (of_channels ? i + 1 : rows); ++row) {
        const double factor = gate && !of_channels ? std::abs(factors[bh * rows + row]) : 1;
        for (std::int64_t j = first; j < std::min(keys, first + kKeysAtOnce); ++j)
          to[(bh * rows + row) * keys + j] = static_cast<float>(factor * part[index(j - first)]);
      }
    });
    return norms;
  });
}

}  // namespace heed
