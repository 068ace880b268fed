// The weights in a folder that heed.transformers.capture(weights=True, to=…) wrote.
#pragma once

#include <string>

#include "heed/document.hpp"

namespace heed::cli {

/// The layers of the first pass of the model as one document, whose weights are those of the files. Throws
/// Error (io), naming the file or the folder, for what holds no weights, or those of some rows or heads only,
/// and where layers have other rows and keys than the first.
[[nodiscard]] Document open_captured_weights(const std::string& folder);

}  // namespace heed::cli
