// A small language model trained by heed (docs/training.md): settings, tokenizer, layers and folder.
// heed/model.hpp reads the folder like any GPT-2 folder, and runs and inspects the model.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/export.hpp"
#include "heed/tensor.hpp"
#include "heed/transformer.hpp"
#include "heed/vocabulary.hpp"

namespace heed {

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
  std::int64_t warmup = 100;
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

/// Splits text into tokens and numbers them. Tokens are the characters (Unicode code points) of the training
/// text, numbered as in a Vocabulary. Or they are symbols without meaning: the words of any text get numbers
/// in order of first appearance.
///
/// Throws Error (invalid_argument), starting with `source`, for text that is not UTF-8 or has unknown tokens.
class HEED_API Tokenizer {
 public:
  static constexpr std::int64_t kMost = 1'000'000;  ///< upper limit for the number of characters or symbols

  /// A tokenizer of the characters that occur in the text.
  [[nodiscard]] static Tokenizer of_characters(std::string_view text, const std::string& source = "the text");
  [[nodiscard]] static Tokenizer of_characters(Vocabulary characters);
  /// A tokenizer of `count` symbols, 1 to kMost.
  [[nodiscard]] static Tokenizer of_symbols(std::int64_t count);

  [[nodiscard]] std::int64_t size() const noexcept { return is_symbols() ? symbols_ : characters_.size(); }
  [[nodiscard]] bool is_symbols() const noexcept { return characters_.size() == 0; }
  /// The characters; empty if tokens are symbols.
  [[nodiscard]] const Vocabulary& characters() const noexcept { return characters_; }
  /// The tokens of a text in readable form: its characters, or its words (split_words()).
  [[nodiscard]] std::vector<std::string> tokens_of(std::string_view text,
                                                   const std::string& source = "the text") const;
  /// The ids of the tokens, i64 [L].
  [[nodiscard]] Tensor encode(const std::vector<std::string>& tokens,
                              const std::string& source = "the text") const;
  /// The text of token `id` beside a text with these tokens: a character, or a word of the text. A symbol
  /// that no word uses reads "#17". Throws Error (invalid_argument) for an id outside [0, size()).
  [[nodiscard]] std::string text_of(std::int64_t id, const std::vector<std::string>& tokens) const;

 private:
  std::int64_t symbols_ = 0;
  Vocabulary characters_;
};

struct TrainedModel {
  TrainSettings settings;
  Tokenizer tokenizer;
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
