// Causal effects of a model's heads: ablation, patching, direct logit attribution, the logit lens, and
// attention rollout.
//
// Texts are tokens [L], i64 or i32, as for Model::hidden_states(). All functions throw its Errors, and Error
// (invalid_argument) for a row, a head or a token out of range.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "heed/export.hpp"
#include "heed/model/model.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// The prediction that a cause is asked about.
struct CauseOptions {
  std::optional<std::int64_t> row{};    ///< the row whose prediction is examined; default: the last
  std::optional<std::int64_t> token{};  ///< the predicted token to examine; default: the likeliest
  std::int64_t top = 5;                 ///< number of tokens to list
  int threads = 0;                      ///< 0: all processors
};

/// The probability of a token before and after a change.
struct TokenShift {
  std::int64_t token = 0;
  double before = 0, after = 0;  ///< probabilities
};

/// Effect of a change inside a model.
struct Effect {
  /// Mean over rows of |h' - h| / |h|; h and h' are the hidden states after the final norm, before and after
  /// the change.
  double moved = 0;
  bool predicts = false;  ///< whether the model predicts the next token; if not, ignore the members below
  std::int64_t row = 0;
  /// The likeliest tokens before and after the change, and the examined token; sorted by falling probability
  /// before it.
  std::vector<TokenShift> tokens;
  double divergence = 0;  ///< KL(before || after) at the row, nats
  /// Mean over the text of -log p(next token), nats; NaN for a text of one token.
  double loss_before = 0, loss_after = 0;
};

/// The output that an ablated head gives instead.
enum class Ablation {
  zero,  ///< the head adds nothing
  mean,  ///< at every row the head adds its mean output over the rows of this text
};

/// Ablates the outputs of these heads at all rows, all heads at once.
[[nodiscard]] HEED_API Effect ablate(const Model& model, const TensorView& tokens,
                                     std::span<const ModelHead> heads, Ablation to = Ablation::zero,
                                     const CauseOptions& options = {});

/// Patches the outputs of these heads, row by row, from a run over `other`, which must have as many tokens.
[[nodiscard]] HEED_API Effect patch(const Model& model, const TensorView& tokens, const TensorView& other,
                                    std::span<const ModelHead> heads, const CauseOptions& options = {});

/// Direct logit attribution: the contribution of each part of the model to the residual stream at a row,
/// times the token's row of the unembedding. The scales of the norms are held fixed. All contributions sum to
/// the logit.
struct Attribution {
  std::int64_t row = 0;
  std::int64_t token = 0;
  double logit = 0;            ///< before the final softcap
  Tensor heads;                ///< [layers, H], f64
  std::vector<double> biases;  ///< bias of each layer's W_O
  std::vector<double> mlps;    ///< the rest of each layer
  double embedding = 0;
  double constant = 0;  ///< bias of the final norm and of the logits
};

/// Throws Error (invalid_argument) for a model whose logits are not a sum of the layers' outputs (BERT).
[[nodiscard]] HEED_API Attribution attribute(const Model& model, const TensorView& tokens,
                                             const CauseOptions& options = {});

/// A token and its probability.
struct TokenChance {
  std::int64_t token = 0;
  double probability = 0;
};

/// The prediction from the residual stream before a layer or after the last.
struct LensLayer {
  std::vector<TokenChance> top;  ///< the likeliest tokens
  double probability = 0;        ///< probability of the examined token
  std::int64_t rank = 0;         ///< its rank among all tokens, from 0
};

/// The logit lens (nostalgebraist 2020): the final norm and the unembedding, applied to the stream of every
/// layer.
struct Lens {
  std::int64_t row = 0;
  std::int64_t token = 0;
  std::vector<LensLayer> layers;  ///< [layers + 1]: after the embedding, then after each layer
};

/// Throws Error (invalid_argument) for a model that does not predict.
[[nodiscard]] HEED_API Lens lens(const Model& model, const TensorView& tokens,
                                 const CauseOptions& options = {});

/// Attention rollout (Abnar and Zuidema 2020): the origin of the content at `rows`. Returns these rows of the
/// product over layers of (mean over heads of A + I) / 2: [R, L], f32; each row sums to 1. The rows are
/// propagated backwards as vectors, so memory is the stream at each layer, without a weight matrix.
[[nodiscard]] HEED_API Tensor rollout(const Model& model, const TensorView& tokens,
                                      std::span<const std::int64_t> rows, int threads = 0);

}  // namespace heed
