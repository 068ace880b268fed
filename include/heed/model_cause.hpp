// What a model's heads cause, beside what they look at: heads silenced or replaced, their direct shares in a
// logit, what each layer would predict, and where what a token became came from.
//
// Texts are tokens [L], i64 or i32, as Model::hidden_states() takes them. All throw its Errors, and Error
// (invalid_argument) for a row, a head or a token that there is not.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "heed/export.hpp"
#include "heed/model.hpp"
#include "heed/tensor.hpp"

namespace heed {

struct CauseOptions {
  std::optional<std::int64_t> row{};    ///< the one whose prediction is spoken of; none: the last
  std::optional<std::int64_t> token{};  ///< the predicted token that is spoken of; none: the likeliest
  std::int64_t top = 5;                 ///< tokens to name
  int threads = 0;                      ///< 0: what the machine has
};

struct TokenShift {
  std::int64_t token = 0;
  double before = 0, after = 0;  ///< probabilities
};

/// What a change inside a model did.
struct Effect {
  /// Mean over rows of |h' - h| / |h|, h and h' the hidden states behind the last norm.
  double moved = 0;
  bool predicts = false;  ///< the model predicts what comes next; else what follows says nothing
  std::int64_t row = 0;
  /// The likeliest tokens before and after, and the one asked for: the likeliest before first.
  std::vector<TokenShift> tokens;
  double divergence = 0;  ///< KL(before || after) at the row, nats
  /// Mean over the text of -log p(next token), nats; NaN for a text of one token.
  double loss_before = 0, loss_after = 0;
};

enum class Ablation {
  zero,  ///< a head adds nothing
  mean,  ///< at every row a head adds what it adds in the mean over this text's rows
};

/// The text with the outputs of these heads silenced, at all rows and at once.
[[nodiscard]] HEED_API Effect ablate(const Model& model, const TensorView& tokens,
                                     std::span<const ModelHead> heads, Ablation to = Ablation::zero,
                                     const CauseOptions& options = {});

/// The text with the outputs of these heads taken, row by row, from a run over `other`, which has as many
/// tokens.
[[nodiscard]] HEED_API Effect patch(const Model& model, const TensorView& tokens, const TensorView& other,
                                    std::span<const ModelHead> heads, const CauseOptions& options = {});

/// The direct shares in a logit: what each part of the model adds to the residual stream at a row, times the
/// token's row of the unembedding, the scales of the norms between held at what they are. All of them add up
/// to the logit.
struct Attribution {
  std::int64_t row = 0;
  std::int64_t token = 0;
  double logit = 0;            ///< before a last softcap
  Tensor heads;                ///< [layers, H], f64
  std::vector<double> biases;  ///< of each layer's W_O
  std::vector<double> mlps;    ///< of each layer: all that it adds besides
  double embedding = 0;
  double constant = 0;  ///< of the last norm's bias and the logits' own
};

/// Throws Error (invalid_argument) for a model whose logits are no sum of what layers add (BERT).
[[nodiscard]] HEED_API Attribution attribute(const Model& model, const TensorView& tokens,
                                             const CauseOptions& options = {});

struct TokenChance {
  std::int64_t token = 0;
  double probability = 0;
};

/// What the stream before a layer, or behind the last, would predict.
struct LensLayer {
  std::vector<TokenChance> top;  ///< the likeliest tokens
  double probability = 0;        ///< of the token that is spoken of
  std::int64_t rank = 0;         ///< its place among all, from 0
};

/// The logit lens (nostalgebraist 2020): the last norm and the unembedding, on the stream of every layer.
struct Lens {
  std::int64_t row = 0;
  std::int64_t token = 0;
  std::vector<LensLayer> layers;  ///< [layers + 1]: the embedding, then behind each layer
};

/// Throws Error (invalid_argument) for a model that does not predict.
[[nodiscard]] HEED_API Lens lens(const Model& model, const TensorView& tokens,
                                 const CauseOptions& options = {});

/// Attention rollout (Abnar and Zuidema 2020): where the content of `rows` comes from, row by row of the
/// product over layers of (mean over heads of A + I) / 2. [R, L], f32; each row adds up to 1. Rows go back
/// through the layers as vectors: the memory is that of the stream at each layer, and no matrix of weights.
[[nodiscard]] HEED_API Tensor rollout(const Model& model, const TensorView& tokens,
                                      std::span<const std::int64_t> rows, int threads = 0);

}  // namespace heed
