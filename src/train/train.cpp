// A training in its folder: from the first step or the last checkpoint to the model.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "core/message.hpp"
#include "heed/nn/train.hpp"
#include "heed/nn/train_ranks.hpp"
#include "train/settings.hpp"

namespace heed {
namespace {

namespace fs = std::filesystem;

// Removes temporary files of a run that was killed while writing.
void remove_leftovers(const std::string& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".heed-") && name.ends_with(".tmp")) fs::remove(entry.path(), error);
  }
}

void make_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) detail::refuse(ErrorCode::io, "cannot make the folder ", folder, ": ", error.message());
  if (access(folder.c_str(), W_OK | X_OK) != 0)
    detail::refuse(ErrorCode::io, "cannot write to the folder ", folder);
  remove_leftovers(folder);
}

void check_options(const TrainOptions& options) {
  if (options.checkpoint_every < 1)
    detail::refuse("checkpoint_every is ", options.checkpoint_every, "; 1 or more is expected");
  if (options.stop_at && *options.stop_at < 1)
    detail::refuse("stop_at is ", *options.stop_at, "; 1 or more is expected");
  if (options.threads < 0)
    detail::refuse("threads is ", options.threads, "; 0 (all of the machine) or more is expected");
}

// Adds the last checkpoint to the error of a training that diverges.
template <class Work>
void guarded(const std::string& checkpoint, std::int64_t kept, Work work) {
  try {
    work();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::internal) throw;
    detail::refuse(ErrorCode::internal, error.what(), ": the training diverges; ", checkpoint,
                   " is kept as it was after step ", kept);
  }
}

const TrainRanks& ranks_of(const TrainOptions& options) {
  static const TrainRanks alone;
  return options.ranks != nullptr ? *options.ranks : alone;
}

// `kept` is the step of the checkpoint.
void run_to_the_end(const std::string& folder, const TrainData& data, const TrainOptions& options,
                    std::int64_t kept, TrainState& state) {
  const TrainRanks& ranks = ranks_of(options);
  const std::string checkpoint = checkpoint_in(folder);
  const std::int64_t steps = state.trained.settings.steps;
  const std::int64_t last = std::min(options.stop_at.value_or(steps), steps);
  const auto keep = [&] {
    ranks.require_same(state);
    guarded(checkpoint, kept, [&] { ranks.once([&] { save_checkpoint(checkpoint, state); }); });
    kept = state.step;
  };
  if (options.progress) options.progress(state);
  while (state.step < last && !ranks.any(options.stop && options.stop())) {
    guarded(checkpoint, kept, [&] { train_step(state, data, options.threads, ranks); });
    if (options.progress) options.progress(state);
    if (state.step % options.checkpoint_every == 0 && state.step < last) keep();
  }
  keep();
  ranks.once([&] { save_model(folder, state.trained, state.marks); });
}

// The state that `make` returns, the same on every rank.
template <class Make>
TrainState same_on_all(const TrainRanks& ranks, const TrainOptions& options, Make make) {
  ranks.require_same(options);
  std::optional<TrainState> state;
  ranks.each([&] {
    check_options(options);
    // OpenBLAS splits sums by its number of threads, which changes bits; heed splits the batch instead.
    nn::set_blas_threads(1);
    state = make();
  });
  ranks.require_same(*state);
  return std::move(*state);
}

}  // namespace

std::string checkpoint_in(const std::string& folder) { return folder + "/checkpoint.safetensors"; }

TrainState train(const std::string& folder, const TrainSettings& settings, const TrainData& data,
                 const TrainOptions& options) {
  const TrainRanks& ranks = ranks_of(options);
  const std::string checkpoint = checkpoint_in(folder);
  ranks.once([&] {
    std::error_code error;
    if (fs::exists(checkpoint, error))
      detail::refuse(folder, " already holds a training; resuming it, or another folder, is expected");
    if (detail::holds_other_model(folder))
      detail::refuse(folder, " holds a model that heed did not train; another folder is expected");
  });
  TrainState state = same_on_all(ranks, options, [&] { return begin_training(settings, data); });
  ranks.once([&] {
    make_folder(folder);
    save_checkpoint(checkpoint, state);
  });
  run_to_the_end(folder, data, options, state.step, state);
  return state;
}

TrainState resume_training(const std::string& folder, const TrainData& data, const TrainOptions& options) {
  const TrainRanks& ranks = ranks_of(options);
  TrainState state =
      same_on_all(ranks, options, [&] { return read_checkpoint(checkpoint_in(folder), data); });
  ranks.once([&] { make_folder(folder); });
  run_to_the_end(folder, data, options, state.step, state);
  return state;
}

TrainRanks::~TrainRanks() = default;

void TrainRanks::each(const std::function<void()>& work) const { work(); }
void TrainRanks::once(const std::function<void()>& work) const { work(); }
bool TrainRanks::any(bool own) const { return own; }
void TrainRanks::require_same(TrainState&) const {}
void TrainRanks::require_same(const TrainOptions&) const {}

double TrainRanks::loss_and_gradients(const nn::LanguageModel& model, const TensorView& tokens,
                                      const TensorView& targets, nn::LanguageModel& gradients,
                                      int threads) const {
  return model.loss_and_gradients(tokens, targets, gradients, threads);
}

}  // namespace heed
