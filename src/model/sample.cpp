#include "model/sample.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "attention/call/message.hpp"

namespace heed::detail {
namespace {

// The K largest logits (0: all), the largest first.
std::vector<std::int64_t> order_of(std::span<const float> logits, std::int64_t top_k) {
  std::vector<std::int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto logit = [&](std::int64_t id) { return logits[static_cast<std::size_t>(id)]; };
  const auto before = [&](std::int64_t a, std::int64_t b) {
    return logit(a) > logit(b) || (logit(a) == logit(b) && a < b);
  };
  const auto size = static_cast<std::int64_t>(order.size());
  const std::int64_t kept = top_k > 0 ? std::min(top_k, size) : size;
  std::partial_sort(order.begin(), order.begin() + kept, order.end(), before);
  order.resize(static_cast<std::size_t>(kept));
  return order;
}

}  // namespace

std::int64_t sample(std::span<const float> logits, const GenerateOptions& options, Generator& generator) {
  for (const float logit : logits)
    if (!std::isfinite(logit)) refuse(ErrorCode::internal, "the model gives a logit that is not a number");
  if (options.temperature == 0) return std::max_element(logits.begin(), logits.end()) - logits.begin();
  const std::vector<std::int64_t> order = order_of(logits, options.top_k);
  const auto logit_of = [&](std::int64_t id) {
    return static_cast<double>(logits[static_cast<std::size_t>(id)]);
  };
  std::vector<double> upto;  // cumulated, relative to the largest
  double sum = 0;
  for (const std::int64_t id : order)
    upto.push_back(sum += std::exp((logit_of(id) - logit_of(order.front())) / options.temperature));
  // Up to the first with which they have the share of top_p.
  const auto last = std::lower_bound(upto.begin(), upto.end() - 1, options.top_p * sum);
  const double drawn = rand(generator, {1}, DType::f64).at<double>(0) * *last;
  const auto found = std::upper_bound(upto.begin(), last, drawn);
  return order[static_cast<std::size_t>(found - upto.begin())];
}

}  // namespace heed::detail
