#include "model/sample.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "heed/error.hpp"

namespace heed::cli {

std::int64_t sample(std::span<const float> logits, const SamplingOptions& options, Generator& generator) {
  for (const float logit : logits)
    if (!std::isfinite(logit))
      throw Error(ErrorCode::internal, "the model gives a logit that is not a number");
  std::vector<std::int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit_of = [&](std::int64_t id) {
    return static_cast<double>(logits[static_cast<std::size_t>(id)]);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return logit_of(a) > logit_of(b); });
  if (options.top_k > 0 && options.top_k < static_cast<std::int64_t>(order.size()))
    order.resize(static_cast<std::size_t>(options.top_k));
  if (options.temperature == 0) return order.front();
  std::vector<double> upto;  // cumulated, relative to the largest
  double sum = 0;
  for (const std::int64_t id : order)
    upto.push_back(sum += std::exp((logit_of(id) - logit_of(order.front())) / options.temperature));
  const double drawn = rand(generator, {1}, DType::f64).at<double>(0) * sum;
  const auto found = std::upper_bound(upto.begin(), upto.end(), drawn);
  return order[static_cast<std::size_t>(std::min(found, upto.end() - 1) - upto.begin())];
}

void generate(const nn::LanguageModel& model, const Tensor& prompt, std::int64_t count,
              const SamplingOptions& options, Generator& generator,
              const std::function<void(std::int64_t)>& add) {
  const auto given = prompt.values<std::int64_t>();
  std::vector<std::int64_t> ids(given.begin(), given.end());
  if (ids.empty()) {
    ids.push_back(0);
    add(0);
    --count;
  }
  for (; count > 0; --count) {
    const auto seen = std::min(ids.size(), static_cast<std::size_t>(model.config.context));
    const TensorView tokens(ids.data() + ids.size() - seen, {static_cast<std::int64_t>(seen)});
    const Tensor logits = model.forward(tokens).logits;
    const auto last = logits.values<float>().last(static_cast<std::size_t>(model.config.vocabulary));
    ids.push_back(sample(last, options, generator));
    add(ids.back());
  }
}

}  // namespace heed::cli
