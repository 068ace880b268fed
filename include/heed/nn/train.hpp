// Training of small language models, step by step or to the end. The training folder survives a kill at any
// moment (docs/training.md).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "heed/export.hpp"
#include "heed/nn/optimizer.hpp"
#include "heed/nn/train_ranks.hpp"
#include "heed/nn/trained_model.hpp"
#include "heed/random.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// Training data: a text as tokens, or repeating symbols, which are generated on demand.
struct TrainData {
  TrainedTokenizer tokenizer;
  Tensor tokens;  ///< i64 [N]; empty for the induction task
  /// Identifies the text: "1234 bytes, 89abcdef01234567"; "" without a text.
  std::string fingerprint;
};

/// Reads a file as characters. Throws Error (io) if it cannot be read or is not UTF-8.
[[nodiscard]] HEED_API TrainData read_train_text(const std::string& path);
[[nodiscard]] HEED_API TrainData induction_data(const TrainSettings& settings);

/// State of a training. A checkpoint stores all of it but the gradients; training resumes with the same bits
/// as without a stop.
struct TrainState {
  TrainedModel trained;
  std::string fingerprint;  ///< TrainData::fingerprint of the text
  Generator generator;
  nn::AdamW optimizer;
  nn::LanguageModel gradients;  ///< gradients of the last step
  std::int64_t step = 0;        ///< number of steps done
  double smooth_loss = 0;       ///< nats per token: a running mean over about 20 steps
  LossMarks marks{};            ///< mean losses at steps 1, 2, 5, 10, 20, 50, …, and the last
  double sum_since_mark = 0;
};

/// Initialises the model from the settings' seed. Throws Error (invalid_argument) for settings out of range,
/// or a text that is not longer than the context.
[[nodiscard]] HEED_API TrainState begin_training(const TrainSettings& settings, const TrainData& data);

/// Runs one step on at most `threads` threads (0: all processors). The bits do not depend on their number if
/// the BLAS uses one thread (nn::set_blas_threads(1)). Throws Error (internal) and leaves the model unchanged
/// if the training diverges: loss or gradients are not finite, or the loss is far above chance level.
HEED_API void train_step(TrainState& state, const TrainData& data, int threads = 0,
                         const TrainRanks& ranks = TrainRanks());

/// Writes the state to one safetensors file, atomically. Throws Error: io, and internal for parameters that
/// are NaN or infinite.
HEED_API void save_checkpoint(const std::string& path, TrainState& state);
/// Throws Error (io), naming the file, if save_checkpoint() did not write it.
[[nodiscard]] HEED_API TrainSettings read_checkpoint_settings(const std::string& path);
/// The same; invalid_argument if the data differ from the checkpoint's.
[[nodiscard]] HEED_API TrainState read_checkpoint(const std::string& path, const TrainData& data);

/// Options of train() that do not change the model.
struct TrainOptions {
  std::int64_t checkpoint_every = 100;                ///< steps between checkpoints, at least 1
  std::optional<std::int64_t> stop_at{};              ///< saves and returns after this step
  int threads = 0;                                    ///< as in train_step()
  std::function<void(const TrainState&)> progress{};  ///< called before the first step and after each
  std::function<bool()> stop{};                       ///< called before each step; true saves and returns
  const TrainRanks* ranks = nullptr;  ///< processes that train together; null: this process alone
};

/// Path of the checkpoint in a folder.
[[nodiscard]] HEED_API std::string checkpoint_in(const std::string& folder);

/// Trains for settings.steps steps, or until told to stop. The folder is created if missing, and must have no
/// checkpoint yet. Writes a checkpoint at the start, at the given interval and at the end, then the model
/// (save_model()). Calls nn::set_blas_threads(1). Throws Error: invalid_argument as begin_training() does,
/// and for a folder with a checkpoint; io; internal if the training diverges, which keeps the last
/// checkpoint.
HEED_API TrainState train(const std::string& folder, const TrainSettings& settings, const TrainData& data,
                          const TrainOptions& options = {});
/// Resumes from the folder's checkpoint, bit for bit as without a stop. Throws as train() and
/// read_checkpoint() do.
HEED_API TrainState resume_training(const std::string& folder, const TrainData& data,
                                    const TrainOptions& options = {});

}  // namespace heed
