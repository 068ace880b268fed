// Attention weights in a folder from heed.transformers.capture(weights=True, to=…).
#pragma once

#include <string>

#include "heed/inspect/document.hpp"

namespace heed::cli {

/// The layers of the model's first pass as one document with the captured weights. Throws Error (io), naming
/// the file or folder, if weights are missing, cover only some rows or heads, or have other rows and keys
/// than the first layer.
[[nodiscard]] Document open_captured_weights(const std::string& folder);

}  // namespace heed::cli
