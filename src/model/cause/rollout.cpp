// Attention rollout. A row of the product of all layers' (mean over heads of A + I) / 2 is a vector r over
// the tokens. It passes back through the layers: r <- (r + mean over heads of r A) / 2. r A is the gradient
// of the values in attention's backward pass, if their outputs have the gradient r: sum_i r_i p_ij.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/message.hpp"
#include "heed/attention/backward.hpp"
#include "heed/model/cause.hpp"
#include "heed/parallel.hpp"
#include "model/parts.hpp"

namespace heed {
namespace {

constexpr std::int64_t kRowsAtOnce = 64;  // rows processed together: a piece of kernel work

struct LayerTrace {
  Tensor stream;  // [L, D], before the layer
  Tensor lse;     // [H, L]
};

std::vector<LayerTrace> trace_layers(const Model& model, const TensorView& tokens, int threads) {
  std::vector<LayerTrace> layers(static_cast<std::size_t>(model.info().layers));
  ModelHooks hooks;
  hooks.stream = [&](std::int64_t layer, const TensorView& stream) {
    if (layer < model.info().layers) layers[static_cast<std::size_t>(layer)].stream = Tensor::copy_of(stream);
  };
  hooks.attend = [&](const LayerCall& call) {
    AttentionOptions options = call.options;
    options.need = Need::lse;
    AttentionResult result = attention(call.query, call.key, call.value, options);
    layers[static_cast<std::size_t>(call.layer)].lse = std::move(result.lse);
    return std::move(result.output);
  };
  (void)model.hidden_states(tokens, hooks, threads);
  return layers;
}

// Turns flow [L, R] after the layer into the flow before it; a column is a row of the rollout.
void go_back(const Model& model, const LayerTrace& trace, std::int64_t layer, int threads, Tensor& flow) {
  const ModelInfo& info = model.info();
  const std::int64_t length = flow.size(0), columns = flow.size(1);
  detail::Projected made = model.parts().family->project(layer, trace.stream, 0, threads);
  made.options.threads = threads;
  const float zero = 0;
  AttentionBackwardInputs inputs;
  inputs.query = made.query;
  inputs.key = made.key;
  inputs.value = TensorView(&zero, {info.kv_heads, length, columns}, {0, 0, 0});
  inputs.output = TensorView(&zero, {info.heads, length, columns}, {0, 0, 0});
  inputs.lse = trace.lse;
  inputs.grad_output =
      TensorView(flow.values<float>().data(), {info.heads, length, columns}, {0, columns, 1});
  const Tensor moved =
      attention_backward(inputs, made.options, {.query = false, .key = false, .value = true}).value;
  const auto from = moved.values<float>();
  const auto to = flow.values<float>();
  for (std::size_t i = 0; i < to.size(); ++i) {
    double sum = 0;
    for (std::size_t at = i; at < from.size(); at += to.size()) sum += from[at];
    to[i] = static_cast<float>((to[i] + sum / static_cast<double>(info.heads)) / 2);
  }
}

}  // namespace

Tensor rollout(const Model& model, const TensorView& tokens, std::span<const std::int64_t> rows,
               int threads) {
  const std::int64_t length = tokens.rank() == 1 ? tokens.size(0) : 0;
  if (rows.empty()) detail::refuse("rows is empty; at least one is expected");
  for (std::size_t i = 0; i < rows.size() && length > 0; ++i)
    if (rows[i] < 0 || rows[i] >= length)
      detail::refuse("rows[", i, "] is ", rows[i], "; 0 to ", length - 1, " is expected");
  if (threads == 0) threads = default_threads();
  const std::vector<LayerTrace> layers = trace_layers(model, tokens, threads);
  const auto count = std::ssize(rows);
  Tensor made({count, length});
  for (std::int64_t begin = 0; begin < count; begin += kRowsAtOnce) {
    const std::int64_t columns = std::min(kRowsAtOnce, count - begin);
    Tensor flow({length, columns});
    for (std::int64_t i = 0; i < columns; ++i)
      flow.at<float>(rows[static_cast<std::size_t>(begin + i)], i) = 1;
    for (std::int64_t layer = model.info().layers - 1; layer >= 0; --layer)
      go_back(model, layers[static_cast<std::size_t>(layer)], layer, threads, flow);
    copy(flow.view().transpose(0, 1), made.mutable_view().narrow(0, begin, columns));
  }
  return made;
}

}  // namespace heed
