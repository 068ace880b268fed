// Names of models.
#pragma once

#include <string>

#include "heed/export.hpp"

namespace heed {

/// Whether heed ships a model of that name: "induction" or "stories".
[[nodiscard]] HEED_API bool comes_with_heed(const std::string& name);

/// The folder or file of a model name: the name itself, except for models that heed ships. These are in
/// share/heed beside the folder of the command or library. A folder of that name in the working directory
/// takes precedence.
[[nodiscard]] HEED_API std::string model_folder(const std::string& name);

}  // namespace heed
