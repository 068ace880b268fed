#include <utility>

#include "heed/nn/layers.hpp"
#include "nn/attention_layer.hpp"
#include "nn/checks.hpp"
#include "nn/elements.hpp"

namespace heed::nn {
namespace {

Linear drawn_projection(std::int64_t dim, std::int64_t size, const char* name, Generator& generator,
                        DType dtype) {
  detail::require_size(dim, "dim");
  detail::require_size(size, name);
  return {dim, size, false, generator, dtype};
}

}  // namespace

SelfAttention::SelfAttention(std::int64_t dim, std::int64_t key_dim, std::int64_t value_dim,
                             Generator& generator, DType dtype)
    : query(drawn_projection(dim, key_dim, "key_dim", generator, dtype)),
      key(drawn_projection(dim, key_dim, "key_dim", generator, dtype)),
      value(drawn_projection(dim, value_dim, "value_dim", generator, dtype)) {}

SelfAttention::SelfAttention(Tensor query_weight, Tensor key_weight, Tensor value_weight)
    : query(std::move(query_weight)), key(std::move(key_weight)), value(std::move(value_weight)) {
  detail::check_parts({query, key, value, nullptr, 1, 1});
}

LayerResult SelfAttention::forward(const TensorView& x, const AttentionOptions& options) const {
  return detail::run_layer({query, key, value, nullptr, 1, 1}, {x, x}, options);
}

Tensor SelfAttention::backward(const TensorView& grad_output, const TensorView& x, const LayerResult& result,
                               const AttentionOptions& options, SelfAttention& grads) const {
  CrossGradients both =
      detail::run_layer_backward({query, key, value, nullptr, 1, 1}, grad_output, {x, x}, result, options,
                                 {grads.query, grads.key, grads.value, nullptr});
  detail::add(both.context, both.x);
  return std::move(both.x);
}

std::vector<NamedParameter> SelfAttention::parameters() {
  std::vector<NamedParameter> all;
  detail::append_parameters(all, "query", query);
  detail::append_parameters(all, "key", key);
  detail::append_parameters(all, "value", value);
  return all;
}

}  // namespace heed::nn
