// A training, step by step, and its checkpoint.
#pragma once

#include <cstdint>
#include <string>

#include "heed/optimizer.hpp"
#include "heed/random.hpp"
#include "heed/transformer.hpp"
#include "model/folder.hpp"
#include "model/settings.hpp"
#include "train/data.hpp"

namespace heed::cli {

/// What decides all that follows: a training goes on from it with the same bits as if it had never stopped.
struct TrainState {
  TrainSettings settings;
  std::string fingerprint;  ///< of the text
  Generator generator;
  nn::LanguageModel model;
  nn::AdamW optimizer;
  std::int64_t step = 0;   ///< done
  double smooth_loss = 0;  ///< a running mean over some twenty steps
  LossMarks marks;         ///< at steps 1, 2, 5, 10, 20, 50, …, and the last one
  double sum_since_mark = 0;
};

/// Draws the model from the settings' seed.
[[nodiscard]] TrainState begin_training(const TrainSettings& settings, const TrainData& data);

/// One step. Throws Error (internal), with the model as it was before, where loss or gradients are not finite
/// or the loss is far above what mere chance gives: the training diverges.
void train_step(TrainState& state, const TrainData& data, nn::LanguageModel& grads, int threads);

/// One safetensors file with all of the state; written whole or not at all.
void save_checkpoint(const std::string& path, TrainState& state);
/// Throws Error (io), naming the file, for what save_checkpoint() did not write.
[[nodiscard]] TrainSettings read_checkpoint_settings(const std::string& path);
/// The same; UsageError where the data are not those of the checkpoint.
[[nodiscard]] TrainState read_checkpoint(const std::string& path, const TrainData& data);

}  // namespace heed::cli
