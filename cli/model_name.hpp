// Models as the command line names them.
#pragma once

#include <string>

#include "heed/model.hpp"

namespace heed::cli {

/// Prints what the model's files say and heed leaves aside, on standard error.
[[nodiscard]] heed::Model read_model(const std::string& name);
/// The file with a model's weights: that of its folder, or a GGUF file itself.
[[nodiscard]] std::string model_file(const std::string& name);
/// Throws UsageError where DOC is a model, or words without a model that reads them.
void check_document_name(const std::string& path);

}  // namespace heed::cli
