#include "model/layers/linear.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "attention/isa/dispatch.hpp"
#include "heed/parallel.hpp"

// Pieces of work and the order of sums are the same for every number of threads: so are the bits. Products
// are heed's own (attention/kernels/products/products.hpp): a BLAS that has threads of its own is asked for
// nothing.
namespace heed::detail {
namespace {

using cpu::Products;

// Up to this number of rows, weights are read once and in place.
constexpr std::int64_t kFewRows = 8;
// Outputs and columns of a piece of work in that case.
constexpr std::int64_t kFewOutputs = 32, kFewColumns = 512;
// Rows of weights that are converted together.
constexpr std::int64_t kDotsTogether = 4;
// Inner elements of a packed panel of weights: 32 outputs of 256 are 32 KiB, which stay in the first-level
// cache. A multiple of every format's block.
constexpr std::int64_t kDepth = 256;
// Rows that are packed together; with 4,096 inputs they take 15 MB. A multiple of every target's tile.
constexpr std::int64_t kChunkRows = 960;

struct Range {
  std::int64_t begin, size;
};
Range range_of(std::int64_t index, std::int64_t step, std::int64_t size) {
  const std::int64_t begin = index * step;
  return {begin, std::min(step, size - begin)};
}
std::int64_t pieces_of(std::int64_t size, std::int64_t step) { return (size + step - 1) / step; }

// x [rows, inputs], with row stride `x_stride`; y [rows, outputs], which holds the bias.
struct Call {
  const Products& products;
  const LinearWeights& weights;
  const float* x;
  std::int64_t rows, x_stride;
  float* y;
  std::int64_t outputs, inputs;
  int threads;
};

Tensor scratch(std::int64_t size) { return Tensor::uninitialized({size}, DType::f32); }

// One row and weights in blocks, which are never widened.
void one_row_of_blocks(const Call& call) {
  const WeightMatrix& matrix = call.weights.weight;
  const cpu::BlockProducts& products = block_products(*matrix.format->block);
  std::vector<float> sums;
  for (const float* at = call.x; products.summed > 0 && at < call.x + call.inputs; at += products.summed)
    sums.push_back(products.sum_factor * std::accumulate(at, at + products.summed, 0.0f));
  const auto* data = static_cast<const std::byte*>(matrix.data);
  const std::int64_t row_bytes = bytes_of(*matrix.format, call.inputs);
  parallel_for(pieces_of(call.outputs, kFewOutputs), call.threads, [&](std::int64_t piece, int /*worker*/) {
    const Range out = range_of(piece, kFewOutputs, call.outputs);
    products.add_dots(call.x, sums.data(), data + out.begin * row_bytes, call.inputs, out.size,
                      call.y + out.begin);
  });
}

// Weights [N, K]: dot products along their rows.
void few_rows(const Call& call) {
  const WeightMatrix& matrix = call.weights.weight;
  if (call.rows == 1 && matrix.format->block) return one_row_of_blocks(call);
  const auto add_in_place = [&](auto add_dots, const auto* weights, const Range& out) {
    add_dots({call.x, call.x_stride, weights + out.begin * call.inputs, call.inputs, call.y + out.begin,
              call.outputs, call.rows, out.size, call.inputs});
  };
  parallel_for(pieces_of(call.outputs, kFewOutputs), call.threads, [&](std::int64_t piece, int /*worker*/) {
    const Range out = range_of(piece, kFewOutputs, call.outputs);
    if (matrix.format == &kStoredF32) return add_in_place(call.products.add_dots, matrix.plain(), out);
    if (matrix.format == &kStoredBf16)
      return add_in_place(call.products.add_dots_bf16, static_cast<const std::uint16_t*>(matrix.data), out);
    if (matrix.format == &kStoredF16)
      return add_in_place(call.products.add_dots_f16, static_cast<const std::uint16_t*>(matrix.data), out);
    Tensor widened = scratch(kDotsTogether * call.inputs);
    float* rows = widened.values<float>().data();
    for (std::int64_t n = out.begin; n < out.begin + out.size; n += kDotsTogether) {
      const std::int64_t count = std::min(kDotsTogether, out.begin + out.size - n);
      for (std::int64_t i = 0; i < count; ++i) read_weight_row(matrix, n + i, rows + i * call.inputs);
      call.products.add_dots({call.x, call.x_stride, rows, call.inputs, call.y + n, call.outputs, call.rows,
                              count, call.inputs});
    }
  });
}

// Weights [K, N]: sums their rows times elements of x, four at a time.
void few_rows_transposed(const Call& call) {
  const WeightMatrix& matrix = call.weights.weight;
  parallel_for(pieces_of(call.outputs, kFewColumns), call.threads, [&](std::int64_t piece, int /*worker*/) {
    const Range out = range_of(piece, kFewColumns, call.outputs);
    constexpr std::int64_t kTogether = 4;
    Tensor widened = scratch(kTogether * out.size);
    float* to = widened.values<float>().data();
    for (std::int64_t k = 0; k < call.inputs; k += kTogether) {
      const std::int64_t count = std::min(kTogether, call.inputs - k);
      const bool in_place = matrix.plain() != nullptr && count == kTogether;
      if (!in_place) {
        std::fill(to, to + kTogether * out.size, 0.0f);
        for (std::int64_t i = 0; i < count; ++i)
          read_weights(matrix, k + i, out.begin, out.size, to + i * out.size);
      }
      const float* rows = in_place ? matrix.plain() + k * matrix.columns + out.begin : to;
      const std::int64_t stride = in_place ? matrix.columns : out.size;
      for (std::int64_t row = 0; row < call.rows; ++row) {
        float factors[kTogether] = {};
        std::copy_n(call.x + row * call.x_stride + k, count, factors);
        call.products.add_four_rows(factors, rows, stride, out.size, call.y + row * call.outputs + out.begin);
      }
    }
  });
}

// Packs the weights of some outputs and inner elements for tiles. `widened` has room for them as f32.
void pack_weights(const Call& call, const Range& out, const Range& depth, float* widened, float* to) {
  const WeightMatrix& matrix = call.weights.weight;
  const std::int64_t width = call.products.tile_outputs;
  if (call.weights.transposed) {
    for (std::int64_t k = 0; k < depth.size; ++k, to += width) {
      read_weights(matrix, depth.begin + k, out.begin, out.size, to);
      std::fill(to + out.size, to + width, 0.0f);
    }
    return;
  }
  const float* rows = widened;
  std::int64_t stride = depth.size;
  if (matrix.plain() != nullptr) {
    rows = matrix.plain() + out.begin * call.inputs + depth.begin;
    stride = call.inputs;
  } else {
    for (std::int64_t i = 0; i < out.size; ++i)
      read_weights(matrix, out.begin + i, depth.begin, depth.size, widened + i * depth.size);
  }
  call.products.pack_transposed(rows, stride, static_cast<int>(out.size), depth.size, static_cast<int>(width),
                                to);
}

// Rows of x, packed tile after tile, each [inputs][tile_rows].
Tensor pack_rows(const Call& call, const Range& rows) {
  const std::int64_t tile = call.products.tile_rows, tiles = pieces_of(rows.size, tile);
  Tensor packed = scratch(tiles * tile * call.inputs);
  float* to = packed.values<float>().data();
  parallel_for(tiles, call.threads, [&](std::int64_t index, int /*worker*/) {
    const Range own = range_of(index, tile, rows.size);
    call.products.pack_transposed(call.x + (rows.begin + own.begin) * call.x_stride, call.x_stride,
                                  static_cast<int>(own.size), call.inputs, static_cast<int>(tile),
                                  to + index * tile * call.inputs);
  });
  return packed;
}

void many_rows(const Call& call, const Range& rows) {
  const std::int64_t height = call.products.tile_rows, width = call.products.tile_outputs;
  const Tensor packed = pack_rows(call, rows);
  const float* a = packed.values<float>().data();
  parallel_for(pieces_of(call.outputs, width), call.threads, [&](std::int64_t piece, int /*worker*/) {
    const Range out = range_of(piece, width, call.outputs);
    Tensor memory = scratch(2 * kDepth * width + height * width);
    float* b = memory.values<float>().data();
    float* widened = b + kDepth * width;
    float* edge = widened + kDepth * width;
    for (std::int64_t k = 0; k < call.inputs; k += kDepth) {
      const Range depth = {k, std::min(kDepth, call.inputs - k)};
      pack_weights(call, out, depth, widened, b);
      for (std::int64_t row = 0; row < rows.size; row += height) {
        const std::int64_t count = std::min(height, rows.size - row);
        const float* tile = a + row * call.inputs + k * height;
        float* y = call.y + (rows.begin + row) * call.outputs + out.begin;
        if (count == height && out.size == width) {
          call.products.add_tile(tile, b, depth.size, y, call.outputs);
          continue;
        }
        std::fill_n(edge, height * width, 0.0f);  // a whole tile, of which y has a part
        call.products.add_tile(tile, b, depth.size, edge, width);
        for (std::int64_t r = 0; r < count; ++r)
          for (std::int64_t i = 0; i < out.size; ++i) y[r * call.outputs + i] += edge[r * width + i];
      }
    }
  });
}

void fill_bias(const Call& call) {
  const Tensor& bias = call.weights.bias;
  const bool given = bias.rank() == 1 && bias.size(0) == call.outputs;
  constexpr std::int64_t kRows = 64;
  parallel_for(pieces_of(call.rows, kRows), call.threads, [&](std::int64_t piece, int /*worker*/) {
    const Range own = range_of(piece, kRows, call.rows);
    for (std::int64_t row = own.begin; row < own.begin + own.size; ++row) {
      float* to = call.y + row * call.outputs;
      if (given)
        std::copy_n(bias.values<float>().data(), call.outputs, to);
      else
        std::fill_n(to, call.outputs, 0.0f);
    }
  });
}

}  // namespace

LinearWeights linear_weights(Weights& weights, const std::string& name, std::int64_t outputs,
                             std::int64_t inputs, bool bias) {
  return {weights.matrix(name + ".weight", outputs, inputs),
          bias ? weights.vector(name + ".bias", outputs) : Tensor(), false};
}

Tensor linear(const TensorView& x, const LinearWeights& weights, int threads) {
  const std::int64_t rows = x.size(0), outputs = weights.outputs(), inputs = weights.inputs();
  Tensor y = Tensor::uninitialized({rows, outputs}, DType::f32);
  const Call call = {cpu::kernels().all().products,
                     weights,
                     x.data_as<float>(),
                     rows,
                     rows > 1 ? x.strides()[0] : inputs,
                     y.values<float>().data(),
                     outputs,
                     inputs,
                     threads};
  fill_bias(call);
  if (rows <= kFewRows) {
    weights.transposed ? few_rows_transposed(call) : few_rows(call);
    return y;
  }
  for (std::int64_t row = 0; row < rows; row += kChunkRows)
    many_rows(call, {row, std::min(kChunkRows, rows - row)});
  return y;
}

Tensor inputs_by_outputs(const LinearWeights& weights, int threads) {
  const std::int64_t inputs = weights.inputs(), outputs = weights.outputs();
  Tensor matrix = Tensor::uninitialized({inputs, outputs}, DType::f32);
  float* to = matrix.values<float>().data();
  if (weights.transposed) {
    parallel_for(inputs, threads,
                 [&](std::int64_t row, int) { read_weight_row(weights.weight, row, to + row * outputs); });
    return matrix;
  }
  std::vector<float> row(static_cast<std::size_t>(inputs));
  for (std::int64_t n = 0; n < outputs; ++n) {
    read_weight_row(weights.weight, n, row.data());
    for (std::int64_t k = 0; k < inputs; ++k) to[k * outputs + n] = row[static_cast<std::size_t>(k)];
  }
  return matrix;
}

}  // namespace heed::detail
