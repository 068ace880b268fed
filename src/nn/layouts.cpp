// Splitting the usual layouts of all heads' weights in one tensor into projections.
#include <utility>

#include "heed/nn/layers.hpp"
#include "nn/checks.hpp"

namespace heed::nn {
namespace {

using detail::refuse;

struct HeadSizes {
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  std::int64_t value_dim;
};

// Finds d_k from the rows H d_k + Hkv d_k + Hkv d_v of a weight with all three projections.
HeadSizes sizes_of(const TensorView& weight, const char* name, std::int64_t heads, std::int64_t kv_heads,
                   std::int64_t value_dim) {
  detail::require_real(weight, name);
  detail::require_rank(weight, name, 2, "[H d_k + Hkv d_k + Hkv d_v, D]");
  detail::require_size(heads, "heads");
  if (kv_heads == 0) kv_heads = heads;
  detail::require_size(kv_heads, "kv_heads");
  if (heads % kv_heads != 0)
    refuse("kv_heads is ", kv_heads, "; a divisor of the ", heads, " heads is expected");
  const std::int64_t rows = weight.shape()[0];
  // The rows form groups of one key head, its value head and the query heads that read them.
  const std::int64_t group = heads / kv_heads;
  const std::int64_t width = rows / kv_heads - value_dim;
  const std::int64_t parts = group + (value_dim == 0 ? 2 : 1);
  if (value_dim < 0 || rows % kv_heads != 0 || width <= 0 || width % parts != 0)
    refuse(name, " has shape ", weight.shape(), "; ", heads, " query, ", kv_heads, " key and ", kv_heads,
           " value heads",
           value_dim == 0 ? " of one size" : ", the last of size " + std::to_string(value_dim) + ",",
           " do not make that many rows");
  const std::int64_t head_dim = width / parts;
  return {heads, kv_heads, head_dim, value_dim == 0 ? head_dim : value_dim};
}

// Checks the bias [rows] beside a weight [rows, D].
void check_bias(const std::optional<TensorView>& bias, const char* name, const TensorView& weight,
                const char* of) {
  if (!bias) return;
  detail::require_dtype(*bias, name, weight.dtype(), of);
  if (bias->shape() != Dims{weight.shape()[0]})
    refuse(name, " has shape ", to_string(bias->shape()), "; [", weight.shape()[0], "] is expected for ", of,
           " of shape ", weight.shape());
}

// Merges axes 0 and 1.
Tensor joined(const TensorView& x) {
  Dims shape{x.shape()[0] * x.shape()[1]};
  for (int axis = 2; axis < x.rank(); ++axis) shape.push_back(x.shape()[axis]);
  return Tensor::copy_of(x).reshaped(shape);
}

// Rows `begin` to `begin + length` of each of the `groups` equal parts of x [rows] or [rows, D].
Tensor rows_of_groups(const TensorView& x, std::int64_t groups, std::int64_t begin, std::int64_t length) {
  Dims shape{groups, x.shape()[0] / groups};
  Dims strides{x.strides()[0] * shape[1], x.strides()[0]};
  if (x.rank() == 2) {
    shape.push_back(x.shape()[1]);
    strides.push_back(x.strides()[1]);
  }
  return joined(TensorView(x.data(), x.dtype(), shape, strides).narrow(1, begin, length));
}

// Extracts one projection from a weight that holds all of them.
Linear projection(const TensorView& weight, const std::optional<TensorView>& bias, std::int64_t groups,
                  std::int64_t begin, std::int64_t length) {
  std::optional<Tensor> offset;
  if (bias) offset = rows_of_groups(*bias, groups, begin, length);
  return Linear(rows_of_groups(weight, groups, begin, length), std::move(offset));
}

// A projection from weights [heads, d, D] and biases [heads, d].
Linear stacked(const TensorView& weight, const char* name, const std::optional<TensorView>& bias) {
  detail::require_rank(weight, name, 3, "[heads, d, D]");
  if (!bias) return Linear(joined(weight));
  const std::string bias_name = std::string(name) + " bias";
  detail::require_dtype(*bias, bias_name.c_str(), weight.dtype(), name);
  if (bias->shape() != Dims{weight.shape()[0], weight.shape()[1]})
    refuse(bias_name, " has shape ", to_string(bias->shape()), "; ",
           to_string(Dims{weight.shape()[0], weight.shape()[1]}), " is expected for a weight of shape ",
           weight.shape());
  return Linear(joined(weight), joined(*bias));
}

}  // namespace

MultiHeadAttention MultiHeadAttention::from_heads(const TensorView& query, const TensorView& key,
                                                  const TensorView& value, const HeadBiases& biases,
                                                  std::optional<Linear> out_proj) {
  Linear queries = stacked(query, "query", biases.query);
  Linear keys = stacked(key, "key", biases.key);
  Linear values = stacked(value, "value", biases.value);
  if (key.shape()[0] != value.shape()[0] || key.shape()[1] != query.shape()[1])
    refuse("key has shape ", key.shape(), "; [", value.shape()[0], ", ", query.shape()[1],
           ", C] is expected for a query of shape ", query.shape(), " and a value of shape ", value.shape());
  return {std::move(queries),  std::move(keys),  std::move(values),
          std::move(out_proj), query.shape()[0], key.shape()[0]};
}

MultiHeadAttention MultiHeadAttention::from_in_proj(const TensorView& in_proj_weight,
                                                    const std::optional<TensorView>& in_proj_bias,
                                                    std::optional<Linear> out_proj, std::int64_t heads,
                                                    std::int64_t kv_heads, std::int64_t value_dim) {
  const HeadSizes s = sizes_of(in_proj_weight, "in_proj_weight", heads, kv_heads, value_dim);
  check_bias(in_proj_bias, "in_proj_bias", in_proj_weight, "in_proj_weight");
  const std::int64_t query_rows = s.heads * s.head_dim;
  const std::int64_t key_rows = s.kv_heads * s.head_dim;
  const std::int64_t value_rows = s.kv_heads * s.value_dim;
  return {projection(in_proj_weight, in_proj_bias, 1, 0, query_rows),
          projection(in_proj_weight, in_proj_bias, 1, query_rows, key_rows),
          projection(in_proj_weight, in_proj_bias, 1, query_rows + key_rows, value_rows),
          std::move(out_proj),
          s.heads,
          s.kv_heads};
}

MultiHeadAttention MultiHeadAttention::from_fused_qkv(const TensorView& qkv_weight,
                                                      const std::optional<TensorView>& qkv_bias,
                                                      std::optional<Linear> out_proj, std::int64_t heads,
                                                      std::int64_t kv_heads, std::int64_t value_dim) {
  const HeadSizes s = sizes_of(qkv_weight, "qkv_weight", heads, kv_heads, value_dim);
  check_bias(qkv_bias, "qkv_bias", qkv_weight, "qkv_weight");
  const std::int64_t query_rows = s.heads / s.kv_heads * s.head_dim;  // of one key head
  return {projection(qkv_weight, qkv_bias, s.kv_heads, 0, query_rows),
          projection(qkv_weight, qkv_bias, s.kv_heads, query_rows, s.head_dim),
          projection(qkv_weight, qkv_bias, s.kv_heads, query_rows + s.head_dim, s.value_dim),
          std::move(out_proj),
          s.heads,
          s.kv_heads};
}

}  // namespace heed::nn
