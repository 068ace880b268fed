// The architectures of GGUF files that heed runs. Each turns a file's tensors and metadata
// into the weights and config.json of a folder.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf/gguf_file.hpp"

namespace heed::detail {

/// The name of a tensor without its ending, in GGUF and in model.safetensors. A tensor of all experts has "*"
/// for the number of an expert.
struct GgufTensorName {
  std::string_view gguf, safetensors;
};

struct GgufArchitecture {
  std::string_view name;                      ///< general.architecture
  std::string_view model_type;                ///< of config.json
  std::span<const GgufTensorName> names{};    ///< in blocks, before those that all architectures share
  std::span<const GgufTensorName> outside{};  ///< the others, before those that all share
  std::string_view blocks = "model.layers.";  ///< what stands before a block's number
  bool interleaved = false;                   ///< rows of queries and keys stand in rotary pairs
  bool parts_in_turn = false;  ///< rows of queries, keys and values together are [3, H, d], not [H, 3, d]
  bool experts = false;        ///< for files with experts; another entry may be for those without
  bool partial_rope = false;   ///< a part of each head may rotate
  /// The key of the norms' epsilon, in GGUF and in config.json.
  GgufTensorName epsilon = {"attention.layer_norm_rms_epsilon", "rms_norm_eps"};
  float norm_offset = 0;  ///< added to the weights of norms in the file, but not in model.safetensors
  std::vector<std::string_view> values{};  ///< further metadata of the architecture that `complete` reads
  /// Adds to config.json what only this architecture has. The first part has the metadata; `root` is
  /// "gemma3.".
  void (*complete)(std::span<const io::detail::GgufFile> parts, const std::string& root,
                   nlohmann::ordered_json& config) = nullptr;
};

/// Throws Error (io) that lists the architectures that heed runs.
[[nodiscard]] const GgufArchitecture& architecture_of(const io::detail::GgufFile& file);

/// A tensor, and the part that has it.
struct PlacedTensor {
  const io::detail::GgufFile* file = nullptr;
  const io::detail::GgufTensor* tensor = nullptr;  ///< nullptr: no part has it
};
[[nodiscard]] PlacedTensor tensor_named(std::span<const io::detail::GgufFile> parts, std::string_view name);

[[nodiscard]] bool has_tensor(std::span<const io::detail::GgufFile> parts, std::string_view name);

/// "blk.3.attn_q.weight" → "model.layers.3.self_attn.q_proj.weight"; empty for unknown names.
[[nodiscard]] std::string safetensors_name(const GgufArchitecture& architecture, std::string_view name);
/// The inverse; returns unknown names unchanged.
[[nodiscard]] std::string gguf_name(const GgufArchitecture& architecture, const std::string& name);

}  // namespace heed::detail
