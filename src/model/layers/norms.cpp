#include "model/layers/norms.hpp"

#include <cmath>
#include <numeric>

#include "heed/parallel.hpp"

namespace heed::detail {
namespace {

constexpr std::int64_t kNormRows = 64;  // rows of a piece of work

// Calls body(row) for each row, on several threads.
template <class Body>
void for_rows(std::int64_t rows, int threads, Body body) {
  parallel_for((rows + kNormRows - 1) / kNormRows, threads, [&](std::int64_t piece, int /*worker*/) {
    for (std::int64_t row = piece * kNormRows; row < std::min(rows, (piece + 1) * kNormRows); ++row)
      body(row);
  });
}

// The sum of term(x_i) in f64, as eight interleaved sums: each addition waits only for its own previous one.
template <class Term>
double sum_over(const float* x, std::int64_t size, Term term) {
  constexpr std::int64_t kLanes = 8;
  double sums[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += term(static_cast<double>(x[i + lane]));
  for (; i < size; ++i) sums[0] += term(static_cast<double>(x[i]));
  for (std::int64_t width = kLanes / 2; width > 0; width /= 2)
    for (std::int64_t lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  return sums[0];
}

double sum_of(const float* x, std::int64_t size) {
  return sum_over(x, size, [](double one) { return one; });
}

// The sum of squared distances from `mean`.
double squares_of(const float* x, std::int64_t size, double mean = 0) {
  return sum_over(x, size, [mean](double one) { return (one - mean) * (one - mean); });
}

void normalise_rms(const float* x, const float* weight, std::int64_t size, double epsilon, float* to) {
  const double mean = squares_of(x, size) / static_cast<double>(size);
  const auto scale = static_cast<float>(1 / std::sqrt(mean + epsilon));
  for (std::int64_t i = 0; i < size; ++i) to[i] = weight[i] * (x[i] * scale);
}

// The weight times 1 / sqrt(sum of squares / D + epsilon).
std::vector<double> gain_of(const Tensor& weight, double squares, double epsilon) {
  const auto weights = weight.values<float>();
  const double scale = 1 / std::sqrt(squares / static_cast<double>(weights.size()) + epsilon);
  std::vector<double> gain(weights.begin(), weights.end());
  for (double& one : gain) one *= scale;
  return gain;
}

}  // namespace

LayerNormWeights layer_norm_weights(Weights& weights, const std::string& name, std::int64_t size,
                                    double epsilon, bool bias) {
  const bool old = weights.contains(name + ".gamma");
  return {weights.vector(name + (old ? ".gamma" : ".weight"), size),
          bias ? weights.vector(name + (old ? ".beta" : ".bias"), size) : Tensor({size}, DType::f32),
          epsilon};
}

Tensor layer_norm(const TensorView& x, const LayerNormWeights& weights, int threads) {
  const std::int64_t size = x.size(-1), rows = size == 0 ? 0 : x.count() / size;
  Tensor y = Tensor::uninitialized(x.shape(), DType::f32);
  const float* from = x.data_as<float>();
  float* to = y.values<float>().data();
  const float* weight = weights.weight.values<float>().data();
  const float* bias = weights.bias.values<float>().data();
  for_rows(rows, threads, [&](std::int64_t row) {
    const float* in = from + row * size;
    float* out = to + row * size;
    const double mean = sum_of(in, size) / static_cast<double>(size);
    const double variance = squares_of(in, size, mean) / static_cast<double>(size);
    const double scale = 1 / std::sqrt(variance + weights.epsilon);
    for (std::int64_t i = 0; i < size; ++i)
      out[i] = static_cast<float>((in[i] - mean) * scale) * weight[i] + bias[i];
  });
  return y;
}

RmsNormWeights rms_norm_weights(Weights& weights, const std::string& name, std::int64_t size, double epsilon,
                                float offset) {
  RmsNormWeights norm{weights.vector(name + ".weight", size), epsilon};
  for (float& weight : norm.weight.values<float>()) weight += offset;
  return norm;
}

Tensor rms_norm(const TensorView& x, const RmsNormWeights& weights, int threads) {
  const std::int64_t size = x.size(-1), rows = size == 0 ? 0 : x.count() / size;
  Tensor y = Tensor::uninitialized(x.shape(), DType::f32);
  const float* from = x.data_as<float>();
  float* to = y.values<float>().data();
  const float* weight = weights.weight.values<float>().data();
  for_rows(rows, threads, [&](std::int64_t row) {
    normalise_rms(from + row * size, weight, size, weights.epsilon, to + row * size);
  });
  return y;
}

void rms_norm_heads(const MutableTensorView& heads, const RmsNormWeights& weights, int threads) {
  const std::int64_t rows = heads.size(1), size = heads.size(2);
  float* data = heads.data_as<float>();
  const float* weight = weights.weight.values<float>().data();
  for_rows(heads.size(0) * rows, threads, [&](std::int64_t index) {
    float* at = data + index / rows * heads.strides()[0] + index % rows * heads.strides()[1];
    normalise_rms(at, weight, size, weights.epsilon, at);
  });
}

void apply_held(const HeldNorm& norm, std::span<double> x) {
  const double mean =
      norm.centred ? std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size()) : 0;
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = norm.gain[i] * (x[i] - mean);
}

HeldNorm held_norm(const LayerNormWeights& weights, std::span<const float> x) {
  const auto size = std::ssize(x);
  const double mean = sum_of(x.data(), size) / static_cast<double>(size);
  const auto bias = weights.bias.values<float>();
  return {gain_of(weights.weight, squares_of(x.data(), size, mean), weights.epsilon),
          {bias.begin(), bias.end()},
          true};
}

HeldNorm held_norm(const RmsNormWeights& weights, std::span<const float> x) {
  const double squares = squares_of(x.data(), std::ssize(x));
  return {gain_of(weights.weight, squares, weights.epsilon), {}, false};
}

Tensor normed(const TensorView& x, const NormWeights& weights, int threads) {
  if (const auto* rms = std::get_if<RmsNormWeights>(&weights)) return rms_norm(x, *rms, threads);
  return layer_norm(x, std::get<LayerNormWeights>(weights), threads);
}

HeldNorm held_norm(const NormWeights& weights, std::span<const float> x) {
  return std::visit([&](const auto& norm) { return held_norm(norm, x); }, weights);
}

}  // namespace heed::detail
