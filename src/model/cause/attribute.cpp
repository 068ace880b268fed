// Direct logit attribution. With the scales of norms held fixed, a logit is linear in all contributions to
// the stream x. For a token's row u of the unembedding, and the last norm's gain:
//
// logit = <g, x_last> + constant, g = gain u (minus its mean, if the norm subtracts the mean) <g, W_O out +
// b_O> = sum over heads of <W_O^T g, out>_h + <g, b_O>
//
// If a norm follows W_O, its product sees g through that norm.
#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

#include "core/message.hpp"
#include "heed/parallel.hpp"
#include "model/cause/row_trace.hpp"
#include "model/parts.hpp"
#include "model/predictions.hpp"

namespace heed {
namespace {

using detail::Family;
using detail::HeldNorm;
using detail::LinearWeights;
using Direction = std::vector<double>;

template <class T>
double dot(std::span<const double> a, std::span<const T> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

std::span<const float> row_of(const Tensor& matrix, std::int64_t row) {
  const auto size = static_cast<std::size_t>(matrix.size(1));
  return matrix.values<float>().subspan(static_cast<std::size_t>(row) * size, size);
}

// The direction d with <d, x> = <direction, norm(x)>, up to the norm's bias.
Direction through(const HeldNorm& norm, const Direction& direction) {
  Direction seen(direction.size());
  std::transform(direction.begin(), direction.end(), norm.gain.begin(), seen.begin(), std::multiplies<>());
  if (!norm.centred) return seen;
  const double mean = std::accumulate(seen.begin(), seen.end(), 0.0) / static_cast<double>(seen.size());
  for (double& one : seen) one -= mean;
  return seen;
}

double share_of_bias(const HeldNorm& norm, const Direction& direction) {
  return norm.bias.empty() ? 0 : dot<double>(direction, norm.bias);
}

// Returns W^T direction.
Direction through(const LinearWeights& weights, const Direction& direction) {
  Direction seen(static_cast<std::size_t>(weights.inputs()));
  std::vector<float> row(static_cast<std::size_t>(weights.weight.columns));
  for (std::int64_t i = 0; i < weights.weight.rows; ++i) {
    const auto at = static_cast<std::size_t>(i);
    read_weight_row(weights.weight, i, row.data());
    if (weights.transposed) {
      seen[at] = dot<float>(direction, row);
    } else {
      for (std::size_t k = 0; k < row.size(); ++k) seen[k] += direction[at] * static_cast<double>(row[k]);
    }
  }
  return seen;
}

double bias_at(const LinearWeights& weights, std::int64_t output) {
  return weights.bias.count() == 0 ? 0 : static_cast<double>(weights.bias.at<float>(output));
}

// Fills in one layer's shares; `direction` is a direction of the stream.
void attribute_layer(const Family& family, const detail::RowTrace& trace, const Direction& direction,
                     std::int64_t layer, Attribution& made) {
  const LinearWeights& output = family.output_projection(layer);
  const TensorView heads = trace.heads.view().narrow(0, layer, 1);
  const Tensor added = linear(heads, output, 1);
  const auto norm = family.norm_behind_attention(layer, added.values<float>());
  const Direction seen = norm ? through(*norm, direction) : direction;
  double bias = norm ? share_of_bias(*norm, direction) : 0;
  for (std::size_t i = 0; i < seen.size(); ++i)
    bias += seen[i] * bias_at(output, static_cast<std::int64_t>(i));
  const Direction by_output = through(output, seen);
  const auto outputs = row_of(trace.heads, layer);
  const std::int64_t count = made.heads.size(1);
  const std::size_t size = by_output.size() / static_cast<std::size_t>(count);
  double all = 0;
  for (std::int64_t head = 0; head < count; ++head) {
    const std::size_t at = static_cast<std::size_t>(head) * size;
    const double share = dot<float>(std::span(by_output).subspan(at, size), outputs.subspan(at, size));
    made.heads.at<double>(layer, head) = share;
    all += share;
  }
  const double whole = dot<float>(direction, row_of(trace.streams, layer + 1)) -
                       dot<float>(direction, row_of(trace.streams, layer));
  made.biases[static_cast<std::size_t>(layer)] = bias;
  made.mlps[static_cast<std::size_t>(layer)] = whole - bias - all;
}

std::int64_t likeliest(const Model& model, const Tensor& hidden, int threads) {
  const Tensor logits = model.logits(hidden, threads);
  const auto values = logits.values<float>();
  return detail::largest_of(std::vector<double>(values.begin(), values.end()), 1).front();
}

}  // namespace

Attribution attribute(const Model& model, const TensorView& tokens, const CauseOptions& options) {
  const ModelInfo& info = model.info();
  const Family& family = *model.parts().family;
  const LinearWeights* unembedding = info.predicts ? family.unembedding() : nullptr;
  if (unembedding == nullptr)
    detail::refuse("a model of family '", info.family,
                   "' has logits that are not a sum over its layers, so its heads have no shares in them");
  detail::check_tokens(options, info);
  Attribution made;
  made.row = detail::checked_row(options, tokens);
  const int threads = options.threads == 0 ? default_threads() : options.threads;
  const detail::RowTrace trace = detail::trace_row(model, tokens, made.row, threads);
  made.token = options.token ? *options.token : likeliest(model, trace.hidden, threads);
  std::vector<float> row(static_cast<std::size_t>(info.model_dim));
  read_weight_row(unembedding->weight, made.token, row.data());
  Direction unembedded(row.begin(), row.end());
  for (double& one : unembedded) one *= family.logits_scale();
  const HeldNorm norm = *family.held_last_norm(row_of(trace.streams, info.layers));
  const Direction direction = through(norm, unembedded);
  const double bias = bias_at(*unembedding, made.token);
  made.logit = dot<float>(unembedded, row_of(trace.hidden, 0)) + bias;
  made.constant = share_of_bias(norm, unembedded) + bias;
  made.embedding = dot<float>(direction, row_of(trace.streams, 0));
  made.heads = Tensor({info.layers, info.heads}, DType::f64);
  made.biases.resize(static_cast<std::size_t>(info.layers));
  made.mlps.resize(static_cast<std::size_t>(info.layers));
  parallel_for(info.layers, threads, [&](std::int64_t layer, int /*worker*/) {
    attribute_layer(family, trace, direction, layer, made);
  });
  return made;
}

}  // namespace heed
