// heed's language models in the form of transformers' GPT-2: the sizes in config.json, the tensors by name.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "heed/nn/transformer.hpp"

namespace heed::detail {

/// The sizes and rules of a model in the form of config.json.
[[nodiscard]] nlohmann::ordered_json gpt2_config(const nn::LanguageModelConfig& config);

/// Writes model.safetensors for GPT2LMHeadModel. All blocks of GPT-2 have an MLP. A block without one gets an
/// MLP with a single hidden unit that adds 0.
void write_gpt2_tensors(const std::string& path, nn::LanguageModel& model);

/// Reads it back. The file must hold at least as many numbers as the sizes require; other tensors are
/// ignored. Throws Error (io) that begins with `path` for a missing tensor, a wrong shape or dtype, and an
/// MLP that adds something where the sizes have none.
[[nodiscard]] nn::LanguageModel read_gpt2_tensors(const std::string& path,
                                                  const nn::LanguageModelConfig& config);

/// Throws Error (io) if the file at `path` holds fewer numbers than a model of these sizes.
void require_numbers(const std::string& path, const nn::LanguageModelConfig& config);

}  // namespace heed::detail
