// The layers of a small language model besides attention, and the model itself (GPT-2's architecture: Radford
// et al. 2019). Every forward() returns what its backward() needs; there is no automatic differentiation.
// docs/training.md has the formulas of each backward().
//
// Tensors are f32 or f64, the same dtype within a call, with any strides. Gradients are added to `grads`, a
// layer of the same shape (zeros_like() in nn.hpp). All functions throw Error (invalid_argument) before
// computing anything if shapes, dtypes or sizes do not fit.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "heed/export.hpp"
#include "heed/nn/layers.hpp"
#include "heed/random.hpp"
#include "heed/tensor.hpp"

namespace heed::nn {

/// The results of a LayerNorm, which backward() needs.
struct LayerNormResult {
  Tensor output;             ///< [..., D]
  Tensor normalized;         ///< [..., D]: (x - mean) / deviation, before weight and bias
  Tensor inverse_deviation;  ///< [...]: 1 / sqrt(variance + epsilon)
};

/// Layer normalisation over the last axis, like torch.nn.LayerNorm (Ba, Kiros, Hinton 2016): weight * (x -
/// mean) / sqrt(variance + epsilon) + bias. The variance is the biased one (divided by D).
class HEED_API LayerNorm {
 public:
  /// Starts with weight 1 and bias 0. epsilon > 0.
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

/// x Phi(x), where Phi is the normal distribution function: the exact GELU with erf (Hendrycks and Gimpel
/// 2016), not the tanh approximation.
[[nodiscard]] HEED_API Tensor gelu(const TensorView& x);
/// grad_output (Phi(x) + x phi(x)), where phi is the normal density.
[[nodiscard]] HEED_API Tensor gelu_backward(const TensorView& grad_output, const TensorView& x);

/// The results of an Mlp, which backward() needs.
struct MlpResult {
  Tensor output;     ///< [..., D]
  Tensor hidden;     ///< [..., F]: up(x)
  Tensor activated;  ///< [..., F]: gelu(up(x))
};

/// An MLP: down(gelu(up(x))).
class HEED_API Mlp {
 public:
  /// Weights up [F, D] and down [D, F] with biases, initialised like Linear.
  Mlp(std::int64_t dim, std::int64_t hidden, Generator& generator, DType dtype = DType::f32);
  [[nodiscard]] MlpResult forward(const TensorView& x) const;
  [[nodiscard]] Tensor backward(const TensorView& grad_output, const TensorView& x, const MlpResult& result,
                                Mlp& grads) const;
  /// "up.weight", "up.bias", "down.weight", "down.bias".
  [[nodiscard]] std::vector<NamedParameter> parameters();

  Linear up, down;
};

/// Learned position embeddings: a table with one vector per position, added to the input.
class HEED_API LearnedPositions {
 public:
  /// Drawn from N(0, 0.02^2).
  LearnedPositions(std::int64_t context, std::int64_t dim, Generator& generator, DType dtype = DType::f32);
  /// x [L, D] or [B, L, D] → x + the rows of the table at `places`: one position, below the context, for each
  /// of L. If empty, the first L.
  [[nodiscard]] Tensor forward(const TensorView& x, std::span<const std::int64_t> places = {}) const;
  /// The gradient by x is grad_output itself.
  void backward(const TensorView& grad_output, LearnedPositions& grads,
                std::span<const std::int64_t> places = {}) const;
  /// "weight".
  [[nodiscard]] std::vector<NamedParameter> parameters();

  Tensor weight;  ///< [context, D]
};

/// The mean loss of a batch.
struct CrossEntropyResult {
  double loss = 0;         ///< mean over the counted targets, in nats; 0 if there are none
  std::int64_t count = 0;  ///< number of counted targets
};

/// The mean of -log softmax(logits)[target]. logits [..., V]; targets [...], i64 or i32, each in [0, V) or
/// ignore_index. Rows with ignore_index are skipped. Finite logits give a finite loss, unless f64 cannot
/// hold their difference.
[[nodiscard]] HEED_API CrossEntropyResult cross_entropy(const TensorView& logits, const TensorView& targets,
                                                        std::optional<std::int64_t> ignore_index = {});
/// The gradient by the logits, times grad_loss; zero in skipped rows.
[[nodiscard]] HEED_API Tensor cross_entropy_backward(double grad_loss, const TensorView& logits,
                                                     const TensorView& targets,
                                                     const CrossEntropyResult& result,
                                                     std::optional<std::int64_t> ignore_index = {});

/// The results of a block, which backward() needs.
struct BlockResult {
  Tensor output;
  LayerNormResult attention_norm;
  LayerResult attention;
  Tensor middle;  ///< x + attention; empty without an MLP
  LayerNormResult mlp_norm;
  MlpResult mlp;
};

/// A causal pre-norm Transformer block: x + attention(norm(x)), then + mlp(norm(·)).
class HEED_API TransformerBlock {
 public:
  /// mlp_dim 0 means attention only. dim is a multiple of heads.
  TransformerBlock(std::int64_t dim, std::int64_t heads, std::int64_t mlp_dim, Generator& generator,
                   DType dtype = DType::f32);
  /// x [L, D] or [B, L, D]. Only need, kernel and threads of `options` are read; the block sets the others.
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
  bool attention_only = false;  ///< false: each block has an MLP of 4 model_dim
};
/// Throws invalid_argument that names the first size out of range.
HEED_API void check(const LanguageModelConfig& config);
/// The number of parameters of a model of these sizes.
[[nodiscard]] HEED_API std::int64_t parameter_count(const LanguageModelConfig& config);

/// The positions of each sequence that this process holds; other processes hold the rest
/// (heed/distributed/train.hpp).
struct SequenceShare {
  std::vector<std::int64_t> places;  ///< [L], ascending: positions of the tokens; empty: 0 … L - 1
  AttentionFunctions attention;      ///< attention over the positions of all processes
};

struct LossPiece;

/// The results of a language model, which backward() needs.
struct LanguageModelResult {
  Tensor logits;  ///< [B, L, vocabulary]
  Tensor embedded;
  std::vector<BlockResult> blocks;
  LayerNormResult norm;
};

/// A language model from tokens to logits of the next token: embedding, learned positions, blocks, a final
/// norm, unembedding (an untied Linear without bias).
class HEED_API LanguageModel {
 public:
  /// Initialised as GPT-2: weights from N(0, 0.02^2), biases 0. Weights that write to the residual stream are
  /// divided by sqrt(2 layers).
  LanguageModel(const LanguageModelConfig& config, Generator& generator, DType dtype = DType::f32);
  /// tokens [L] or [B, L], i64 or i32, L at most config.context. `options` as for TransformerBlock.
  [[nodiscard]] LanguageModelResult forward(const TensorView& tokens, const AttentionOptions& options = {},
                                            const SequenceShare& share = {}) const;
  /// grad_logits [B, L, vocabulary].
  void backward(const TensorView& grad_logits, const TensorView& tokens, const LanguageModelResult& result,
                LanguageModel& grads, const SequenceShare& share = {}) const;
  /// Returns the mean loss over the targets [B, L] that are not kIgnore, and overwrites `grads` with its
  /// gradients. Computes the batch in at most kShards pieces, on at most `threads` threads (0: all
  /// processors). Sums run over pieces in order, so the bits do not depend on the number of threads.
  [[nodiscard]] double loss_and_gradients(const TensorView& tokens, const TensorView& targets,
                                          LanguageModel& grads, int threads = 0) const;
  /// Pieces [begin, end) of the batch cut into `pieces` pieces, none of them empty. Their sum in order is
  /// loss_and_gradients(), which uses min(B, kShards) pieces.
  [[nodiscard]] std::vector<LossPiece> loss_pieces(const TensorView& tokens, const TensorView& targets,
                                                   std::int64_t pieces, std::int64_t begin, std::int64_t end,
                                                   int threads = 0) const;
  /// The contribution of these tokens to the mean loss over `count` targets, which include targets of other
  /// tokens.
  [[nodiscard]] LossPiece loss_piece(const TensorView& tokens, const TensorView& targets, std::int64_t count,
                                     const SequenceShare& share = {}) const;
  /// "token_embedding.weight", "positions.weight", "blocks.0.…", …, "norm.…", "unembedding.weight".
  [[nodiscard]] std::vector<NamedParameter> parameters();

  static constexpr std::int64_t kShards = 8;
  static constexpr std::int64_t kIgnore = -1;  ///< target of a position without a loss

  LanguageModelConfig config;
  Embedding token_embedding;
  LearnedPositions positions;
  std::vector<TransformerBlock> blocks;
  LayerNorm norm;
  Linear unembedding;
};

/// The contribution of a part of a batch.
struct LossPiece {
  double loss = 0;
  LanguageModel gradients;
};
/// The number of targets [...] that are not LanguageModel::kIgnore.
[[nodiscard]] HEED_API std::int64_t count_targets(const TensorView& targets);

}  // namespace heed::nn
