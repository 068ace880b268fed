#include "model/cause/row_trace.hpp"

#include <utility>

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

RowTrace trace_row(const Model& model, const TensorView& tokens, std::int64_t row, int threads) {
  return std::move(trace_rows(model, tokens, {&row, 1}, {}, threads).front());
}

}  // namespace heed::detail
