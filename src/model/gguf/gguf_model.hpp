// GGUF files of the architectures llama, qwen2 and qwen3, brought to what their folders hold.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/files/weights.hpp"
#include "model/gguf/gguf_file.hpp"
#include "text/vocabulary_files.hpp"

namespace heed::detail {

/// The metadata as config.json has it. What is not understood of the architecture's values throws Error (io).
[[nodiscard]] nlohmann::ordered_json gguf_config(const io::detail::GgufFile& file);

/// Names of values that belong neither to the architecture nor to what all files have.
[[nodiscard]] std::vector<std::string> unknown_in_gguf(const io::detail::GgufFile& file);

/// The tensors by the names of model.safetensors. Rows of Llama's queries and keys, which such files have in
/// the order of interleaved rotary pairs, are copied back into that of halves.
[[nodiscard]] std::shared_ptr<Weights> gguf_weights(const io::detail::GgufFile& file,
                                                    const nlohmann::ordered_json& config);

/// tokenizer.ggml.* as a tokenizer, or why heed makes none of it. Models "gpt2" and "llama" are known, and of
/// the first the pre-tokenizers that cut as "gpt-2", "llama-bpe" or "qwen2" do. A tokenizer of these that is
/// not as it should be throws Error (io).
[[nodiscard]] FolderTokenizer gguf_tokenizer(const io::detail::GgufFile& file, const std::string& path);

}  // namespace heed::detail
