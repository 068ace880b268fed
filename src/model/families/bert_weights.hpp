// What BERT, RoBERTa and ELECTRA share: the names of sizes, embeddings and blocks.
#pragma once

#include <string>

#include "model/families/encoder.hpp"

namespace heed::detail {

/// A part of a checkpoint named `root` ("bert."), or "" in a folder of the encoder alone.
[[nodiscard]] std::string root_of(const Weights& weights, const std::string& root);

/// Reads layers, heads, width and vocabulary into `info`. Returns the width of the MLPs.
[[nodiscard]] std::int64_t read_encoder_sizes(const ModelConfig& config, ModelInfo& info);

/// Reads the sizes into `info`, embeddings of `embedding_dim` numbers under root + "embeddings.", and the
/// blocks.
[[nodiscard]] EncoderWeights read_bert_weights(const ModelConfig& config, Weights& weights, ModelInfo& info,
                                               const std::string& root, std::int64_t embedding_dim);

/// The head cls.predictions of BERT, whose norm is called `norm`.
[[nodiscard]] EncoderHead read_prediction_head(const ModelConfig& config, Weights& weights,
                                               const WeightMatrix& tokens, const std::string& norm);

/// The head lm_head of RoBERTa and MPNet, always with GELU.
[[nodiscard]] EncoderHead read_lm_head(const ModelConfig& config, Weights& weights,
                                       const WeightMatrix& tokens);

/// Marks heads for whole texts, which heed ignores: `parts` with and without `root`.
void leave_heads(Weights& weights, const std::string& root, const std::vector<std::string>& parts);

extern const char* const kBertOnly;  ///< FamilyEntry::keys.only of these families

}  // namespace heed::detail
