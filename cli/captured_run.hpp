// Folders run.heed, which heed.transformers.capture(to=…) writes: a file for each call.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "heed/io.hpp"

namespace heed::cli {

/// Its files NNNN-layer-LL.safetensors in the order of the calls. Throws Error (io) where there is none.
std::vector<std::string> captured_files(const std::string& folder);

/// Throws Error (io) for a file that is no captured call.
void require_captured_call(const std::string& path, const io::SafetensorsReader& file);

/// Null where the metadata have no such JSON.
nlohmann::ordered_json captured_value(const io::SafetensorsReader& file, const std::string& name);

}  // namespace heed::cli
