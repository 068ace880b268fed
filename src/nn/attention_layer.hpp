// What SelfAttention and MultiHeadAttention share: projections by linear(), everything between by
// attention().
#pragma once

#include "heed/nn.hpp"

namespace heed::nn::detail {

/// What a layer is made of.
struct Parts {
  const Linear& query;     ///< [H d_k, D]
  const Linear& key;       ///< [Hkv d_k, C]
  const Linear& value;     ///< [Hkv d_v, C]
  const Linear* out_proj;  ///< [out, H d_v], or none
  std::int64_t heads;
  std::int64_t kv_heads;
};

/// Throws invalid_argument that names the first part that does not fit the others.
void check_parts(const Parts& parts);

/// Queries from x, keys and values from context; checks parts, inputs and options first.
[[nodiscard]] LayerResult run_layer(const Parts& parts, const TensorView& x, const TensorView& context,
                                    const AttentionOptions& options);

/// Adds the parameters of `part`, their names behind "prefix.".
void append_parameters(std::vector<NamedParameter>& all, const std::string& prefix, Linear& part);

}  // namespace heed::nn::detail
