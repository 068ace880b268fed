#include "model/reading.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "command.hpp"

namespace heed::cli {

Reading read_words(const TrainedModel& trained, const std::string& text, const std::string& source) {
  Reading reading;
  reading.tokens = trained.vocabulary.tokens_of(text, source);
  const auto length = static_cast<std::int64_t>(reading.tokens.size());
  const char* what = trained.vocabulary.is_symbols() ? " words" : " characters";
  if (length == 0 || length > trained.settings.context)
    throw UsageError(source + " has " + std::to_string(length) + what + "; 1 to " +
                     std::to_string(trained.settings.context) + " are expected, as the model reads them");
  const Tensor ids = trained.vocabulary.encode(reading.tokens, source);
  nn::LanguageModelResult result = trained.model.forward(ids);
  for (nn::BlockResult& block : result.blocks) {
    reading.query.push_back(std::move(block.attention.query));
    reading.key.push_back(std::move(block.attention.key));
    reading.value.push_back(std::move(block.attention.value));
  }
  reading.logits = std::move(result.logits);
  return reading;
}

AttentionReport report_of_layer(const Reading& reading, std::int64_t layer) {
  const auto at = static_cast<std::size_t>(layer);
  ReportAsk ask;
  ask.received = false;
  ask.map = {};
  ask.full_weights_cells = kFullWeightsCells;
  ask.query_tokens = ask.key_tokens = reading.tokens;
  return make_report(reading.query[at], reading.key[at], reading.value[at], {.causal = true}, ask);
}

std::vector<Expectation> expected_after(const TrainedModel& trained, const Reading& reading,
                                        std::int64_t place, std::int64_t count) {
  const Tensor logits = Tensor::copy_of(reading.logits.view().select(0, place), DType::f64);
  const auto values = logits.values<double>();
  const double largest = *std::max_element(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) sum += std::exp(value - largest);
  std::vector<std::int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit_of = [&](std::int64_t id) { return values[static_cast<std::size_t>(id)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return logit_of(a) > logit_of(b); });
  order.resize(std::min(order.size(), static_cast<std::size_t>(count)));
  std::vector<Expectation> expected;
  for (const std::int64_t id : order)
    expected.push_back(
        {trained.vocabulary.text_of(id, reading.tokens), std::exp(logit_of(id) - largest) / sum});
  return expected;
}

std::string description_of(const TrainedModel& trained, const std::string& name) {
  const TrainSettings& settings = trained.settings;
  const auto counted = [](std::int64_t count, const std::string& thing) {
    return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
  };
  return name + ": " + counted(settings.layers, "layer") + " of " + counted(settings.heads, "head") +
         (settings.attention_only ? ", attention only, " : ", ") +
         counted(nn::parameter_count(trained.model.config), "parameter");
}

}  // namespace heed::cli
