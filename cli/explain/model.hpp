// The model of `heed explain`: a vocabulary, an embedding and one attention layer, random or read from a
// file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heed/io/vocabulary.hpp"
#include "heed/nn/layers.hpp"

namespace heed::cli {

/// Layouts of attention parameters in a file.
enum class WeightLayout {
  per_head,   ///< query.weight [H, d_k, D], key.weight, value.weight [H, d_v, D]; out_proj.weight [D, H d_v]
  in_proj,    ///< in_proj_weight [H (2 d_k + d_v), D], as in torch.nn.MultiheadAttention; out_proj.weight
  fused_qkv,  ///< qkv_layer.weight of the same size, with each head's rows together; linear_layer.weight
};
[[nodiscard]] const char* name_of(WeightLayout layout);

/// Distribution of the query, key and value weights. The embedding is always drawn from N(0, 1).
enum class Init {
  uniform,  ///< [0, 1), with the seed reset: the notebook on an input sentence
  normal,   ///< N(0, 1): the pay-attention notebook
  torch,    ///< the default of torch.nn.MultiheadAttention
  lecun,    ///< N(0, 1/D), which gives scaled scores of about 1 (LeCun et al. 1998)
};

/// Sizes given on the command line. Others take their defaults, or come from the file.
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

/// Draws a random model. Sizes default to the notebooks': one head, D 16, d_k 24, d_v 28.
[[nodiscard]] Model draw_model(const Vocabulary& vocabulary, const ModelSizes& sizes, Init init,
                               std::uint64_t seed, WeightLayout layout);

/// Reads the parameters of a safetensors file, floats of any size, as f32. Tensor names determine the layout.
/// If the file has no embedding, it is drawn with the seed. `sentence` is the default vocabulary; a JSON list
/// "vocabulary" in the file's metadata replaces it. Throws Error (io) if the file is inconsistent, UsageError
/// if it contradicts the options.
[[nodiscard]] Model read_model(const std::string& path, const Vocabulary& sentence, const ModelSizes& sizes,
                               std::optional<WeightLayout> layout, std::uint64_t seed);

/// The parameters, with names and shapes as in the model's layout.
[[nodiscard]] std::vector<std::pair<std::string, Tensor>> parameters_of(const Model& model);

}  // namespace heed::cli
