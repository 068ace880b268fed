// Folders run.heed from heed.transformers.capture(to=…), with one file per call.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "heed/inspect/document.hpp"
#include "heed/io/tensors.hpp"

namespace heed::cli {

[[nodiscard]] bool is_folder(const std::string& path);

/// The files NNNN-layer-LL.safetensors in call order. Throws Error (io) if there is none.
std::vector<std::string> captured_files(const std::string& folder);

/// Throws Error (io) if the file is no captured call.
void require_captured_call(const std::string& path, const io::SafetensorsReader& file);

/// The JSON value of a metadata entry: null if it is missing or longer than 64 KiB, discarded if it is not
/// valid JSON.
nlohmann::ordered_json captured_value(const io::SafetensorsReader& file, const std::string& name);

/// The layers of the model's first pass as one document with the captured weights. Throws Error (io), naming
/// the file or folder, if weights are missing, cover only some rows or heads, or have other rows and keys
/// than the first layer.
[[nodiscard]] Document open_captured_weights(const std::string& folder);

}  // namespace heed::cli
