// Layers with named parameters, initialised as PyTorch initialises its own. Matrix products go through a
// BLAS.
//
// Inputs and parameters are of one dtype, f32 or f64; an input of rank 2 is [L, D], of rank 3 [B, L, D], any
// strides. Every function and constructor here throws Error (invalid_argument) before anything is computed
// where shapes, dtypes or sizes do not fit.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heed/attention.hpp"
#include "heed/backward.hpp"
#include "heed/export.hpp"
#include "heed/random.hpp"
#include "heed/tensor.hpp"

namespace heed::nn {

/// A parameter and its name within its layer: "weight", "query.bias", "out_proj.weight", …
struct NamedParameter {
  std::string name;
  Tensor* value;
};

/// What a layer learns by is held in a layer like it: of `zeros_like(layer)`, each parameter is the gradient
/// of the parameter of that name. backward() adds to it, so that several calls sum up. Of a dtype, shape or
/// number of parameters other than the layer's it throws as for any other argument.
template <class Layer>
[[nodiscard]] Layer zeros_like(Layer layer) {
  for (const NamedParameter& parameter : layer.parameters())
    *parameter.value = Tensor(parameter.value->shape(), parameter.value->dtype());
  return layer;
}

/// x [..., in] times weight [out, in] transposed, plus bias [out] where given → [..., out].
[[nodiscard]] HEED_API Tensor linear(const TensorView& x, const TensorView& weight,
                                     const std::optional<TensorView>& bias = std::nullopt);

/// [..., L, H d] → [..., H, L, d]: the features of a position cut into heads.
[[nodiscard]] HEED_API Tensor split_heads(const TensorView& x, std::int64_t heads);
/// [..., H, L, d] → [..., L, H d]: what the heads found for a position, side by side again.
[[nodiscard]] HEED_API Tensor merge_heads(const TensorView& x);

/// torch.nn.Embedding: a table of vectors, drawn from N(0, 1).
class HEED_API Embedding {
 public:
  Embedding(std::int64_t count, std::int64_t dim, Generator& generator, DType dtype = DType::f32);
  explicit Embedding(Tensor weight);
  /// ids i64 or i32, at most 4 axes [...], each in [0, count) → [..., dim].
  [[nodiscard]] Tensor forward(const TensorView& ids) const;
  /// grad_output [..., dim]: each row of it is added to the gradient of its id.
  void backward(const TensorView& grad_output, const TensorView& ids, Embedding& grads) const;
  /// "weight".
  [[nodiscard]] std::vector<NamedParameter> parameters();

  Tensor weight;  ///< [count, dim]
};

/// torch.nn.Linear: weight, then bias, drawn from U(-1/sqrt(in), 1/sqrt(in)).
class HEED_API Linear {
 public:
  Linear(std::int64_t in, std::int64_t out, bool with_bias, Generator& generator, DType dtype = DType::f32);
  explicit Linear(Tensor weight, std::optional<Tensor> bias = std::nullopt);
  /// x [..., in] → [..., out].
  [[nodiscard]] Tensor forward(const TensorView& x) const;
  /// grad_output [..., out] and the x of forward() → the gradient of x.
  [[nodiscard]] Tensor backward(const TensorView& grad_output, const TensorView& x, Linear& grads) const;
  /// "weight" and, where there is one, "bias".
  [[nodiscard]] std::vector<NamedParameter> parameters();

  Tensor weight;               ///< [out, in]
  std::optional<Tensor> bias;  ///< [out]
};

/// What an attention layer computed on the way. Its backward() needs Need::lse among the options of
/// forward(). For an input of rank 2 all of it lacks the axis B.
struct LayerResult {
  Tensor output;             ///< [B, Lq, out]
  Tensor query, key, value;  ///< [B, H or Hkv, L, d_k or d_v]: the projections
  AttentionResult
      attention;  ///< what the options asked for; its output are the heads' contexts [B, H, Lq, d_v]
};

/// What a layer computes attention and its gradients with, where that is not attention() and
/// attention_backward(): over several processes, say. An empty function stands for heed's own.
struct AttentionFunctions {
  std::function<AttentionResult(const TensorView& query, const TensorView& key, const TensorView& value,
                                const AttentionOptions& options)>
      forward{};
  std::function<AttentionGradients(const AttentionBackwardInputs& inputs, const AttentionOptions& options)>
      backward{};
};

/// One head without biases, as in the notebooks: query = W_q x, key = W_k x, value = W_v x, no output
/// projection. The axis H of its results has size 1.
class HEED_API SelfAttention {
 public:
  /// Drawn as three Linear without bias, in the order query, key, value.
  SelfAttention(std::int64_t dim, std::int64_t key_dim, std::int64_t value_dim, Generator& generator,
                DType dtype = DType::f32);
  /// [d_k, D], [d_k, D], [d_v, D].
  SelfAttention(Tensor query_weight, Tensor key_weight, Tensor value_weight);
  /// x [L, D] or [B, L, D].
  [[nodiscard]] LayerResult forward(const TensorView& x, const AttentionOptions& options = {}) const;
  /// grad_output [B, L, d_v], and x, result and options of forward() → the gradient of x.
  [[nodiscard]] Tensor backward(const TensorView& grad_output, const TensorView& x, const LayerResult& result,
                                const AttentionOptions& options, SelfAttention& grads) const;
  /// "query.weight", "key.weight", "value.weight".
  [[nodiscard]] std::vector<NamedParameter> parameters();

  Linear query, key, value;
};

/// Sizes of a MultiHeadAttention; 0 takes the default beside it.
struct MultiHeadOptions {
  std::int64_t dim = 0;  ///< of the input, and of the output
  std::int64_t heads = 1;
  std::int64_t kv_heads = 0;     ///< heads; divides heads
  std::int64_t head_dim = 0;     ///< dim / heads, which must then be whole
  std::int64_t value_dim = 0;    ///< head_dim
  std::int64_t context_dim = 0;  ///< dim: what keys and values are made from (cross-attention)
  bool bias = true;
  bool output_projection = true;
};

/// Biases beside weights that are given a head.
struct HeadBiases {
  std::optional<TensorView> query = {};  ///< [H, d_k]
  std::optional<TensorView> key = {};    ///< [Hkv, d_k]
  std::optional<TensorView> value = {};  ///< [Hkv, d_v]
};

/// The gradients of the two inputs of cross-attention.
struct CrossGradients {
  Tensor x;        ///< [B, L, D]
  Tensor context;  ///< [B, Lk, C]
};

/// Many heads side by side, self- or cross-attention (torch.nn.MultiheadAttention, batch first).
class HEED_API MultiHeadAttention {
 public:
  /// Drawn as PyTorch draws: the output projection as a Linear, then the input projections from
  /// U(-a, a) with a = sqrt(6 / (in + out)) (Glorot and Bengio 2010): all three as one matrix [H d_k + Hkv
  /// d_k
  /// + Hkv d_v, D], or each alone where context_dim is not dim. All biases are zero.
  MultiHeadAttention(const MultiHeadOptions& options, Generator& generator, DType dtype = DType::f32);
  /// From projections: query [H d_k, D], key [Hkv d_k, C], value [Hkv d_v, C], out_proj [out, H d_v].
  /// kv_heads 0 stands for `heads`, here and below.
  MultiHeadAttention(Linear query, Linear key, Linear value, std::optional<Linear> out_proj,
                     std::int64_t heads, std::int64_t kv_heads = 0);

  /// Weights a head: query [H, d_k, D], key [Hkv, d_k, C], value [Hkv, d_v, C]; no biases and no output
  /// projection unless given.
  [[nodiscard]] static MultiHeadAttention from_heads(const TensorView& query, const TensorView& key,
                                                     const TensorView& value, const HeadBiases& biases = {},
                                                     std::optional<Linear> out_proj = std::nullopt);
  /// torch.nn.MultiheadAttention's: in_proj_weight [H d_k + Hkv d_k + Hkv d_v, D], the queries' rows, then
  /// the keys', then the values'; in_proj_bias alike. value_dim 0 stands for d_v = d_k.
  [[nodiscard]] static MultiHeadAttention from_in_proj(const TensorView& in_proj_weight,
                                                       const std::optional<TensorView>& in_proj_bias,
                                                       std::optional<Linear> out_proj, std::int64_t heads,
                                                       std::int64_t kv_heads = 0, std::int64_t value_dim = 0);
  /// One matrix of the same size in which the rows of a head lie side by side: q, k, v of head 0, q, k, v of
  /// head 1, … (the multi-head notebook, GPT-NeoX). With fewer kv_heads: for each of them its H / Hkv query
  /// heads, then k, then v (Megatron-LM).
  [[nodiscard]] static MultiHeadAttention from_fused_qkv(const TensorView& qkv_weight,
                                                         const std::optional<TensorView>& qkv_bias,
                                                         std::optional<Linear> out_proj, std::int64_t heads,
                                                         std::int64_t kv_heads = 0,
                                                         std::int64_t value_dim = 0);

  /// Self-attention. x [L, D] or [B, L, D].
  [[nodiscard]] LayerResult forward(const TensorView& x, const AttentionOptions& options = {},
                                    const AttentionFunctions& functions = {}) const;
  /// Cross-attention: queries from x [L, D] or [B, L, D], keys and values from context [Lk, C] or [B, Lk, C].
  [[nodiscard]] LayerResult forward(const TensorView& x, const TensorView& context,
                                    const AttentionOptions& options = {},
                                    const AttentionFunctions& functions = {}) const;
  /// grad_output [B, L, out], and x, result and options of forward() → the gradient of x.
  [[nodiscard]] Tensor backward(const TensorView& grad_output, const TensorView& x, const LayerResult& result,
                                const AttentionOptions& options, MultiHeadAttention& grads,
                                const AttentionFunctions& functions = {}) const;
  /// The same for cross-attention.
  [[nodiscard]] CrossGradients backward(const TensorView& grad_output, const TensorView& x,
                                        const TensorView& context, const LayerResult& result,
                                        const AttentionOptions& options, MultiHeadAttention& grads,
                                        const AttentionFunctions& functions = {}) const;
  /// "query.weight", "query.bias", "key.…", "value.…", "out_proj.…".
  [[nodiscard]] std::vector<NamedParameter> parameters();
  [[nodiscard]] std::int64_t heads() const noexcept { return heads_; }
  [[nodiscard]] std::int64_t kv_heads() const noexcept { return kv_heads_; }

  Linear query, key, value;        ///< [H d_k, D], [Hkv d_k, C], [Hkv d_v, C]
  std::optional<Linear> out_proj;  ///< [out, H d_v]

 private:
  std::int64_t heads_;
  std::int64_t kv_heads_;
};

/// How many threads of its own the BLAS may use from now on, in the whole process: OpenBLAS splits its sums
/// by their number, so that the bits of a product depend on it. Training sets 1. Does nothing where the BLAS
/// is another one.
HEED_API void set_blas_threads(int threads);

/// Writes the parameters to a safetensors file under their names.
HEED_API void save_parameters(const std::string& path, const std::vector<NamedParameter>& parameters);
/// Reads them back into the parameters' own memory, so that views of them stay valid, converting from any
/// floating dtype. Throws Error (io), with no parameter changed, that names the first one that is not there
/// or has another shape, and where the file has a bias for a weight that is asked for without one. Other
/// tensors of the file are left alone.
///
/// Files of torch.nn.MultiheadAttention are understood too: where NAME"query.weight" is not in the file,
/// NAME"in_proj_weight" (the rows of query, key and value) or NAME"q_proj_weight" stands for it, and
/// NAME"in_proj_bias" for NAME"query.bias"; key and value alike. So are weights a head, [H, d, D], under
/// those names.
HEED_API void load_parameters(const std::string& path, const std::vector<NamedParameter>& parameters);

}  // namespace heed::nn
