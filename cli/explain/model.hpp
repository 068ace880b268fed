// What `heed explain` computes with: a vocabulary, an embedding and one attention layer, drawn or read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heed/nn.hpp"
#include "heed/vocabulary.hpp"

namespace heed::cli {

/// How the weights of the heads lie in a file.
enum class WeightLayout {
  per_head,   ///< query.weight [H, d_k, D], key.weight, value.weight [H, d_v, D]; out_proj.weight [D, H d_v]
  in_proj,    ///< in_proj_weight [H (2 d_k + d_v), D], torch.nn.MultiheadAttention's; out_proj.weight
  fused_qkv,  ///< qkv_layer.weight of that size, the rows of a head together; linear_layer.weight
};
[[nodiscard]] const char* name_of(WeightLayout layout);

/// What the weights of queries, keys and values are drawn from; the embedding always from N(0, 1).
enum class Init {
  uniform,  ///< [0, 1), with the seed set anew: the notebook on an input sentence
  normal,   ///< N(0, 1): the pay-attention notebook
  torch,    ///< as torch.nn.MultiheadAttention's
  lecun,    ///< N(0, 1/D), which makes scaled scores of about 1 (LeCun et al. 1998)
};

/// Sizes as they were asked for on the command line; the rest takes a default, or what a file has.
struct ModelSizes {
  std::optional<std::int64_t> heads;
  std::optional<std::int64_t> dim;
  std::optional<std::int64_t> key_dim;    ///< of one head
  std::optional<std::int64_t> value_dim;  ///< of one head
};

struct Model {
  Vocabulary vocabulary;
  nn::Embedding embedding;  ///< [words, D]
  nn::MultiHeadAttention attention;
  WeightLayout layout = WeightLayout::per_head;
  std::string origin;  ///< "drawn from U[0, 1), seed 123", or the file's name

  [[nodiscard]] std::int64_t heads() const { return attention.heads(); }
  [[nodiscard]] std::int64_t dim() const { return embedding.weight.size(1); }
  [[nodiscard]] std::int64_t key_dim() const { return attention.query.weight.size(0) / heads(); }
  [[nodiscard]] std::int64_t value_dim() const {
    return attention.value.weight.size(0) / attention.kv_heads();
  }
};

/// Sizes default to the notebooks': one head, D 16, d_k 24, d_v 28.
[[nodiscard]] Model draw_model(const Vocabulary& vocabulary, const ModelSizes& sizes, Init init,
                               std::uint64_t seed, WeightLayout layout);

/// Reads a safetensors file of parameters, floats of any size, into f32. Its layout is told by its names; the
/// embedding is drawn from the seed where the file has none. `sentence` is the vocabulary of what is to be
/// explained; a file that names its own ("vocabulary" in its metadata, a JSON list) takes that in its place.
/// Throws Error (io) for a file that does not fit together, UsageError where it contradicts what was asked
/// for.
[[nodiscard]] Model read_model(const std::string& path, const Vocabulary& sentence, const ModelSizes& sizes,
                               std::optional<WeightLayout> layout, std::uint64_t seed);

/// The parameters under the names and in the shapes of the model's layout.
[[nodiscard]] std::vector<std::pair<std::string, Tensor>> parameters_of(const Model& model);

}  // namespace heed::cli
