#include "nn/attention_layer.hpp"

#include "nn/checks.hpp"
#include "nn/elements.hpp"

namespace heed::nn::detail {
namespace {

void check_projection(const Linear& projection, const char* name, std::int64_t heads, DType dtype) {
  const std::string weight = std::string(name) + ".weight";
  require_real(projection.weight, weight.c_str());
  require_rank(projection.weight, weight.c_str(), 2, "[out, in]");
  require_dtype(projection.weight, weight.c_str(), dtype, "query.weight");
  if (projection.weight.size(0) % heads != 0)
    refuse(weight, " has shape ", projection.weight.shape(), "; a multiple of ", heads,
           " rows is expected for ", heads, " heads");
}

void check_input(const TensorView& x, const char* name, const Linear& projection, const char* weight) {
  require_dtype(x, name, projection.weight.dtype(), weight);
  const std::int64_t dim = projection.weight.size(1);
  if ((x.rank() != 2 && x.rank() != 3) || x.shape().back() != dim)
    refuse(name, " has shape ", x.shape(), "; [L, ", dim, "] or [B, L, ", dim, "] is expected");
}

void check_call(const Parts& parts, const LayerInputs& inputs, const AttentionOptions& options) {
  const auto& [x, context] = inputs;
  check_parts(parts);
  check_input(x, "x", parts.query, "query.weight");
  check_input(context, "context", parts.key, "key.weight");
  if (context.rank() != x.rank() || (x.rank() == 3 && context.shape()[0] != x.shape()[0]))
    refuse("context has shape ", context.shape(), "; the batch of x, ", x.shape(), ", is expected");
  if (options.output_dtype && *options.output_dtype != x.dtype())
    refuse("output_dtype is ", name_of(*options.output_dtype), "; ", x.dtype(),
           ", the dtype of the layer, is expected");
}

void check_result(const Parts& parts, const LayerInputs& inputs, const LayerResult& result,
                  const TensorView& grad_output) {
  const auto& [x, context] = inputs;
  const auto heads_of = [](const TensorView& from, std::int64_t heads, std::int64_t rows) {
    Dims shape = from.rank() == 3 ? Dims{from.shape()[0], heads} : Dims{heads};
    shape.push_back(from.size(-2));
    if (rows > 0) shape.push_back(rows / heads);
    return shape;
  };
  const DType dtype = x.dtype();
  const std::int64_t values = parts.value.weight.size(0);
  require_like(result.query, "result.query", heads_of(x, parts.heads, parts.query.weight.size(0)), dtype);
  require_like(result.key, "result.key", heads_of(context, parts.kv_heads, parts.key.weight.size(0)), dtype);
  require_like(result.value, "result.value", heads_of(context, parts.kv_heads, values), dtype);
  require_like(result.attention.output, "result.attention.output",
               heads_of(x, parts.heads, values / parts.kv_heads * parts.heads), dtype);
  Dims output = x.shape();
  output[output.size() - 1] =
      parts.out_proj == nullptr ? values / parts.kv_heads * parts.heads : parts.out_proj->weight.size(0);
  require_like(grad_output, "grad_output", output, dtype);
  if (result.attention.lse.shape() != heads_of(x, parts.heads, 0))
    refuse("result.attention.lse has shape ", result.attention.lse.shape(),
           "; the lse of a forward() with Need::lse is expected");
}

}  // namespace

// The parts are public and may have been replaced since construction, so forward() checks again.
void check_parts(const Parts& parts) {
  require_size(parts.heads, "heads");
  require_size(parts.kv_heads, "kv_heads");
  if (parts.heads % parts.kv_heads != 0)
    refuse("kv_heads is ", parts.kv_heads, "; a divisor of the ", parts.heads, " heads is expected");
  const DType dtype = parts.query.weight.dtype();
  check_projection(parts.query, "query", parts.heads, dtype);
  check_projection(parts.key, "key", parts.kv_heads, dtype);
  check_projection(parts.value, "value", parts.kv_heads, dtype);
  const std::int64_t head_dim = parts.query.weight.size(0) / parts.heads;
  if (parts.key.weight.size(0) != parts.kv_heads * head_dim)
    refuse("key.weight has shape ", parts.key.weight.shape(), "; ", parts.kv_heads * head_dim,
           " rows are expected, ", head_dim, " for each key head, as the query's heads have");
  if (parts.value.weight.size(1) != parts.key.weight.size(1))
    refuse("value.weight has shape ", parts.value.weight.shape(), "; ", parts.key.weight.size(1),
           " columns are expected, as key.weight has");
  if (parts.out_proj == nullptr) return;
  check_projection(*parts.out_proj, "out_proj", 1, dtype);
  const std::int64_t merged = parts.value.weight.size(0) / parts.kv_heads * parts.heads;
  if (parts.out_proj->weight.size(1) != merged)
    refuse("out_proj.weight has shape ", parts.out_proj->weight.shape(), "; ", merged,
           " columns are expected: ", parts.heads, " heads of the value's size");
}

LayerResult run_layer(const Parts& parts, const LayerInputs& inputs, const AttentionOptions& options,
                      const AttentionFunctions& functions) {
  check_call(parts, inputs, options);
  LayerResult result;
  result.query = split_heads(parts.query.forward(inputs.x), parts.heads);
  result.key = split_heads(parts.key.forward(inputs.context), parts.kv_heads);
  result.value = split_heads(parts.value.forward(inputs.context), parts.kv_heads);
  result.attention = functions.forward ? functions.forward(result.query, result.key, result.value, options)
                                       : attention(result.query, result.key, result.value, options);
  result.output = merge_heads(result.attention.output);
  if (parts.out_proj != nullptr) result.output = parts.out_proj->forward(result.output);
  return result;
}

CrossGradients run_layer_backward(const Parts& parts, const TensorView& grad_output,
                                  const LayerInputs& inputs, const LayerResult& result,
                                  const AttentionOptions& options, const PartGradients& grads,
                                  const AttentionFunctions& functions) {
  check_call(parts, inputs, options);
  check_result(parts, inputs, result, grad_output);
  if ((parts.out_proj == nullptr) != (grads.out_proj == nullptr))
    refuse("only one of grads and the layer has an out_proj; both or neither is expected");
  const AttentionResult& attention = result.attention;
  Tensor grad_merged = Tensor::copy_of(grad_output);
  if (parts.out_proj != nullptr)
    grad_merged = parts.out_proj->backward(grad_output, merge_heads(attention.output), *grads.out_proj);
  const Tensor grad_heads = split_heads(grad_merged, parts.heads);
  const AttentionBackwardInputs inner_inputs{.query = result.query,
                                             .key = result.key,
                                             .value = result.value,
                                             .output = attention.output,
                                             .lse = attention.lse,
                                             .grad_output = grad_heads};
  const AttentionGradients inner = functions.backward ? functions.backward(inner_inputs, options)
                                                      : attention_backward(inner_inputs, options);
  CrossGradients outer;
  outer.x = parts.query.backward(merge_heads(inner.query), inputs.x, grads.query);
  outer.context = parts.key.backward(merge_heads(inner.key), inputs.context, grads.key);
  add(parts.value.backward(merge_heads(inner.value), inputs.context, grads.value), outer.context);
  return outer;
}

}  // namespace heed::nn::detail
