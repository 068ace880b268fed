#include "model/generate.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "attention/call/message.hpp"
#include "model/decode.hpp"

namespace heed {
namespace detail {

std::int64_t sample(std::span<const float> logits, const GenerateOptions& options, Generator& generator) {
  for (const float logit : logits)
    if (!std::isfinite(logit)) refuse(ErrorCode::internal, "the model gives a logit that is not a number");
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

}  // namespace detail

std::string TrainedModel::generate(std::string_view prompt, const GenerateOptions& options,
                                   const std::function<void(const std::string& token)>& add,
                                   const std::string& source) const {
  if (options.tokens < 1) detail::refuse("tokens is ", options.tokens, "; 1 or more is expected");
  if (!(options.temperature >= 0 && std::isfinite(options.temperature)))
    detail::refuse("temperature is ", options.temperature, "; a number of at least 0 is expected");
  if (options.top_k < 0) detail::refuse("top_k is ", options.top_k, "; 0 (all) or more is expected");
  const std::vector<std::string> words = tokenizer.tokens_of(prompt, source);
  if (words.empty() && tokenizer.is_symbols())
    detail::refuse(source, " has no words; this model goes on with what is repeated in it");
  const Tensor given = tokenizer.encode(words, source);
  std::vector<std::int64_t> ids(given.values<std::int64_t>().begin(), given.values<std::int64_t>().end());
  detail::Decoder decoder(model, options.cache);
  Generator generator(options.seed);
  std::string text;
  for (std::int64_t left = options.tokens; left > 0; --left) {
    if (ids.empty()) {
      ids.push_back(0);
    } else {
      const Tensor logits = decoder.next(ids);
      ids.push_back(detail::sample(logits.values<float>(), options, generator));
    }
    const std::string token = tokenizer.text_of(ids.back(), words);
    text += (tokenizer.is_symbols() && !text.empty() ? " " : "") + token;
    if (add) add(token);
  }
  return text;
}

}  // namespace heed
