// Training small language models, step by step or to the end, in a folder that survives being killed at any
// moment (docs/training.md).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "heed/export.hpp"
#include "heed/optimizer.hpp"
#include "heed/random.hpp"
#include "heed/tensor.hpp"
#include "heed/train_ranks.hpp"
#include "heed/trained_model.hpp"

namespace heed {

/// What a model learns from: a text as tokens, or symbols that repeat, which are made as they are needed.
struct TrainData {
  Tokenizer tokenizer;
  Tensor tokens;  ///< i64 [N]; of the induction task none
  /// Tells one text from another: "1234 bytes, 89abcdef01234567"; "" without a text.
  std::string fingerprint;
};

/// The characters of a file. Throws Error (io) where it cannot be read or is not UTF-8.
[[nodiscard]] HEED_API TrainData read_train_text(const std::string& path);
[[nodiscard]] HEED_API TrainData induction_data(const TrainSettings& settings);

/// A training: a checkpoint holds all of it but the gradients, and goes on with the same bits as if it had
/// never stopped.
struct TrainState {
  TrainedModel trained;
  std::string fingerprint;  ///< of the text
  Generator generator;
  nn::AdamW optimizer;
  nn::LanguageModel gradients;  ///< of the last step
  std::int64_t step = 0;        ///< done
  double smooth_loss = 0;       ///< nats a token: a running mean over some twenty steps
  LossMarks marks{};            ///< at steps 1, 2, 5, 10, 20, 50, …, and the last one
  double sum_since_mark = 0;
};

/// Draws the model from the settings' seed. Throws Error (invalid_argument) for settings out of range, or a
/// text that is not longer than their context.
[[nodiscard]] HEED_API TrainState begin_training(const TrainSettings& settings, const TrainData& data);

/// One step, on at most `threads` threads (0: what the machine has), with the same bits for any number of
/// them and one of the BLAS's (nn::set_blas_threads(1)). Throws Error (internal), with the model as it was
/// before, where loss or gradients are not finite or the loss is far above what mere chance gives: the
/// training diverges.
HEED_API void train_step(TrainState& state, const TrainData& data, int threads = 0,
                         const TrainRanks& ranks = TrainRanks());

/// One safetensors file with all of the state, written whole or not at all. Throws Error: io, and internal
/// for parameters that are not numbers.
HEED_API void save_checkpoint(const std::string& path, TrainState& state);
/// Throws Error (io), naming the file, for what save_checkpoint() did not write.
[[nodiscard]] HEED_API TrainSettings read_checkpoint_settings(const std::string& path);
/// The same; invalid_argument where the data are not those of the checkpoint.
[[nodiscard]] HEED_API TrainState read_checkpoint(const std::string& path, const TrainData& data);

struct TrainOptions {
  std::int64_t checkpoint_every = 100;                ///< steps, at least 1
  std::optional<std::int64_t> stop_at{};              ///< save and return after this step
  int threads = 0;                                    ///< as in train_step()
  std::function<void(const TrainState&)> progress{};  ///< before the first step, and after each
  std::function<bool()> stop{};                       ///< asked before each step: true saves and returns
  const TrainRanks* ranks = nullptr;                  ///< who makes the steps together; none: this process
};

/// The checkpoint in a folder.
[[nodiscard]] HEED_API std::string checkpoint_in(const std::string& folder);

/// Trains to the end of settings.steps, or until it is told to stop, in a folder that is made where it is not
/// there and has no checkpoint yet. A checkpoint is written at the begin, all so many steps and at the end,
/// then the model (save_model()). Sets nn::set_blas_threads(1). Throws Error: invalid_argument as
/// begin_training() and for such a folder; io; internal where the training diverges, which leaves the last
/// checkpoint.
HEED_API TrainState train(const std::string& folder, const TrainSettings& settings, const TrainData& data,
                          const TrainOptions& options = {});
/// Goes on from the folder's checkpoint, bit for bit as if it had never stopped. Throws as train(), and as
/// read_checkpoint().
HEED_API TrainState resume_training(const std::string& folder, const TrainData& data,
                                    const TrainOptions& options = {});

}  // namespace heed
