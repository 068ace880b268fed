// Models as the command line names them.
#pragma once

#include <string>

#include "heed/model.hpp"
#include "heed/trained_model.hpp"

namespace heed::cli {

/// The folder that a model's name stands for: itself, or of "induction" and "stories", which come with heed,
/// theirs: beside the installed command, or in the build folder.
[[nodiscard]] std::string model_folder(const std::string& name);
/// The file with its weights: that of the folder, or a GGUF file itself.
[[nodiscard]] std::string model_file(const std::string& name);
/// Throws UsageError where DOC is a model.
void refuse_model(const std::string& path);
[[nodiscard]] heed::Model read_model(const std::string& name);
[[nodiscard]] TrainedModel read_trained_model(const std::string& name);

}  // namespace heed::cli
