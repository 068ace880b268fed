// Settings of a training as JSON, and the sizes that they give a model.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "heed/trained_model.hpp"

namespace heed::detail {

[[nodiscard]] nlohmann::ordered_json settings_json(const TrainSettings& settings);
/// Throws Error (io) that begins with `path` for what settings_json() did not make.
[[nodiscard]] TrainSettings settings_from(const nlohmann::ordered_json& json, const std::string& path);

[[nodiscard]] nn::LanguageModelConfig model_config(const TrainSettings& settings, std::int64_t vocabulary);

}  // namespace heed::detail
