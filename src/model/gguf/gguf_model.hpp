// GGUF files (gguf_architecture.hpp), converted to the contents of a model folder.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "model/files/weights.hpp"
#include "model/gguf/gguf_file.hpp"
#include "text/vocabulary_files.hpp"

namespace heed::detail {

/// Opens a file, or all parts of one that is split, whose first part `path` names. Throws Error (io) for a
/// missing part and for a part that is not the first.
[[nodiscard]] std::vector<io::detail::GgufFile> open_gguf(const std::string& path);

/// The metadata in the form of config.json. Values of the architecture that heed does not know throw Error
/// (io).
[[nodiscard]] nlohmann::ordered_json gguf_config(std::span<const io::detail::GgufFile> parts);

/// Names of values that belong neither to the architecture nor to every GGUF file.
[[nodiscard]] std::vector<std::string> unknown_in_gguf(const io::detail::GgufFile& file);

/// The tensors under the names of model.safetensors. GGUF has the rows of Llama's queries and keys in
/// interleaved rotary pairs, and GPT-NeoX's queries, keys and values one after another. Both are copied back
/// to the order of a folder.
[[nodiscard]] std::shared_ptr<Weights> gguf_weights(std::span<const io::detail::GgufFile> parts,
                                                    const nlohmann::ordered_json& config);

/// Converts tokenizer.ggml.* to a tokenizer, or returns the reason why heed cannot. Known are the models
/// "gpt2", "llama" and "bert", and for "gpt2" the pre-tokenizers that docs/formats.md lists. A broken
/// tokenizer of these models throws Error (io).
[[nodiscard]] FolderTokenizer gguf_tokenizer(const io::detail::GgufFile& file, const std::string& path);

}  // namespace heed::detail
