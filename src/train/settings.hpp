// Training settings as JSON, and the model sizes that follow from them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "heed/nn/trained_model.hpp"

namespace heed::detail {

[[nodiscard]] nlohmann::ordered_json settings_json(const TrainSettings& settings);
/// Throws Error (io) that begins with `path` for JSON that settings_json() does not write.
[[nodiscard]] TrainSettings settings_from(const nlohmann::ordered_json& json, const std::string& path);

[[nodiscard]] nn::LanguageModelConfig model_config(const TrainSettings& settings, std::int64_t vocabulary);

/// Whether a folder holds a model that heed train did not make, whose files a training would replace.
[[nodiscard]] bool holds_other_model(const std::string& folder);

}  // namespace heed::detail
