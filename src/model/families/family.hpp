// The interface of a model family: embedding tokens, projecting a layer's queries, keys and values, and
// adding the results to the residual stream. model/run.cpp combines these steps.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/model/model.hpp"
#include "model/files/config.hpp"
#include "model/files/config_keys.hpp"
#include "model/files/weights.hpp"
#include "model/layers/activations.hpp"
#include "model/layers/linear.hpp"
#include "model/layers/norms.hpp"
#include "model/layers/rope.hpp"

namespace heed::detail {

/// Queries, keys and values of a layer, and the rules that they attend by.
struct Projected {
  std::vector<Tensor> memory;    ///< owns the data of the views
  TensorView query, key, value;  ///< [H, L, d], [Hkv, L, d]; any strides except along d
  AttentionOptions options;
};

/// The query, key or value of one head as a function of the stream x at a row, linear because norms are held
/// there:
///
///   rope(gain (W norm(x) + b))
struct HeadInput {
  std::optional<HeldNorm> norm;            ///< of the stream, if there is one
  const LinearWeights* weights = nullptr;  ///< W and b
  std::int64_t first = 0;                  ///< the first output of W that belongs to the head
  std::vector<double> gain;                ///< [d], of a norm behind W; empty: there is none
  const Rope* rope = nullptr;              ///< null: not rotated
};
enum class InputKind { query, key, value };  ///< in the order of fused projections

/// The norms of a block that normalises the stream itself, after attention and after the MLP.
struct StreamNorms {
  HeldNorm attention, mlp;
};

/// One model's weights in its family's shape. `begin` is the position of the first token.
class Family {
 public:
  virtual ~Family() = default;
  /// Embeddings of ids, which are in [0, vocabulary): [L, D].
  [[nodiscard]] virtual Tensor embed(std::span<const std::int64_t> ids, std::int64_t begin,
                                     int threads) const = 0;
  [[nodiscard]] virtual Projected project(std::int64_t layer, const Tensor& stream, std::int64_t begin,
                                          int threads) const = 0;
  /// Turns the stream before the layer into the stream after it. heads [L, H d]: the outputs of attention.
  virtual void finish(std::int64_t layer, const Tensor& heads, Tensor& stream, int threads) const = 0;
  [[nodiscard]] virtual Tensor last_norm(const Tensor& stream, int threads) const = 0;
  /// hidden [R, D] → [R, vocabulary]. Requires info.predicts.
  [[nodiscard]] virtual Tensor logits(const TensorView& hidden, int threads) const = 0;

  /// A length beyond which all keys of a text are others, so that a cache must be filled anew.
  [[nodiscard]] virtual std::optional<std::int64_t> turning_length() const { return std::nullopt; }

  /// W_O of a layer: from the outputs of its heads [H d] to [D].
  [[nodiscard]] virtual const LinearWeights& output_projection(std::int64_t layer) const = 0;
  /// The norm (Gemma 2) or factor (Granite) of W_O's product x [D] before it is added to the stream, if the
  /// family has one.
  [[nodiscard]] virtual std::optional<HeldNorm> norm_behind_attention(std::int64_t /*layer*/,
                                                                      std::span<const float> /*x*/) const {
    return std::nullopt;
  }
  /// An input of a head; for keys and values, of a key head. `row` [1, D] is the stream before the layer.
  [[nodiscard]] virtual HeadInput head_input(std::int64_t layer, InputKind kind, std::int64_t head,
                                             const Tensor& row) const = 0;
  /// The share of the position in the embedding of token `at` of a text, [1, D], if there is one.
  [[nodiscard]] virtual std::optional<Tensor> position_share(std::span<const std::int64_t> /*ids*/,
                                                             std::int64_t /*at*/) const {
    return std::nullopt;
  }
  /// The norms of the stream in a layer (BERT), held at one row [1, D] before the layer; heads [1, H d].
  [[nodiscard]] virtual std::optional<StreamNorms> stream_norms(std::int64_t /*layer*/, const Tensor& /*row*/,
                                                                const Tensor& /*heads*/) const {
    return std::nullopt;
  }
  /// The last norm at one row [D] of the stream, if the stream is a plain sum of the layers' contributions;
  /// nothing if norms are applied to it (BERT).
  [[nodiscard]] virtual std::optional<HeldNorm> held_last_norm(std::span<const float> /*row*/) const {
    return std::nullopt;
  }
  /// The matrix W_U of logits = W_U hidden + b, before a last softcap. Requires that held_last_norm() returns
  /// a norm.
  [[nodiscard]] virtual const LinearWeights* unembedding() const { return nullptr; }
  /// A factor of these logits, not of b.
  [[nodiscard]] virtual double logits_scale() const { return 1; }
};

/// Reads and checks sizes and weights, and fills `info` except its parameters and family.
using MakeFamily = std::unique_ptr<const Family> (*)(const ModelConfig& config, Weights& weights,
                                                     ModelInfo& info);

/// Each family's file ends with its entry.
struct FamilyEntry {
  std::string_view model_type;
  ConfigKeys keys;         ///< with the defaults of transformers' configuration class
  bool quantised = false;  ///< it reads quantization_config
  MakeFamily make;
};
extern const FamilyEntry kBert, kCamembert, kDistilBert, kElectra, kGemma, kGemma2, kGemma3, kGpt2, kGptNeox,
    kGptOss, kGranite, kLlama, kMistral, kMixtral, kModernBert, kMpnet, kNomicBert, kOlmo2, kPhi3, kQwen2,
    kQwen3, kQwen3Moe, kRoberta, kSmolLm3, kStableLm, kStarcoder2, kXlmRoberta;

/// The entry of the configuration's model_type. Throws Error (io) that lists the types that heed runs.
[[nodiscard]] const FamilyEntry& family_of(const ModelConfig& config);

/// The names that a configuration has for sizes. Most families use these.
struct SizeKeys {
  const char *layers = "num_hidden_layers", *heads = "num_attention_heads", *width = "hidden_size";
};
/// Reads them and vocab_size into `info`, where the heads share the width and have keys of their own.
void read_sizes(const ModelConfig& config, ModelInfo& info, const SizeKeys& keys = {});

/// The activation that member `name` states. Throws Error (io) for one that heed does not have.
[[nodiscard]] Activation activation_of(const ModelConfig& config, const char* name);
/// Member `name`, an epsilon added to variances: 0 to 1.
[[nodiscard]] double epsilon_of(const ModelConfig& config, const char* name);
/// Whether is_causal restricts tokens to those before them. Null counts as false, as in transformers.
[[nodiscard]] bool is_causal(const ModelConfig& config);
/// Throws Error (io) if `size` is not a multiple of `part`.
void require_multiple(const ModelConfig& config, const char* name, std::int64_t size, const char* part_name,
                      std::int64_t part);

/// A redundant key: throws Error (io) if it is present and says something else.
void require_number(const ModelConfig& config, const char* name, double expected);

/// The matrix of the logits: the tensor `name` if the file has it, else the embeddings `tokens` if the
/// configuration ties the two.
[[nodiscard]] WeightMatrix unembedding_weight(const ModelConfig& config, Weights& weights,
                                              const std::string& name, const WeightMatrix& tokens);

/// Rows `ids` of a table [vocabulary, D].
[[nodiscard]] Tensor rows_of(const WeightMatrix& table, std::span<const std::int64_t> ids, int threads);

/// x [L, count * d] as heads [count, L, d], from column `first` on.
[[nodiscard]] MutableTensorView as_heads(Tensor& x, std::int64_t first, std::int64_t count,
                                         std::int64_t head_dim);

}  // namespace heed::detail
