// All that decides what a training does: two trainings of the same settings on the same text end with the
// same bits.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "heed/transformer.hpp"
#include "options.hpp"

namespace heed::cli {

enum class Task {
  text,       ///< the next character of a text
  induction,  ///< random symbols that repeat: what followed them the last time
};

struct TrainSettings {
  Task task = Task::text;
  std::int64_t layers = 2;
  std::int64_t heads = 4;
  std::int64_t model_dim = 64;
  std::int64_t context = 64;
  bool attention_only = false;
  std::int64_t symbols = 64;  ///< of the induction task
  std::int64_t batch = 16;
  std::int64_t steps = 1000;
  double learning_rate = 3e-3;
  std::int64_t warmup = 100;
  double weight_decay = 0.01;
  double clip = 1;
  std::int64_t seed = 1;
};

/// A whole number among the settings: "model-dim" on the command line, "model_dim" in files.
struct IntegerSetting {
  const char* name;
  std::int64_t TrainSettings::*value;
  IntegerRange range;
  const char* help;
};
struct RealSetting {
  const char* name;
  double TrainSettings::*value;
  bool zero_allowed;  ///< else above 0
  const char* help;
};
[[nodiscard]] std::span<const IntegerSetting> integer_settings();
[[nodiscard]] std::span<const RealSetting> real_settings();
/// "model_dim" as "--model-dim".
[[nodiscard]] std::string option_of(const char* name);
[[nodiscard]] const char* name_of(Task task);

[[nodiscard]] nlohmann::ordered_json settings_json(const TrainSettings& settings);
/// Throws Error (io) that begins with `path` for what settings_json() did not make.
[[nodiscard]] TrainSettings settings_from(const nlohmann::ordered_json& json, const std::string& path);

[[nodiscard]] nn::LanguageModelConfig model_config(const TrainSettings& settings, std::int64_t vocabulary);

}  // namespace heed::cli
