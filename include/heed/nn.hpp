// Layers with named parameters, initialised as PyTorch initialises its own. Matrix products go through a
// BLAS.
//
// Inputs and parameters are of one dtype, f32 or f64; an input of rank 2 is [L, D], of rank 3 [B, L, D].
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heed/attention.hpp"
#include "heed/export.hpp"
#include "heed/random.hpp"
#include "heed/tensor.hpp"

namespace heed::nn {

/// A parameter and its name, as PyTorch's named_parameters() gives it: "in_proj_weight", "out_proj.bias", …
struct NamedParameter {
  std::string name;
  Tensor* value;
};

/// x [..., in] times weight [out, in] transposed, plus bias [out] where given.
[[nodiscard]] HEED_API Tensor linear(const TensorView& x, const TensorView& weight,
                                     const std::optional<TensorView>& bias = std::nullopt);

/// torch.nn.Embedding: a table of vectors, drawn from N(0, 1).
class HEED_API Embedding {
 public:
  Embedding(std::int64_t count, std::int64_t dim, Generator& generator, DType dtype = DType::f32);
  explicit Embedding(Tensor weight);
  /// ids i64 or i32, any shape [...], in [0, count) → [..., dim].
  [[nodiscard]] Tensor forward(const TensorView& ids) const;
  [[nodiscard]] std::vector<NamedParameter> parameters();

  Tensor weight;  ///< [count, dim]
};

/// torch.nn.Linear: weight and bias drawn from U(-1/sqrt(in), 1/sqrt(in)).
class HEED_API Linear {
 public:
  Linear(std::int64_t in, std::int64_t out, bool with_bias, Generator& generator, DType dtype = DType::f32);
  explicit Linear(Tensor weight, std::optional<Tensor> bias = std::nullopt);
  [[nodiscard]] Tensor forward(const TensorView& x) const;
  [[nodiscard]] std::vector<NamedParameter> parameters();

  Tensor weight;               ///< [out, in]
  std::optional<Tensor> bias;  ///< [out]
};

/// What an attention layer computed on the way.
struct LayerResult {
  Tensor output;              ///< [B, Lq, out]
  Tensor query, key, value;   ///< [B, H, L, head_dim]: the projections
  AttentionResult attention;  ///< its output are the context vectors of the heads, [B, H, Lq, value_dim]
};

/// One head without biases, as in the notebooks: query = W_q x, key = W_k x, value = W_v x, no output
/// projection.
class HEED_API SelfAttention {
 public:
  SelfAttention(std::int64_t dim, std::int64_t key_dim, std::int64_t value_dim, Generator& generator,
                DType dtype = DType::f32);
  SelfAttention(Tensor query_weight, Tensor key_weight, Tensor value_weight);
  [[nodiscard]] LayerResult forward(const TensorView& x, const AttentionOptions& options = {}) const;
  [[nodiscard]] std::vector<NamedParameter> parameters();

  Linear query, key, value;
};

/// Sizes of a MultiHeadAttention; 0 takes the default beside it.
struct MultiHeadOptions {
  std::int64_t dim = 0;  ///< of the input, and of the output
  std::int64_t heads = 1;
  std::int64_t kv_heads = 0;     ///< heads
  std::int64_t head_dim = 0;     ///< dim / heads
  std::int64_t value_dim = 0;    ///< head_dim
  std::int64_t context_dim = 0;  ///< dim: what keys and values are made from (cross-attention)
  bool bias = true;
  bool output_projection = true;
};

/// Many heads side by side, self- or cross-attention (torch.nn.MultiheadAttention, batch first).
class HEED_API MultiHeadAttention {
 public:
  MultiHeadAttention(const MultiHeadOptions& options, Generator& generator, DType dtype = DType::f32);

  /// Weights a head: query [H, d_k, D], key [Hkv, d_k, D], value [Hkv, d_v, D]; no biases, no output
  /// projection unless given.
  [[nodiscard]] static MultiHeadAttention from_heads(const TensorView& query, const TensorView& key,
                                                     const TensorView& value);
  /// torch.nn.MultiheadAttention's: in_proj_weight [3 D, D] (queries, keys, values), in_proj_bias [3 D].
  [[nodiscard]] static MultiHeadAttention from_in_proj(const TensorView& in_proj_weight,
                                                       const std::optional<TensorView>& in_proj_bias,
                                                       Linear out_proj, std::int64_t heads);
  /// One matrix [H 3 d, D] in which the q, k and v rows of a head lie side by side (the multi-head notebook,
  /// Megatron).
  [[nodiscard]] static MultiHeadAttention from_fused_qkv(const TensorView& qkv_weight,
                                                         const std::optional<TensorView>& qkv_bias,
                                                         Linear out_proj, std::int64_t heads);

  /// Self-attention. x [L, D] or [B, L, D].
  [[nodiscard]] LayerResult forward(const TensorView& x, const AttentionOptions& options = {}) const;
  /// Cross-attention: queries from x, keys and values from context.
  [[nodiscard]] LayerResult forward(const TensorView& x, const TensorView& context,
                                    const AttentionOptions& options = {}) const;
  [[nodiscard]] std::vector<NamedParameter> parameters();
  [[nodiscard]] std::int64_t heads() const noexcept { return heads_; }
  [[nodiscard]] std::int64_t kv_heads() const noexcept { return kv_heads_; }

  Linear query, key, value;        ///< [H d_k, D], [Hkv d_k, C], [Hkv d_v, C]
  std::optional<Linear> out_proj;  ///< [out, H d_v]

 private:
  MultiHeadAttention(Linear q, Linear k, Linear v, std::optional<Linear> out, std::int64_t heads,
                     std::int64_t kv_heads);
  std::int64_t heads_;
  std::int64_t kv_heads_;
};

/// Writes the parameters to, and reads them from, a safetensors file under their names. Loading checks that
/// every parameter is there with its shape, and throws Error (io) that names the first that is not.
HEED_API void save_parameters(const std::string& path, const std::vector<NamedParameter>& parameters);
HEED_API void load_parameters(const std::string& path, const std::vector<NamedParameter>& parameters);

}  // namespace heed::nn
