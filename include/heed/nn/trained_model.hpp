// A small language model trained by heed (docs/training.md): settings, tokenizer, layers and folder.
// heed/model/model.hpp reads the folder like any GPT-2 folder, and runs and inspects the model.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/export.hpp"
#include "heed/io/model_folder.hpp"
#include "heed/io/trained_tokenizer.hpp"
#include "heed/nn/transformer.hpp"

namespace heed {

/// The task that a model is trained for.
enum class Task {
  text,       ///< predict the next character of a text
  induction,  ///< predict repeating random symbols: what followed at their last occurrence
};
/// "text", "induction".
[[nodiscard]] HEED_API std::string_view name_of(Task task) noexcept;

/// All settings that determine a training. Two trainings with the same settings and text end with the same
/// bits.
struct TrainSettings {
  Task task = Task::text;
  std::int64_t layers = 2;
  std::int64_t heads = 4;
  std::int64_t model_dim = 64;  ///< a multiple of heads
  std::int64_t context = 64;
  bool attention_only = false;
  std::int64_t symbols = 64;  ///< size of the alphabet, induction task only
  std::int64_t batch = 16;
  std::int64_t steps = 1000;
  double learning_rate = 3e-3;
  std::int64_t warmup = 100;  ///< at most steps
  double weight_decay = 0.01;
  double clip = 1;
  std::int64_t seed = 1;
};

/// Numeric settings by name: integers in [least, most], and reals that are > 0, or >= 0 if zero_allowed.
struct IntegerSetting {
  const char* name;
  std::int64_t TrainSettings::*value;
  std::int64_t least, most;
  const char* meaning;
};
/// A setting that is a number with a fraction.
struct RealSetting {
  const char* name;
  double TrainSettings::*value;
  bool zero_allowed;
  const char* meaning;
};
[[nodiscard]] HEED_API std::span<const IntegerSetting> integer_settings() noexcept;
[[nodiscard]] HEED_API std::span<const RealSetting> real_settings() noexcept;
/// Throws Error (invalid_argument) that names the first setting out of range.
HEED_API void check(const TrainSettings& settings);

/// A model of heed train, as its folder holds it.
struct TrainedModel {
  TrainSettings settings;
  TrainedTokenizer tokenizer;
  nn::LanguageModel model;
};

/// Reads a folder of save_model() by its name (model_folder()): model.safetensors, config.json,
/// vocabulary.json. All files are checked as untrusted input. Inconsistent contents throw Error (io) that
/// names the file, before memory is allocated for sizes that a file only claims.
[[nodiscard]] HEED_API TrainedModel load_trained_model(const std::string& name);

/// Pairs of a step and the mean loss since the previous listed step.
using LossMarks = std::vector<std::pair<std::int64_t, double>>;

/// Writes the model into an existing folder, each file atomically. The result is a GPT-2 that transformers
/// can also open (docs/training.md). config.json also records the losses.
HEED_API void save_model(const std::string& folder, TrainedModel& trained, const LossMarks& losses = {});

}  // namespace heed
