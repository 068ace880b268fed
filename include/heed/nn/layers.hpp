// Layers with named parameters, initialised like PyTorch's layers. Matrix products use a BLAS.
//
// Inputs and parameters have one dtype, f32 or f64. An input is [L, D] or [B, L, D], with any strides. All
// functions and constructors throw Error (invalid_argument) before computing anything if shapes, dtypes or
// sizes do not fit.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heed/attention/attention.hpp"
#include "heed/attention/backward.hpp"
#include "heed/export.hpp"
#include "heed/random.hpp"
#include "heed/tensor.hpp"

namespace heed::nn {

/// A parameter and its name within its layer: "weight", "query.bias", "out_proj.weight", …
struct NamedParameter {
  std::string name;
  Tensor* value;
};

/// Returns a layer of the same shape for gradients: each parameter of `zeros_like(layer)` is the gradient of
/// the parameter of that name. backward() adds to it, so that several calls accumulate. backward() throws if
/// dtype, shapes or number of parameters differ from the layer's.
template <class Layer>
[[nodiscard]] Layer zeros_like(Layer layer) {
  for (const NamedParameter& parameter : layer.parameters())
    *parameter.value = Tensor(parameter.value->shape(), parameter.value->dtype());
  return layer;
}

/// x [..., in] times weight [out, in] transposed, plus bias [out] if given → [..., out].
[[nodiscard]] HEED_API Tensor linear(const TensorView& x, const TensorView& weight,
                                     const std::optional<TensorView>& bias = std::nullopt);

/// [..., L, H d] → [..., H, L, d]: splits the features of a position into heads.
[[nodiscard]] HEED_API Tensor split_heads(const TensorView& x, std::int64_t heads);
/// [..., H, L, d] → [..., L, H d]: concatenates the heads of a position; inverse of split_heads().
[[nodiscard]] HEED_API Tensor merge_heads(const TensorView& x);

/// A table of vectors, drawn from N(0, 1), like torch.nn.Embedding.
class HEED_API Embedding {
 public:
  Embedding(std::int64_t count, std::int64_t dim, Generator& generator, DType dtype = DType::f32);
  explicit Embedding(Tensor weight);
  /// ids [...], i64 or i32, at most 4 axes, each in [0, count) → [..., dim].
  [[nodiscard]] Tensor forward(const TensorView& ids) const;
  /// Adds each row of grad_output [..., dim] to the gradient of its id.
  void backward(const TensorView& grad_output, const TensorView& ids, Embedding& grads) const;
  /// "weight".
  [[nodiscard]] std::vector<NamedParameter> parameters();

  Tensor weight;  ///< [count, dim]
};

/// A linear layer like torch.nn.Linear: weight, then bias, drawn from U(-1/sqrt(in), 1/sqrt(in)).
class HEED_API Linear {
 public:
  Linear(std::int64_t in, std::int64_t out, bool with_bias, Generator& generator, DType dtype = DType::f32);
  explicit Linear(Tensor weight, std::optional<Tensor> bias = std::nullopt);
  /// x [..., in] → [..., out].
  [[nodiscard]] Tensor forward(const TensorView& x) const;
  /// grad_output [..., out] and the x of forward() → the gradient by x.
  [[nodiscard]] Tensor backward(const TensorView& grad_output, const TensorView& x, Linear& grads) const;
  /// "weight" and, if present, "bias".
  [[nodiscard]] std::vector<NamedParameter> parameters();

  Tensor weight;               ///< [out, in]
  std::optional<Tensor> bias;  ///< [out]
};

/// Results of an attention layer. backward() needs Need::lse among the options of forward(). An input of rank
/// 2 gives results without the axis B.
struct LayerResult {
  Tensor output;              ///< [B, Lq, out]
  Tensor query, key, value;   ///< [B, H or Hkv, L, d_k or d_v]: the projections
  AttentionResult attention;  ///< the requested results; `output` holds the heads' contexts [B, H, Lq, d_v]
};

/// Replacements for attention() and attention_backward() in a layer, for example to use several processes. An
/// empty function selects heed's own.
struct AttentionFunctions {
  std::function<AttentionResult(const TensorView& query, const TensorView& key, const TensorView& value,
                                const AttentionOptions& options)>
      forward{};
  std::function<AttentionGradients(const AttentionBackwardInputs& inputs, const AttentionOptions& options)>
      backward{};
};

/// One attention head without biases, as in the notebooks: query = W_q x, key = W_k x, value = W_v x, no
/// output projection. The axis H of its results has size 1.
class HEED_API SelfAttention {
 public:
  /// Initialised as three Linear layers without bias, in the order query, key, value.
  SelfAttention(std::int64_t dim, std::int64_t key_dim, std::int64_t value_dim, Generator& generator,
                DType dtype = DType::f32);
  /// Weights [d_k, D], [d_k, D], [d_v, D].
  SelfAttention(Tensor query_weight, Tensor key_weight, Tensor value_weight);
  /// x [L, D] or [B, L, D].
  [[nodiscard]] LayerResult forward(const TensorView& x, const AttentionOptions& options = {}) const;
  /// grad_output [B, L, d_v], and x, result and options of forward() → the gradient by x.
  [[nodiscard]] Tensor backward(const TensorView& grad_output, const TensorView& x, const LayerResult& result,
                                const AttentionOptions& options, SelfAttention& grads) const;
  /// "query.weight", "key.weight", "value.weight".
  [[nodiscard]] std::vector<NamedParameter> parameters();

  Linear query, key, value;
};

/// Sizes of a MultiHeadAttention; 0 selects the default named beside it.
struct MultiHeadOptions {
  std::int64_t dim = 0;  ///< size of the input and the output
  std::int64_t heads = 1;
  std::int64_t kv_heads = 0;     ///< default: heads; divides heads
  std::int64_t head_dim = 0;     ///< default: dim / heads, which must be an integer
  std::int64_t value_dim = 0;    ///< default: head_dim
  std::int64_t context_dim = 0;  ///< default: dim; input size of keys and values (cross-attention)
  bool bias = true;
  bool output_projection = true;
};

/// Biases for weights given per head.
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

/// Multi-head attention, self- or cross-attention (torch.nn.MultiheadAttention, batch first).
class HEED_API MultiHeadAttention {
 public:
  /// Initialised as in PyTorch: the output projection as a Linear, then the input projections from U(-a, a)
  /// with a = sqrt(6 / (in + out)) (Glorot and Bengio 2010). They are drawn as one matrix [H d_k + Hkv d_k +
  /// Hkv d_v, D], or separately if context_dim is not dim. All biases are zero.
  MultiHeadAttention(const MultiHeadOptions& options, Generator& generator, DType dtype = DType::f32);
  /// Takes the projections: query [H d_k, D], key [Hkv d_k, C], value [Hkv d_v, C], out_proj [out, H d_v].
  /// kv_heads 0 means `heads`, here and below.
  MultiHeadAttention(Linear query, Linear key, Linear value, std::optional<Linear> out_proj,
                     std::int64_t heads, std::int64_t kv_heads = 0);

  /// Takes weights per head: query [H, d_k, D], key [Hkv, d_k, C], value [Hkv, d_v, C]. Biases and output
  /// projection are optional.
  [[nodiscard]] static MultiHeadAttention from_heads(const TensorView& query, const TensorView& key,
                                                     const TensorView& value, const HeadBiases& biases = {},
                                                     std::optional<Linear> out_proj = std::nullopt);
  /// Takes torch.nn.MultiheadAttention's in_proj_weight [H d_k + Hkv d_k + Hkv d_v, D]: the rows of the
  /// queries, then of the keys, then of the values. in_proj_bias is ordered alike. value_dim 0 means d_v =
  /// d_k.
  [[nodiscard]] static MultiHeadAttention from_in_proj(const TensorView& in_proj_weight,
                                                       const std::optional<TensorView>& in_proj_bias,
                                                       std::optional<Linear> out_proj, std::int64_t heads,
                                                       std::int64_t kv_heads = 0, std::int64_t value_dim = 0);
  /// Takes one matrix of that size with the rows of a head side by side: q, k, v of head 0, q, k, v of head
  /// 1, … (the multi-head notebook, GPT-NeoX). With fewer kv_heads, each key head lists its H / Hkv query
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
  /// grad_output [B, L, out], and x, result and options of forward() → the gradient by x.
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

/// Sets the number of BLAS threads for the whole process. OpenBLAS splits its sums by this number, so the
/// bits of a product depend on it. Training sets 1. Does nothing for a BLAS other than OpenBLAS.
HEED_API void set_blas_threads(int threads);

/// Writes the parameters to a safetensors file under their names.
HEED_API void save_parameters(const std::string& path, const std::vector<NamedParameter>& parameters);
/// Reads parameters into their existing memory, so that views stay valid; converts from any floating dtype.
/// Other tensors of the file are ignored. Throws Error (io) and changes no parameter if one is missing or has
/// another shape; the message names the first. Also throws if the file has a bias for a weight that is
/// requested without one.
///
/// Also reads files of torch.nn.MultiheadAttention. If NAME"query.weight" is missing, NAME"in_proj_weight"
/// (the rows of query, key and value) or NAME"q_proj_weight" replaces it, and NAME"in_proj_bias" replaces
/// NAME"query.bias"; likewise for key and value. Weights per head, [H, d, D], are accepted under the usual
/// names.
HEED_API void load_parameters(const std::string& path, const std::vector<NamedParameter>& parameters);

}  // namespace heed::nn
