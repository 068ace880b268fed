#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "attention/call/message.hpp"
#include "core/tensor/concatenate.hpp"
#include "heed/trained_model.hpp"

namespace heed {
namespace {

void require_place(const char* name, std::int64_t index, std::int64_t count) {
  if (index < 0 || index >= count) detail::refuse(name, " is ", index, "; 0 to ", count - 1, " is expected");
}

}  // namespace

Reading TrainedModel::read(std::string_view text, const std::string& source) const {
  Reading reading;
  reading.tokens = tokenizer.tokens_of(text, source);
  const auto length = static_cast<std::int64_t>(reading.tokens.size());
  if (length == 0 || length > model.config.context)
    detail::refuse(source, " has ", length, tokenizer.is_symbols() ? " words" : " characters", "; 1 to ",
                   model.config.context, " are expected, as the model reads them");
  nn::LanguageModelResult result = model.forward(tokenizer.encode(reading.tokens, source));
  for (nn::BlockResult& block : result.blocks) {
    reading.query.push_back(std::move(block.attention.query));
    reading.key.push_back(std::move(block.attention.key));
    reading.value.push_back(std::move(block.attention.value));
  }
  reading.logits = std::move(result.logits);
  return reading;
}

std::vector<Expectation> TrainedModel::expected_after(const Reading& reading, std::int64_t place,
                                                      std::int64_t count) const {
  require_place("place", place, reading.logits.size(0));
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
  order.resize(std::min(order.size(), static_cast<std::size_t>(std::max<std::int64_t>(count, 0))));
  std::vector<Expectation> expected;
  for (const std::int64_t id : order)
    expected.push_back({tokenizer.text_of(id, reading.tokens), std::exp(logit_of(id) - largest) / sum});
  return expected;
}

Document document_of_layer(const Reading& reading, std::int64_t layer) {
  require_place("layer", layer, static_cast<std::int64_t>(reading.query.size()));
  const auto at = static_cast<std::size_t>(layer);
  Document call;
  call.query = reading.query[at];
  call.key = reading.key[at];
  call.value = reading.value[at];
  call.options.causal = true;
  call.report.query_tokens = call.report.key_tokens = reading.tokens;
  return call;
}

Document document_of_layers(const Reading& reading) {
  Document call;
  for (const auto* parts : {&reading.query, &reading.key, &reading.value}) {
    const std::vector<TensorView> layers(parts->begin(), parts->end());
    call.tensors.push_back(detail::concatenated(layers, 0));
  }
  call.query = call.tensors[0];
  call.key = call.tensors[1];
  call.value = call.tensors[2];
  call.options.causal = true;
  call.report.query_tokens = call.report.key_tokens = reading.tokens;
  for (std::size_t n = 0; n < reading.query.size(); ++n)
    call.report.layers.push_back({std::to_string(n), reading.query[n].size(0)});
  return call;
}

}  // namespace heed
