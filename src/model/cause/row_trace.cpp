#include "model/cause/row_trace.hpp"

#include <utility>

namespace heed::detail {

RowTrace trace_row(const Model& model, const TensorView& tokens, std::int64_t row, int threads) {
  const ModelInfo& info = model.info();
  RowTrace trace;
  trace.streams = Tensor::uninitialized({info.layers + 1, info.model_dim}, DType::f32);
  trace.heads = Tensor::uninitialized({info.layers, info.heads, info.head_dim}, DType::f32);
  ModelHooks hooks;
  hooks.stream = [&](std::int64_t layer, const TensorView& stream) {
    copy(stream.select(0, row), trace.streams.mutable_view().select(0, layer));
  };
  hooks.heads = [&](std::int64_t layer, const MutableTensorView& heads) {
    copy(heads.select(0, row), trace.heads.mutable_view().select(0, layer));
  };
  const Tensor hidden = model.hidden_states(tokens, hooks, threads);
  trace.hidden = Tensor::copy_of(hidden.view().narrow(0, row, 1));
  trace.heads = std::move(trace.heads).reshaped({info.layers, info.heads * info.head_dim});
  return trace;
}

}  // namespace heed::detail
