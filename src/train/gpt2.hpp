// heed's language models as transformers' GPT-2 keeps them: the sizes in config.json, the tensors by name.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "heed/transformer.hpp"

namespace heed::detail {

/// What config.json says about the sizes and rules of a model.
[[nodiscard]] nlohmann::ordered_json gpt2_config(const nn::LanguageModelConfig& config);

/// Writes model.safetensors for GPT2LMHeadModel. GPT-2's blocks all have an MLP: that of a block without one
/// has a single hidden number, and adds 0.
void write_gpt2_tensors(const std::string& path, nn::LanguageModel& model);

/// Reads it back, from a file that holds at least as many numbers as the sizes ask for; other tensors are
/// left alone. Throws Error (io) that begins with `path` for a tensor that is not there, or of another shape
/// or dtype, and for an MLP that adds something where the sizes have none.
[[nodiscard]] nn::LanguageModel read_gpt2_tensors(const std::string& path,
                                                  const nn::LanguageModelConfig& config);

/// Throws Error (io) where a file of `path` holds fewer numbers than a model of these sizes.
void require_numbers(const std::string& path, const nn::LanguageModelConfig& config);

}  // namespace heed::detail
