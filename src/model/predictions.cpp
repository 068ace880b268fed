#include "model/predictions.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/message.hpp"
#include "heed/parallel.hpp"

namespace heed::detail {
namespace {

constexpr std::int64_t kLogits = std::int64_t{1} << 24;  // logits at a time: 64 MiB

double log_sum_of(std::span<const float> logits) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float one : logits) sum += std::exp(one - largest);
  return largest + std::log(sum);
}

}  // namespace

std::vector<double> probabilities_of(std::span<const float> logits) {
  const double log_sum = log_sum_of(logits);
  std::vector<double> all(logits.size());
  std::ranges::transform(logits, all.begin(), [&](float one) { return std::exp(one - log_sum); });
  return all;
}

double mean_loss(const Model& model, const Tensor& hidden, std::span<const std::int64_t> ids, int threads) {
  const std::int64_t count = hidden.size(0) - 1, vocabulary = model.info().vocabulary;
  if (count == 0) return std::numeric_limits<double>::quiet_NaN();
  const std::int64_t piece = std::max<std::int64_t>(1, kLogits / vocabulary);
  std::vector<double> losses(static_cast<std::size_t>(count));
  for (std::int64_t begin = 0; begin < count; begin += piece) {
    const std::int64_t rows = std::min(piece, count - begin);
    const Tensor logits = model.logits(hidden.view().narrow(0, begin, rows), threads);
    const auto values = logits.values<float>();
    parallel_for(rows, threads == 0 ? default_threads() : threads, [&](std::int64_t i, int /*worker*/) {
      const auto row =
          values.subspan(static_cast<std::size_t>(i * vocabulary), static_cast<std::size_t>(vocabulary));
      const auto at = static_cast<std::size_t>(begin + i);
      losses[at] = log_sum_of(row) - static_cast<double>(row[static_cast<std::size_t>(ids[at + 1])]);
    });
  }
  return std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(count);
}

std::int64_t checked_row(const CauseOptions& options, const TensorView& tokens) {
  if (tokens.rank() != 1 || tokens.size(0) == 0) return 0;  // the model refuses such tokens
  const std::int64_t rows = tokens.size(0);
  const std::int64_t row = options.row.value_or(rows - 1);
  check_range("row", row, 0, rows - 1);
  return row;
}

void check_tokens(const CauseOptions& options, const ModelInfo& info) {
  if (options.token) check_range("token", *options.token, 0, info.vocabulary - 1);
  if (options.top < 1) refuse("top is ", options.top, "; 1 or more is expected");
}

std::vector<std::int64_t> ids_of(const TensorView& tokens) {
  const Tensor copy = Tensor::copy_of(tokens, DType::i64);
  const auto ids = copy.values<std::int64_t>();
  return {ids.begin(), ids.end()};
}

}  // namespace heed::detail
