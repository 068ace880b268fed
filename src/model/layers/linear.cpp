#include "model/layers/linear.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
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
// Rows that are packed together: with 4,096 inputs they take 30 MB, with more inputs half as many are. Both
// are multiples of every target's tile.
constexpr std::int64_t kChunkRows = 1920, kMostInputs = 4096;

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

// A row in signed bytes, with a scale for each 32 numbers, whose largest is 127 or -127.
struct SignedBytes {
  std::vector<std::int8_t> codes;
  std::vector<float> scales, sums, run_sums;
  std::vector<std::int32_t> start;

  // `less`: of the format of the weights.
  SignedBytes(const float* x, std::size_t size, std::int32_t less)
      : codes(size), scales(size / 32), sums(size / 4), run_sums(size / 32), start(size / 4) {
    for (std::size_t run = 0; run < scales.size(); ++run, x += 32) {
      std::uint32_t most =
          0;  // the bits of the largest magnitude; those of infinity and NaN are larger still
      for (int i = 0; i < 32; ++i) most = std::max(most, std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffU);
      const float largest = std::bit_cast<float>(most), factor = largest > 1e-30F ? 127 / largest : 0;
      scales[run] = largest / 127;
      // Adding 1.5 * 2^23 rounds, and leaves a whole number in the low bits.
      for (std::size_t i = 0; i < 32; ++i)
        codes[32 * run + i] =
            static_cast<std::int8_t>(std::bit_cast<std::int32_t>(x[i] * factor + 0x1.8p23F));
      std::int32_t run_sum = 0;
      for (std::size_t quad = 8 * run; quad < 8 * run + 8; ++quad) {
        const std::int8_t* four = codes.data() + 4 * quad;
        const std::int32_t sum = four[0] + four[1] + four[2] + four[3];
        sums[quad] = scales[run] * static_cast<float>(sum);
        start[quad] = -less * sum;
        run_sum += sum;
      }
      run_sums[run] = scales[run] * static_cast<float>(run_sum);
    }
  }
};

// Multiplies few rows by weight blocks as bytes (--fast). Returns false if this processor has no fast byte
// products.
bool add_products_of_bytes(const Call& call) {
  const WeightMatrix& matrix = call.weights.weight;
  const cpu::BlockProducts& products = block_products(*matrix.format->block);
  if (products.add_coded_dots == nullptr || call.products.needs_byte_dots) return false;
  std::vector<SignedBytes> rows;
  for (std::int64_t row = 0; row < call.rows; ++row)
    rows.emplace_back(call.x + row * call.x_stride, static_cast<std::size_t>(call.inputs), products.less);
  const auto* data = static_cast<const std::byte*>(matrix.data);
  const std::int64_t row_bytes = bytes_of(*matrix.format, call.inputs);
  parallel_for(pieces_of(call.outputs, kFewOutputs), call.threads, [&](std::int64_t piece, int /*worker*/) {
    const Range out = range_of(piece, kFewOutputs, call.outputs);
    float* y = call.y + out.begin;
    for (const SignedBytes& x : rows) {
      products.add_coded_dots(
          {x.codes.data(), x.scales.data(), x.sums.data(), x.run_sums.data(), x.start.data()},
          data + out.begin * row_bytes, call.inputs, out.size, y);
      y += call.outputs;
    }
  });
  return true;
}

// Weights [N, K]: dot products along their rows.
void few_rows(const Call& call) {
  const WeightMatrix& matrix = call.weights.weight;
  if (matrix.fast && matrix.format->block && add_products_of_bytes(call)) return;
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

// With --fast, many rows are multiplied in bf16. A step has 32 inner elements, of which the last ones may be
// zeros; a lane holds a pair of them.
constexpr std::int64_t kStep = 32, kTileRows = 16, kTileSize = kTileRows * kStep / 2, kPanelOutputs = 32;

// Packs rows of x as Bf16Panel::a.
Tensor pack_bf16_rows(const Call& call, const cpu::Kernels& unit, const Range& rows) {
  const std::int64_t steps = pieces_of(call.inputs, kStep), tiles = pieces_of(rows.size, kTileRows);
  Tensor packed = Tensor::uninitialized({tiles, steps, kTileSize}, DType::f32);
  parallel_for(tiles, call.threads, [&](std::int64_t tile, int /*worker*/) {
    const Range own = range_of(tile, kTileRows, rows.size);
    float* first = packed.values<float>().data() + tile * steps * kTileSize;
    if (own.size < kTileRows) std::fill_n(first, steps * kTileSize, 0.0f);
    std::vector<std::uint16_t> rounded(static_cast<std::size_t>(steps * kStep));
    for (std::int64_t row = 0; row < own.size; ++row) {
      unit.round_bf16(call.x + (rows.begin + own.begin + row) * call.x_stride, call.inputs, rounded.data());
      float* to = first + row * kStep / 2;
      for (std::int64_t step = 0; step < steps; ++step)
        std::memcpy(to + step * kTileSize, rounded.data() + step * kStep, kStep * sizeof rounded[0]);
    }
  });
  return packed;
}

// Weights [N, K] of some outputs and inner elements, rounded to bf16: `padded` numbers for each output.
std::vector<std::uint16_t> rounded_weights(const Call& call, const cpu::Kernels& unit, const Range& out,
                                           const Range& depth, std::int64_t padded) {
  const WeightMatrix& matrix = call.weights.weight;
  std::vector<std::uint16_t> rounded(static_cast<std::size_t>(out.size * padded));
  Tensor numbers = scratch(call.weights.transposed ? out.size * padded : depth.size);
  float* row = numbers.values<float>().data();
  if (call.weights.transposed) {
    Tensor line = scratch(out.size);
    const float* of_line = line.values<float>().data();
    std::fill_n(row, out.size * padded, 0.0f);
    for (std::int64_t k = 0; k < depth.size; ++k) {
      read_weights(matrix, depth.begin + k, out.begin, out.size, line.values<float>().data());
      for (std::int64_t n = 0; n < out.size; ++n) row[n * padded + k] = of_line[n];
    }
    unit.round_bf16(row, out.size * padded, rounded.data());
    return rounded;
  }
  for (std::int64_t n = 0; n < out.size; ++n) {
    const float* from = row;
    if (matrix.plain() != nullptr)
      from = matrix.plain() + (out.begin + n) * call.inputs + depth.begin;
    else
      read_weights(matrix, out.begin + n, depth.begin, depth.size, row);
    unit.round_bf16(from, depth.size, rounded.data() + n * padded);
  }
  return rounded;
}

// Packs the weights of some outputs and whole steps of inner elements as Bf16Panel::b.
void pack_bf16_weights(const Call& call, const cpu::Kernels& unit, const Range& out, const Range& depth,
                       float* to) {
  const WeightMatrix& matrix = call.weights.weight;
  const std::int64_t padded = pieces_of(depth.size, kStep) * kStep;
  const auto pack = [&](const void* pairs, std::int64_t stride) {
    call.products.pack_transposed(static_cast<const float*>(pairs), stride / 2, static_cast<int>(out.size),
                                  padded / 2, kPanelOutputs, to);
  };
  // Weights that are stored so are packed as they lie, if pairs of them are aligned.
  if (matrix.format == &kStoredBf16 && !call.weights.transposed && call.inputs % 2 == 0 &&
      padded == depth.size && reinterpret_cast<std::uintptr_t>(matrix.data) % sizeof(float) == 0)
    return pack(static_cast<const std::uint16_t*>(matrix.data) + out.begin * call.inputs + depth.begin,
                call.inputs);
  pack(rounded_weights(call, unit, out, depth, padded).data(), padded);
}

void many_rows_in_bf16(const Call& call, const cpu::Kernels& unit, const Range& rows) {
  Tensor packed = pack_bf16_rows(call, unit, rows);
  const std::int64_t tiles = packed.size(0), row_of_tiles = packed.size(1) * kTileSize;
  parallel_for(pieces_of(call.outputs, kPanelOutputs), call.threads, [&](std::int64_t piece, int /*worker*/) {
    const Range out = range_of(piece, kPanelOutputs, call.outputs);
    // Whole tiles are added to y, the last rows to a copy of their part of y.
    const std::int64_t whole = out.size == kPanelOutputs ? rows.size / kTileRows : 0;
    const std::int64_t first = whole * kTileRows, left = rows.size - first;
    float* y = call.y + rows.begin * call.outputs + out.begin;
    Tensor b = scratch(kDepth / 2 * kPanelOutputs);
    Tensor edge({(tiles - whole) * kTileRows, kPanelOutputs}, DType::f32);
    float* of_edge = edge.values<float>().data();
    for (std::int64_t row = 0; row < left; ++row)
      std::copy_n(y + (first + row) * call.outputs, out.size, of_edge + row * kPanelOutputs);
    for (std::int64_t k = 0; k < call.inputs; k += kDepth) {
      const Range depth = {k, std::min(kDepth, call.inputs - k)};
      pack_bf16_weights(call, unit, out, depth, b.values<float>().data());
      const auto add = [&](std::int64_t tile, std::int64_t count, float* c, std::int64_t stride) {
        if (count > 0)
          unit.add_bf16_panel({packed.values<float>().data() + tile * row_of_tiles + k / kStep * kTileSize,
                               count * kTileRows, row_of_tiles, b.values<float>().data(),
                               pieces_of(depth.size, kStep), c, stride});
      };
      add(0, whole, y, call.outputs);
      add(whole, tiles - whole, of_edge, kPanelOutputs);
    }
    for (std::int64_t row = 0; row < left; ++row)
      std::copy_n(of_edge + row * kPanelOutputs, out.size, y + (first + row) * call.outputs);
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
  const cpu::Kernels* unit = weights.weight.fast ? cpu::kernels().bf16_panels() : nullptr;
  const std::int64_t together = inputs > kMostInputs ? kChunkRows / 2 : kChunkRows;
  for (std::int64_t row = 0; row < rows; row += together) {
    const Range chunk = {row, std::min(together, rows - row)};
    unit != nullptr ? many_rows_in_bf16(call, *unit, chunk) : many_rows(call, chunk);
  }
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
