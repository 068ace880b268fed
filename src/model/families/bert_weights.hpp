// The names of sizes, embeddings and blocks, which BERT, RoBERTa and ELECTRA share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/families/encoder.hpp"

namespace heed::detail {

/// A part of a checkpoint named `root` ("bert."), or "" in a folder of the encoder alone.
[[nodiscard]] std::string root_of(const Weights& weights, const std::string& root);

/// Reads the sizes into `info`, embeddings of `embedding_dim` numbers under root + "embeddings.", and the
/// blocks.
[[nodiscard]] EncoderWeights read_bert_weights(const ModelConfig& config, Weights& weights, ModelInfo& info,
                                               const std::string& root, std::int64_t embedding_dim);

/// The names of a block's weights behind the block's own name.
struct EncoderBlockNames {
  const char *query, *key, *value, *output, *attention_norm, *up, *down, *mlp_norm;
};
/// Blocks whose projections all have biases. `at` is their name up to the number.
[[nodiscard]] std::vector<EncoderBlock> read_encoder_blocks(Weights& weights, const std::string& at,
                                                            const EncoderBlockNames& names,
                                                            const ModelInfo& info, std::int64_t inner,
                                                            double epsilon, Activation activation);

/// The names of a head for tokens. Some files have the decoder's bias as `bias`; empty: none has.
struct EncoderHeadNames {
  std::string transform, norm, decoder, bias{};
};
/// Reads a head for hidden states of `dim` numbers.
[[nodiscard]] EncoderHead read_encoder_head(const ModelConfig& config, Weights& weights,
                                            const WeightMatrix& tokens, const EncoderHeadNames& names,
                                            std::int64_t dim, double epsilon, Activation activation);
/// The head cls.predictions of BERT, if the file has it. Its norm is called `norm`.
[[nodiscard]] std::optional<EncoderHead> read_prediction_head(const ModelConfig& config, Weights& weights,
                                                              const WeightMatrix& tokens,
                                                              const std::string& norm);
/// The head lm_head of RoBERTa and MPNet, always with GELU, if the file has it.
[[nodiscard]] std::optional<EncoderHead> read_lm_head(const ModelConfig& config, Weights& weights,
                                                      const WeightMatrix& tokens);

/// Marks heads for whole texts, which heed ignores: `parts` with and without `root`.
void leave_heads(Weights& weights, const std::string& root, const std::vector<std::string>& parts);

extern const SharedKeys kBertKeys;

}  // namespace heed::detail
