#include <utility>

#include "heed/nn/transformer.hpp"
#include "nn/attention_layer.hpp"
#include "nn/checks.hpp"
#include "nn/elements.hpp"

namespace heed::nn {
namespace {

AttentionOptions causal(const AttentionOptions& given) {
  return {.causal = true, .need = given.need | Need::lse, .kernel = given.kernel, .threads = given.threads};
}

}  // namespace

TransformerBlock::TransformerBlock(std::int64_t dim, std::int64_t heads, std::int64_t mlp_dim,
                                   Generator& generator, DType dtype)
    : attention_norm(dim, dtype), attention({.dim = dim, .heads = heads}, generator, dtype) {
  if (mlp_dim == 0) return;
  detail::require_size(mlp_dim, "mlp_dim");
  mlp_norm = LayerNorm(dim, dtype);
  mlp = Mlp(dim, mlp_dim, generator, dtype);
}

BlockResult TransformerBlock::forward(const TensorView& x, const AttentionOptions& options,
                                      const AttentionFunctions& functions) const {
  BlockResult result;
  result.attention_norm = attention_norm.forward(x);
  result.attention = attention.forward(result.attention_norm.output, causal(options), functions);
  result.output = detail::sum(x, result.attention.output);
  if (!mlp) return result;
  result.middle = std::move(result.output);
  result.mlp_norm = mlp_norm->forward(result.middle);
  result.mlp = mlp->forward(result.mlp_norm.output);
  result.output = detail::sum(result.middle, result.mlp.output);
  return result;
}

// A residual path bypasses each part, so the gradient of the part's input is added to the gradient of its
// output.
Tensor TransformerBlock::backward(const TensorView& grad_output, const BlockResult& result,
                                  TransformerBlock& grads, const AttentionFunctions& functions) const {
  if (mlp.has_value() != grads.mlp.has_value())
    detail::refuse("grads is a block ", mlp ? "without" : "with",
                   " an MLP; a block of the same kind is expected");
  Tensor grad = Tensor::copy_of(grad_output);
  if (mlp) {
    const Tensor inner = mlp->backward(grad, result.mlp_norm.output, result.mlp, *grads.mlp);
    detail::add(mlp_norm->backward(inner, result.mlp_norm, *grads.mlp_norm), grad);
  }
  const Tensor inner = attention.backward(grad, result.attention_norm.output, result.attention,
                                          causal({.threads = 1}), grads.attention, functions);
  detail::add(attention_norm.backward(inner, result.attention_norm, grads.attention_norm), grad);
  return grad;
}

std::vector<NamedParameter> TransformerBlock::parameters() {
  std::vector<NamedParameter> all;
  detail::append_parameters(all, "attention_norm", attention_norm);
  detail::append_parameters(all, "attention", attention);
  if (!mlp) return all;
  detail::append_parameters(all, "mlp_norm", *mlp_norm);
  detail::append_parameters(all, "mlp", *mlp);
  return all;
}

}  // namespace heed::nn
