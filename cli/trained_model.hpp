// Trained models as the command line names them.
#pragma once

#include <string>

#include "heed/model.hpp"

namespace heed::cli {

/// A model's folder, or one of the models that come with heed, "induction" and "stories": beside the
/// installed command, or in the build folder.
[[nodiscard]] TrainedModel read_trained_model(const std::string& name);

}  // namespace heed::cli
