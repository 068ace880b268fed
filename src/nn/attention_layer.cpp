#include "nn/attention_layer.hpp"

#include "nn/checks.hpp"

namespace heed::nn::detail {
namespace {

void check_projection(const Linear& projection, const char* name, std::int64_t heads, DType dtype) {
  const std::string weight = std::string(name) + ".weight";
  require_real(projection.weight, weight.c_str());
  require_rank(projection.weight, weight.c_str(), 2, "[out, in]");
  require_dtype(projection.weight, weight.c_str(), dtype, "query.weight");
  if (projection.weight.size(0) % heads != 0)
    refuse(weight + " has shape " + to_string(projection.weight.shape()) + "; a multiple of " +
           std::to_string(heads) + " rows is expected for " + std::to_string(heads) + " heads");
}

void check_input(const TensorView& x, const char* name, const Linear& projection, const char* weight) {
  require_dtype(x, name, projection.weight.dtype(), weight);
  const std::int64_t dim = projection.weight.size(1);
  if ((x.rank() != 2 && x.rank() != 3) || x.shape().back() != dim)
    refuse(std::string(name) + " has shape " + to_string(x.shape()) + "; [L, " + std::to_string(dim) +
           "] or [B, L, " + std::to_string(dim) + "] is expected");
}

void check_call(const Parts& parts, const TensorView& x, const TensorView& context,
                const AttentionOptions& options) {
  check_parts(parts);
  check_input(x, "x", parts.query, "query.weight");
  check_input(context, "context", parts.key, "key.weight");
  if (context.rank() != x.rank() || (x.rank() == 3 && context.shape()[0] != x.shape()[0]))
    refuse("context has shape " + to_string(context.shape()) + "; the batch of x, " + to_string(x.shape()) +
           ", is expected");
  if (options.output_dtype && *options.output_dtype != x.dtype())
    refuse("output_dtype is " + std::string(name_of(*options.output_dtype)) + "; a layer of " +
           std::string(name_of(x.dtype())) + " gives " + std::string(name_of(x.dtype())));
}

}  // namespace

// The parts are public and may have been replaced since the layer was made, so forward() asks again.
void check_parts(const Parts& parts) {
  require_size(parts.heads, "heads");
  require_size(parts.kv_heads, "kv_heads");
  if (parts.heads % parts.kv_heads != 0)
    refuse("kv_heads is " + std::to_string(parts.kv_heads) + "; a divisor of the " +
           std::to_string(parts.heads) + " heads is expected");
  const DType dtype = parts.query.weight.dtype();
  check_projection(parts.query, "query", parts.heads, dtype);
  check_projection(parts.key, "key", parts.kv_heads, dtype);
  check_projection(parts.value, "value", parts.kv_heads, dtype);
  const std::int64_t head_dim = parts.query.weight.size(0) / parts.heads;
  if (parts.key.weight.size(0) != parts.kv_heads * head_dim)
    refuse("key.weight has shape " + to_string(parts.key.weight.shape()) + "; " +
           std::to_string(parts.kv_heads * head_dim) + " rows are expected, " + std::to_string(head_dim) +
           " for each key head, as the query's heads have");
  if (parts.value.weight.size(1) != parts.key.weight.size(1))
    refuse("value.weight has shape " + to_string(parts.value.weight.shape()) + "; " +
           std::to_string(parts.key.weight.size(1)) + " columns are expected, as key.weight has");
  if (parts.out_proj == nullptr) return;
  check_projection(*parts.out_proj, "out_proj", 1, dtype);
  const std::int64_t merged = parts.value.weight.size(0) / parts.kv_heads * parts.heads;
  if (parts.out_proj->weight.size(1) != merged)
    refuse("out_proj.weight has shape " + to_string(parts.out_proj->weight.shape()) + "; " +
           std::to_string(merged) + " columns are expected: " + std::to_string(parts.heads) +
           " heads of the value's size");
}

LayerResult run_layer(const Parts& parts, const TensorView& x, const TensorView& context,
                      const AttentionOptions& options) {
  check_call(parts, x, context, options);
  LayerResult result;
  result.query = split_heads(parts.query.forward(x), parts.heads);
  result.key = split_heads(parts.key.forward(context), parts.kv_heads);
  result.value = split_heads(parts.value.forward(context), parts.kv_heads);
  result.attention = attention(result.query, result.key, result.value, options);
  result.output = merge_heads(result.attention.output);
  if (parts.out_proj != nullptr) result.output = parts.out_proj->forward(result.output);
  return result;
}

void append_parameters(std::vector<NamedParameter>& all, const std::string& prefix, Linear& part) {
  for (NamedParameter& parameter : part.parameters())
    all.push_back({prefix + "." + parameter.name, parameter.value});
}

}  // namespace heed::nn::detail
