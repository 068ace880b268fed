#include "model/cause/row_trace.hpp"

#include <utility>

#include "heed/attention/part.hpp"

namespace heed::detail {

std::vector<RowTrace> trace_rows(const Model& model, const TensorView& tokens,
                                 std::span<const std::int64_t> rows, ModelHooks hooks, int threads) {
  const ModelInfo& info = model.info();
  std::vector<RowTrace> traces(rows.size());
  for (RowTrace& trace : traces) {
    trace.streams = Tensor::uninitialized({info.layers + 1, info.model_dim}, DType::f32);
    trace.heads = Tensor::uninitialized({info.layers, info.heads, info.head_dim}, DType::f32);
  }
  hooks.stream = [&](std::int64_t layer, const TensorView& stream) {
    for (std::size_t i = 0; i < rows.size(); ++i)
      copy(stream.select(0, rows[i]), traces[i].streams.mutable_view().select(0, layer));
  };
  hooks.heads = [&](std::int64_t layer, const MutableTensorView& heads) {
    for (std::size_t i = 0; i < rows.size(); ++i)
      copy(heads.select(0, rows[i]), traces[i].heads.mutable_view().select(0, layer));
  };
  const Tensor hidden = model.hidden_states(tokens, hooks, threads);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    traces[i].hidden = Tensor::copy_of(hidden.view().narrow(0, rows[i], 1));
    traces[i].heads = std::move(traces[i].heads).reshaped({info.layers, info.heads * info.head_dim});
  }
  return traces;
}

RowAttention attend_row(const LayerCall& call, std::int64_t row, bool whole) {
  const std::int64_t heads = call.query.size(0), length = call.key.size(1);
  AttentionOptions options = call.options;
  if (options.bias && options.bias->size(-2) > 1) options.bias = options.bias->narrow(-2, row, 1);
  RowAttention made;
  made.heaviest = Tensor({heads, 1, 1}, DType::i64);
  made.heaviest_weight = Tensor({heads, 1, 1}, DType::f32);
  AttentionOutputs outputs;
  outputs.top_k_index = made.heaviest;
  outputs.top_k_weight = made.heaviest_weight;
  if (whole) {
    made.scores = Tensor({heads, 1, length}, DType::f32);
    made.weights = Tensor({heads, 1, length}, DType::f32);
    outputs.scores = made.scores;
    outputs.weights = made.weights;
  }
  const PositionRange range{row, row + 1};
  const CallPart part{.heads = heads, .query_length = call.query.size(1), .rows = {&range, 1}};
  attention_part_into(call.query.narrow(1, row, 1), call.key, call.value, options, part, outputs);
  return made;
}

RowTrace trace_row(const Model& model, const TensorView& tokens, std::int64_t row, int threads) {
  return std::move(trace_rows(model, tokens, {&row, 1}, {}, threads).front());
}

}  // namespace heed::detail
