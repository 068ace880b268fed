// Names of models.
#pragma once

#include <string>

#include "heed/export.hpp"

namespace heed {

/// Whether a model of that name comes with heed: "induction" and "stories" do.
[[nodiscard]] HEED_API bool comes_with_heed(const std::string& name);

/// The folder or file that a model's name stands for: the name itself, but for those that come with heed.
/// These lie in share/heed beside the command's or the library's folder. A folder of that name in the working
/// directory goes first.
[[nodiscard]] HEED_API std::string model_folder(const std::string& name);

}  // namespace heed
