#include <limits>
#include <utility>

#include "heed/nn/layers.hpp"
#include "nn/attention_layer.hpp"
#include "nn/checks.hpp"
#include "nn/elements.hpp"
#include "nn/init.hpp"

namespace heed::nn {
namespace {

Linear zero_bias(Linear layer) {
  if (layer.bias) layer.bias = Tensor(layer.bias->shape(), layer.bias->dtype());
  return layer;
}

std::optional<Tensor> zeros(bool wanted, std::int64_t size, DType dtype) {
  if (!wanted) return std::nullopt;
  return Tensor({size}, dtype);
}

// A new weight [out, in], drawn with the generator.
Tensor drawn_weight(Generator& generator, std::int64_t out, std::int64_t in, DType dtype) {
  Tensor weight = Tensor::uninitialized({out, in}, dtype);
  detail::init_xavier(generator, weight);
  return weight;
}

// A projection has no more rows than a BLAS can count. Sums of three such numbers cannot overflow either.
void require_product(std::int64_t heads, std::int64_t width, const char* name) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
  if (width > kMax / heads)
    detail::refuse(name, " is ", width, "; at most ", kMax / heads, " is expected for ", heads, " heads");
}

// Fills in the default sizes, or throws an error that names the wrong one.
MultiHeadOptions completed(MultiHeadOptions sizes) {
  detail::require_size(sizes.dim, "dim");
  detail::require_size(sizes.heads, "heads");
  if (sizes.kv_heads == 0) sizes.kv_heads = sizes.heads;
  detail::require_size(sizes.kv_heads, "kv_heads");
  if (sizes.heads % sizes.kv_heads != 0)
    detail::refuse("kv_heads is ", sizes.kv_heads, "; a divisor of the ", sizes.heads, " heads is expected");
  if (sizes.head_dim == 0) {
    if (sizes.dim % sizes.heads != 0)
      detail::refuse("dim is ", sizes.dim, "; a multiple of the ", sizes.heads,
                     " heads is expected if head_dim is not given");
    sizes.head_dim = sizes.dim / sizes.heads;
  }
  if (sizes.value_dim == 0) sizes.value_dim = sizes.head_dim;
  if (sizes.context_dim == 0) sizes.context_dim = sizes.dim;
  detail::require_size(sizes.head_dim, "head_dim");
  detail::require_size(sizes.value_dim, "value_dim");
  detail::require_size(sizes.context_dim, "context_dim");
  require_product(sizes.heads, sizes.head_dim, "head_dim");
  require_product(sizes.heads, sizes.value_dim, "value_dim");
  return sizes;
}

MultiHeadAttention drawn(const MultiHeadOptions& given, Generator& generator, DType dtype) {
  const MultiHeadOptions s = completed(given);
  const std::int64_t query_rows = s.heads * s.head_dim;
  const std::int64_t key_rows = s.kv_heads * s.head_dim;
  const std::int64_t value_rows = s.kv_heads * s.value_dim;
  std::optional<Linear> out_proj;
  if (s.output_projection)
    out_proj = zero_bias(Linear(s.heads * s.value_dim, s.dim, s.bias, generator, dtype));
  if (s.context_dim == s.dim) {
    const Tensor weight = drawn_weight(generator, query_rows + key_rows + value_rows, s.dim, dtype);
    const std::optional<Tensor> bias = zeros(s.bias, weight.size(0), dtype);
    return MultiHeadAttention::from_in_proj(weight, bias ? std::optional<TensorView>(*bias) : std::nullopt,
                                            std::move(out_proj), s.heads, s.kv_heads, s.value_dim);
  }
  Linear query(drawn_weight(generator, query_rows, s.dim, dtype), zeros(s.bias, query_rows, dtype));
  Linear key(drawn_weight(generator, key_rows, s.context_dim, dtype), zeros(s.bias, key_rows, dtype));
  Linear value(drawn_weight(generator, value_rows, s.context_dim, dtype), zeros(s.bias, value_rows, dtype));
  return {std::move(query), std::move(key), std::move(value), std::move(out_proj), s.heads, s.kv_heads};
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(const MultiHeadOptions& options, Generator& generator, DType dtype)
    : MultiHeadAttention(drawn(options, generator, dtype)) {}

MultiHeadAttention::MultiHeadAttention(Linear query_part, Linear key_part, Linear value_part,
                                       std::optional<Linear> out_part, std::int64_t heads,
                                       std::int64_t kv_heads)
    : query(std::move(query_part)),
      key(std::move(key_part)),
      value(std::move(value_part)),
      out_proj(std::move(out_part)),
      heads_(heads),
      kv_heads_(kv_heads == 0 ? heads : kv_heads) {
  detail::check_parts({query, key, value, out_proj ? &*out_proj : nullptr, heads_, kv_heads_});
}

LayerResult MultiHeadAttention::forward(const TensorView& x, const AttentionOptions& options,
                                        const AttentionFunctions& functions) const {
  if (key.weight.rank() == 2 && query.weight.rank() == 2 && key.weight.size(1) != query.weight.size(1))
    detail::refuse("context is not given; this layer makes its keys and values from [L, ", key.weight.size(1),
                   "]");
  return forward(x, x, options, functions);
}

LayerResult MultiHeadAttention::forward(const TensorView& x, const TensorView& context,
                                        const AttentionOptions& options,
                                        const AttentionFunctions& functions) const {
  return detail::run_layer({query, key, value, out_proj ? &*out_proj : nullptr, heads_, kv_heads_},
                           {x, context}, options, functions);
}

Tensor MultiHeadAttention::backward(const TensorView& grad_output, const TensorView& x,
                                    const LayerResult& result, const AttentionOptions& options,
                                    MultiHeadAttention& grads, const AttentionFunctions& functions) const {
  CrossGradients both = backward(grad_output, x, x, result, options, grads, functions);
  detail::add(both.context, both.x);
  return std::move(both.x);
}

CrossGradients MultiHeadAttention::backward(const TensorView& grad_output, const TensorView& x,
                                            const TensorView& context, const LayerResult& result,
                                            const AttentionOptions& options, MultiHeadAttention& grads,
                                            const AttentionFunctions& functions) const {
  return detail::run_layer_backward(
      {query, key, value, out_proj ? &*out_proj : nullptr, heads_, kv_heads_}, grad_output, {x, context},
      result, options, {grads.query, grads.key, grads.value, grads.out_proj ? &*grads.out_proj : nullptr},
      functions);
}

std::vector<NamedParameter> MultiHeadAttention::parameters() {
  std::vector<NamedParameter> all;
  detail::append_parameters(all, "query", query);
  detail::append_parameters(all, "key", key);
  detail::append_parameters(all, "value", value);
  if (out_proj) detail::append_parameters(all, "out_proj", *out_proj);
  return all;
}

}  // namespace heed::nn
