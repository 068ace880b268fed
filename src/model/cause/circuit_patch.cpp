#include "model/cause/circuit_patch.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "heed/attention/attention.hpp"

namespace heed::detail {
namespace {

// The vector that an edge's writer wrote.
const std::vector<double>& written(CircuitState& state, const CircuitEdge& edge, std::int64_t layer) {
  const StreamParts& stream = state.parts_at(edge.place, layer);
  const auto at = std::find_if(stream.parts.begin(), stream.parts.end(), [&](const StreamPart& part) {
    return part.kind == edge.writer.kind && part.layer == edge.writer.layer && part.head == edge.writer.head;
  });
  return stream.added[static_cast<std::size_t>(at - stream.parts.begin())];
}

void take_away(const std::vector<double>& part, const MutableTensorView& row) {
  float* to = row.data_as<float>();
  for (std::size_t i = 0; i < part.size(); ++i)
    to[i] = static_cast<float>(static_cast<double>(to[i]) - part[i]);
}

// Replaces the reader's output at its row by what it computes without the writer's part.
void attend_without(CircuitState& state, const CircuitEdge& edge, Tensor& output) {
  const std::int64_t layer = edge.reader.layer, head = edge.reader.head;
  const std::int64_t kv_head = head / (state.info().heads / state.info().kv_heads);
  const LayerState& own = state.layer(layer);
  Tensor stream = Tensor::copy_of(own.stream);
  take_away(written(state, edge, layer), stream.mutable_view().narrow(0, edge.place, 1));
  const Projected without = state.family().project(layer, stream, 0, state.threads());
  const auto row_or = [&](EdgeInto into, const TensorView& changed, const TensorView& unchanged) {
    return edge.into == into ? changed : unchanged;
  };
  const auto of_head = [](const TensorView& heads, std::int64_t h) { return heads.narrow(0, h, 1); };
  Tensor query = Tensor::copy_of(
      of_head(row_or(EdgeInto::query, without.query, own.made.query), head).narrow(1, edge.reader_row, 1));
  Tensor key = Tensor::copy_of(of_head(row_or(EdgeInto::key, without.key, own.made.key), kv_head));
  Tensor value = Tensor::copy_of(of_head(row_or(EdgeInto::value, without.value, own.made.value), kv_head));
  AttentionOptions options = own.made.options;
  options.query_offset = edge.reader_row;
  if (options.sinks) options.sinks = options.sinks->narrow(0, head, 1);
  copy(attention(query, key, value, options).output,
       output.mutable_view().narrow(0, head, 1).narrow(1, edge.reader_row, 1));
}

}  // namespace

Tensor hidden_without(CircuitState& state, const CircuitEdge& edge, std::int64_t row) {
  if (edge.into == EdgeInto::logit) {
    const std::int64_t layers = state.info().layers;
    Tensor stream = state.stream_at(edge.place, layers);
    take_away(written(state, edge, layers), stream);
    return state.family().last_norm(stream, state.threads());
  }
  ModelHooks hooks;
  hooks.attend = [&](const LayerCall& call) {
    Tensor output = attention(call.query, call.key, call.value, call.options).output;
    if (call.layer == edge.reader.layer) attend_without(state, edge, output);
    return output;
  };
  const Tensor hidden = state.model().hidden_states(state.tokens(), hooks, state.threads());
  return Tensor::copy_of(hidden.view().narrow(0, row, 1));
}

}  // namespace heed::detail
