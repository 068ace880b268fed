// A trained model in its folder: model.safetensors, config.json, vocabulary.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "heed/io.hpp"
#include "heed/transformer.hpp"
#include "model/settings.hpp"
#include "model/vocabulary.hpp"

namespace heed::cli {

struct TrainedModel {
  TrainSettings settings;
  ModelVocabulary vocabulary;
  nn::LanguageModel model;
};

/// Reads a folder; `name` may also be "induction", the model that comes with heed. Files from strangers: what
/// does not fit together throws Error (io) that names the file, before memory is taken for what a file only
/// claims to hold.
[[nodiscard]] TrainedModel read_model_folder(const std::string& name);

/// The mean loss of the steps since the step before it in the list.
using LossMarks = std::vector<std::pair<std::int64_t, double>>;

/// Writes all three files, each whole or not at all; config.json also tells what the losses were.
void write_model_folder(const std::string& folder, const TrainSettings& settings,
                        const ModelVocabulary& vocabulary, nn::LanguageModel& model, const LossMarks& losses);

/// The numbers of the parameters, from a file that holds at least as many numbers as the sizes ask for.
[[nodiscard]] nn::LanguageModel read_parameters(const std::string& path,
                                                const nn::LanguageModelConfig& config);

/// Where the model of that name lies that comes with heed: beside the installed command, or in the build
/// folder.
[[nodiscard]] std::string bundled_model(const std::string& name);

}  // namespace heed::cli
