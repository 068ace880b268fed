// What a small language model is made of besides attention, and the model itself (GPT-2's shape: Radford et
// al. 2019). Every forward() returns what its backward() needs; there is no automatic differentiation. The
// formulas of each backward stand in docs/training.md.
//
// Tensors are f32 or f64, all of one call alike; any strides. Gradients are added to `grads`, a layer like
// the one that learns (zeros_like() in nn.hpp). All throw Error (invalid_argument) before anything is
// computed where shapes, dtypes or sizes do not fit.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "heed/export.hpp"
#include "heed/nn.hpp"
#include "heed/random.hpp"
#include "heed/tensor.hpp"

namespace heed::nn {

struct LayerNormResult {
  Tensor output;             ///< [..., D]
  Tensor normalized;         ///< [..., D]: (x - mean) / deviation, before weight and bias
  Tensor inverse_deviation;  ///< [...]: 1 / sqrt(variance + epsilon)
};

/// torch.nn.LayerNorm over the last axis (Ba, Kiros, Hinton 2016): weight * (x - mean) / sqrt(variance +
/// epsilon) + bias, with the variance of the D numbers themselves (divided by D).
class HEED_API LayerNorm {
 public:
  /// weight 1, bias 0. epsilon > 0.
  explicit LayerNorm(std::int64_t dim, DType dtype = DType::f32, double epsilon = 1e-5);
  /// x [..., D].
  [[nodiscard]] LayerNormResult forward(const TensorView& x) const;
  [[nodiscard]] Tensor backward(const TensorView& grad_output, const LayerNormResult& result,
                                LayerNorm& grads) const;
  /// "weight", "bias".
  [[nodiscard]] std::vector<NamedParameter> parameters();

  Tensor weight, bias;  ///< [D]
  double epsilon;
};

/// x Phi(x), Phi the normal distribution's: the exact GELU with erf (Hendrycks and Gimpel 2016), not the one
/// with tanh.
[[nodiscard]] HEED_API Tensor gelu(const TensorView& x);
/// grad_output (Phi(x) + x phi(x)), phi the normal density.
[[nodiscard]] HEED_API Tensor gelu_backward(const TensorView& grad_output, const TensorView& x);

struct MlpResult {
  Tensor output;     ///< [..., D]
  Tensor hidden;     ///< [..., F]: up(x)
  Tensor activated;  ///< [..., F]: gelu(up(x))
};

/// down(gelu(up(x))).
class HEED_API Mlp {
 public:
  /// up [F, D] and down [D, F], both with biases, drawn as Linear.
  Mlp(std::int64_t dim, std::int64_t hidden, Generator& generator, DType dtype = DType::f32);
  [[nodiscard]] MlpResult forward(const TensorView& x) const;
  [[nodiscard]] Tensor backward(const TensorView& grad_output, const TensorView& x, const MlpResult& result,
                                Mlp& grads) const;
  /// "up.weight", "up.bias", "down.weight", "down.bias".
  [[nodiscard]] std::vector<NamedParameter> parameters();

  Linear up, down;
};

/// A table with a vector for each place in the context, added to what stands there.
class HEED_API LearnedPositions {
 public:
  /// Drawn from N(0, 0.02^2).
  LearnedPositions(std::int64_t context, std::int64_t dim, Generator& generator, DType dtype = DType::f32);
  /// x [L, D] or [B, L, D] → x + the rows of the table at `places`, one for each of L; empty: the first L.
  /// Each is less than the context.
  [[nodiscard]] Tensor forward(const TensorView& x, std::span<const std::int64_t> places = {}) const;
  /// The gradient of x is grad_output itself.
  void backward(const TensorView& grad_output, LearnedPositions& grads,
                std::span<const std::int64_t> places = {}) const;
  /// "weight".
  [[nodiscard]] std::vector<NamedParameter> parameters();

  Tensor weight;  ///< [context, D]
};

struct CrossEntropyResult {
  double loss = 0;         ///< mean over the targets that count, in nats; 0 where there are none
  std::int64_t count = 0;  ///< of them
};

/// The mean of -log softmax(logits)[target]. logits [..., V]; targets [...] i64 or i32, each in [0, V) or
/// ignore_index, whose rows are left out. Any finite logits give a finite loss.
[[nodiscard]] HEED_API CrossEntropyResult cross_entropy(const TensorView& logits, const TensorView& targets,
                                                        std::optional<std::int64_t> ignore_index = {});
/// The gradient of the logits, times grad_loss; zero in rows that are left out.
[[nodiscard]] HEED_API Tensor cross_entropy_backward(double grad_loss, const TensorView& logits,
                                                     const TensorView& targets,
                                                     const CrossEntropyResult& result,
                                                     std::optional<std::int64_t> ignore_index = {});

struct BlockResult {
  Tensor output;
  LayerNormResult attention_norm;
  LayerResult attention;
  Tensor middle;  ///< x + attention; empty where there is no MLP
  LayerNormResult mlp_norm;
  MlpResult mlp;
};

/// A Transformer block with the norms before its parts: x + attention(norm(x)), then + mlp(norm(·)). Causal.
class HEED_API TransformerBlock {
 public:
  /// mlp_dim 0: attention only. dim is a multiple of heads.
  TransformerBlock(std::int64_t dim, std::int64_t heads, std::int64_t mlp_dim, Generator& generator,
                   DType dtype = DType::f32);
  /// x [L, D] or [B, L, D]. Of the options need, kernel and threads are read; the rest is the block's own.
  [[nodiscard]] BlockResult forward(const TensorView& x, const AttentionOptions& options = {},
                                    const AttentionFunctions& functions = {}) const;
  [[nodiscard]] Tensor backward(const TensorView& grad_output, const BlockResult& result,
                                TransformerBlock& grads, const AttentionFunctions& functions = {}) const;
  /// "attention_norm.…", "attention.…", "mlp_norm.…", "mlp.…".
  [[nodiscard]] std::vector<NamedParameter> parameters();

  LayerNorm attention_norm;
  MultiHeadAttention attention;
  std::optional<LayerNorm> mlp_norm;
  std::optional<Mlp> mlp;
};

/// Sizes of a LanguageModel.
struct LanguageModelConfig {
  std::int64_t vocabulary = 0;
  std::int64_t context = 64;  ///< the longest sequence
  std::int64_t layers = 2;
  std::int64_t heads = 4;
  std::int64_t model_dim = 64;  ///< a multiple of heads
  bool attention_only = false;  ///< else each block has an MLP of 4 model_dim
};
/// Throws invalid_argument that names the first size that is out of range.
HEED_API void check(const LanguageModelConfig& config);
/// How many numbers a model of these sizes has.
[[nodiscard]] HEED_API std::int64_t parameter_count(const LanguageModelConfig& config);

/// Some places of each sequence, where the others are elsewhere (heed/distributed_train.hpp).
struct SequenceShare {
  std::vector<std::int64_t> places;  ///< [L], rising: where the tokens stand; empty: 0 … L - 1
  AttentionFunctions attention;      ///< sees the others
};

struct LossPiece;

struct LanguageModelResult {
  Tensor logits;  ///< [B, L, vocabulary]
  Tensor embedded;
  std::vector<BlockResult> blocks;
  LayerNormResult norm;
};

/// Tokens to logits of the next token: embedding, learned positions, blocks, a last norm, unembedding (a
/// Linear of its own, without bias).
class HEED_API LanguageModel {
 public:
  /// Drawn as GPT-2: weights from N(0, 0.02^2), those that lead back into the residual stream divided by
  /// sqrt(2 layers), biases 0.
  LanguageModel(const LanguageModelConfig& config, Generator& generator, DType dtype = DType::f32);
  /// tokens [L] or [B, L], i64 or i32, L at most config.context. options as for TransformerBlock.
  [[nodiscard]] LanguageModelResult forward(const TensorView& tokens, const AttentionOptions& options = {},
                                            const SequenceShare& share = {}) const;
  /// grad_logits [B, L, vocabulary].
  void backward(const TensorView& grad_logits, const TensorView& tokens, const LanguageModelResult& result,
                LanguageModel& grads, const SequenceShare& share = {}) const;
  /// The mean loss over the targets [B, L] that are not `ignore_index`, whose gradients it writes to grads
  /// (what they held is lost). The batch is computed in at most kShards pieces, on at most `threads` threads
  /// (0: what the machine has); sums run over pieces in order, so that the bits do not depend on the number
  /// of threads.
  [[nodiscard]] double loss_and_gradients(const TensorView& tokens, const TensorView& targets,
                                          LanguageModel& grads, int threads = 0) const;
  /// Pieces [begin, end) of the `pieces` that the batch is cut into, none of them empty: their sum in order
  /// is loss_and_gradients(), which takes min(B, kShards).
  [[nodiscard]] std::vector<LossPiece> loss_pieces(const TensorView& tokens, const TensorView& targets,
                                                   std::int64_t pieces, std::int64_t begin, std::int64_t end,
                                                   int threads = 0) const;
  /// What these tokens add to the mean loss over `count` targets, which are theirs and others'.
  [[nodiscard]] LossPiece loss_piece(const TensorView& tokens, const TensorView& targets, std::int64_t count,
                                     const SequenceShare& share = {}) const;
  /// "token_embedding.weight", "positions.weight", "blocks.0.…", …, "norm.…", "unembedding.weight".
  [[nodiscard]] std::vector<NamedParameter> parameters();

  static constexpr std::int64_t kShards = 8;
  static constexpr std::int64_t kIgnore = -1;  ///< of targets: this place is not learnt from

  LanguageModelConfig config;
  Embedding token_embedding;
  LearnedPositions positions;
  std::vector<TransformerBlock> blocks;
  LayerNorm norm;
  Linear unembedding;
};

/// What a part of a batch adds to the whole.
struct LossPiece {
  double loss = 0;
  LanguageModel gradients;
};
/// Of [...] targets those that are not LanguageModel::kIgnore.
[[nodiscard]] HEED_API std::int64_t count_targets(const TensorView& targets);

}  // namespace heed::nn
