// Models named on the command line.
#pragma once

#include <string>
#include <vector>

#include "command.hpp"
#include "heed/model/model.hpp"

namespace heed::cli {

/// The names of the models that come with heed.
[[nodiscard]] std::vector<std::string> shipped_models();
void add_model_option(CLI::App& app, std::string& target,
                      const std::string& help =
                          "run this model on WORDS: a folder from Hugging Face or heed "
                          "train, a GGUF file, or induction or stories, which come "
                          "with heed");
/// Reads a model, which runs fast or exactly (ModelOptions). Prints warnings about settings in its files that
/// heed ignores on standard error.
[[nodiscard]] heed::Model read_model(const std::string& name, bool fast);
/// The file with the model's weights: in its folder, or the GGUF file itself.
[[nodiscard]] std::string model_file(const std::string& name);
/// Throws UsageError if DOC names a model, or is a text given without --model, or if words follow it.
/// `command` is "look", for example.
void check_document(const std::string& command, const std::string& path,
                    const std::vector<std::string>& words);

}  // namespace heed::cli
