// A small language model that heed trains (docs/training.md): its settings, its tokens, its layers, and its
// folder. heed/model.hpp reads the folder as it reads that of any GPT-2; it runs the model and looks into it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/export.hpp"
#include "heed/model_folder.hpp"
#include "heed/trained_tokenizer.hpp"
#include "heed/transformer.hpp"

namespace heed {

enum class Task {
  text,       ///< the next character of a text
  induction,  ///< random symbols that repeat: what followed them the last time
};
/// "text", "induction".
[[nodiscard]] HEED_API std::string_view name_of(Task task) noexcept;

/// All that decides what a training does: two trainings of the same settings on the same text end with the
/// same bits.
struct TrainSettings {
  Task task = Task::text;
  std::int64_t layers = 2;
  std::int64_t heads = 4;
  std::int64_t model_dim = 64;  ///< a multiple of heads
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

/// The settings that are numbers, by name: whole ones in [least, most], and others above 0 or from 0 on.
struct IntegerSetting {
  const char* name;
  std::int64_t TrainSettings::*value;
  std::int64_t least, most;
  const char* meaning;
};
struct RealSetting {
  const char* name;
  double TrainSettings::*value;
  bool zero_allowed;
  const char* meaning;
};
[[nodiscard]] HEED_API std::span<const IntegerSetting> integer_settings() noexcept;
[[nodiscard]] HEED_API std::span<const RealSetting> real_settings() noexcept;
/// Throws Error (invalid_argument) that names the first setting that is out of range.
HEED_API void check(const TrainSettings& settings);

struct TrainedModel {
  TrainSettings settings;
  Tokenizer tokenizer;
  nn::LanguageModel model;
};

/// Reads a folder of save_model(), by its name (model_folder()): model.safetensors, config.json,
/// vocabulary.json. Files are hostile until checked: what does not fit together throws Error (io) that names
/// the file, before memory is taken for what a file only claims to hold.
[[nodiscard]] HEED_API TrainedModel load_trained_model(const std::string& name);

/// The mean loss of the steps since the step before it in the list.
using LossMarks = std::vector<std::pair<std::int64_t, double>>;

/// Writes the model into a folder that is there, each file whole or not at all: as a GPT-2 that transformers
/// opens, too (docs/training.md). config.json also tells what the losses were.
HEED_API void save_model(const std::string& folder, TrainedModel& trained, const LossMarks& losses = {});

}  // namespace heed
