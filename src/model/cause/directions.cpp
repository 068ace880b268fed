#include "model/cause/directions.hpp"

#include <algorithm>
#include <functional>

#include "core/largest.hpp"
#include "core/message.hpp"

namespace heed::detail {

Direction through(const HeldNorm& norm, const Direction& direction) {
  Direction seen(direction.size());
  std::ranges::transform(direction, norm.gain, seen.begin(), std::multiplies<>());
  if (!norm.centred) return seen;
  const double mean = std::accumulate(seen.begin(), seen.end(), 0.0) / static_cast<double>(seen.size());
  for (double& one : seen) one -= mean;
  return seen;
}

double share_of_bias(const HeldNorm& norm, const Direction& direction) {
  return norm.bias.empty() ? 0 : dot<double>(direction, norm.bias);
}

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

// A rotation back is the transpose of the rotation.
Direction through(const HeadInput& input, Direction direction, std::int64_t at, std::int64_t length) {
  if (input.rope != nullptr) rotate(*input.rope, direction, -at, length);
  for (std::size_t i = 0; i < input.gain.size(); ++i) direction[i] *= input.gain[i];
  const auto inputs = static_cast<std::size_t>(input.weights->inputs());
  const std::vector<float> rows = rows_of_outputs(*input.weights, input.first, std::ssize(direction));
  Direction seen(inputs);
  for (std::size_t i = 0; i < direction.size(); ++i)
    for (std::size_t k = 0; k < inputs; ++k)
      seen[k] += direction[i] * static_cast<double>(rows[i * inputs + k]);
  return input.norm ? through(*input.norm, seen) : seen;
}

std::vector<float> rows_of_outputs(const LinearWeights& weights, std::int64_t first, std::int64_t count) {
  const std::int64_t inputs = weights.inputs();
  std::vector<float> rows(static_cast<std::size_t>(count * inputs));
  if (!weights.transposed) {
    for (std::int64_t i = 0; i < count; ++i)
      read_weight_row(weights.weight, first + i, rows.data() + i * inputs);
    return rows;
  }
  std::vector<float> all(static_cast<std::size_t>(weights.outputs()));
  for (std::int64_t k = 0; k < inputs; ++k) {
    read_weight_row(weights.weight, k, all.data());
    for (std::int64_t i = 0; i < count; ++i)
      rows[static_cast<std::size_t>(i * inputs + k)] = all[static_cast<std::size_t>(first + i)];
  }
  return rows;
}

void check_has_shares(const Model& model) {
  const ModelInfo& info = model.info();
  if (!info.predicts || model.parts().family->unembedding() == nullptr)
    refuse("a model of family '", info.family,
           "' has logits that are not a sum over its layers, so its heads have no shares in them");
}

LogitDirection logit_direction(const Model& model, std::span<const float> x, std::int64_t token) {
  const Family& family = *model.parts().family;
  const LinearWeights& unembedding = *family.unembedding();
  std::vector<float> row(x.size());
  read_weight_row(unembedding.weight, token, row.data());
  LogitDirection made;
  made.hidden.assign(row.begin(), row.end());
  for (double& one : made.hidden) one *= family.logits_scale();
  const HeldNorm norm = *family.held_last_norm(x);
  made.stream = through(norm, made.hidden);
  made.bias = bias_at(unembedding, token);
  made.constant = share_of_bias(norm, made.hidden) + made.bias;
  return made;
}

std::int64_t likeliest_token(const Model& model, const Tensor& hidden, int threads) {
  const Tensor logits = model.logits(hidden, threads);
  const auto values = logits.values<float>();
  return largest_of(std::vector<double>(values.begin(), values.end()), 1).front();
}

double bias_at(const LinearWeights& weights, std::int64_t output) {
  return weights.bias.count() == 0 ? 0 : static_cast<double>(weights.bias.at<float>(output));
}

}  // namespace heed::detail
