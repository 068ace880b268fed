// heed train: a small language model learns from a text, or to find what followed the last time.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "command.hpp"
#include "heed/error.hpp"
#include "heed/nn.hpp"
#include "heed/parallel.hpp"
#include "help.hpp"
#include "model/folder.hpp"
#include "options.hpp"
#include "standard_streams.hpp"
#include "terminal.hpp"
#include "text.hpp"
#include "train/data.hpp"
#include "train/stop_signals.hpp"
#include "train/train_progress.hpp"
#include "train/trainer.hpp"

namespace heed::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kCheckpointEvery = 100;
constexpr int kLeastTrainWidth = 40;

constexpr const char* kTrainDescription =
    "train a small language model\n"
    "\n"
    "A Transformer learns to say the next character of TEXT.txt; or, with --task induction, what followed "
    "the "
    "last time, in sequences of random symbols that repeat. The folder of --out gets the model "
    "(model.safetensors, config.json, vocabulary.json) and a checkpoint, from which --resume goes on bit for "
    "bit as if it had never stopped. Ctrl-C saves and stops.";

constexpr const char* kTrainExamples =
    "Examples:\n"
    "  heed train book.txt --out book\n"
    "  heed train book.txt --out book --resume\n"
    "  heed train --task induction --attention-only --out repeats --steps 2000\n"
    "  heed generate book --prompt 'The '\n";

struct TrainArguments {
  std::string text;
  std::string out;
  TrainSettings settings;
  bool resume = false;
  std::int64_t checkpoint_every = kCheckpointEvery;
  std::optional<std::int64_t> stop_at;
  int threads = 0;
  bool json = false;

  [[nodiscard]] std::string checkpoint() const { return out + "/checkpoint.safetensors"; }
};

// The command that goes on with this training.
std::string resume_command(const TrainArguments& arguments, Task task) {
  const std::string source = task == Task::text ? shell_quoted(arguments.text) : "--task induction";
  return "heed train " + source + " --out " + shell_quoted(arguments.out) + " --resume";
}

// What the settings of a checkpoint say must not be asked for differently.
void refuse_other_settings(const CLI::App& app, const TrainArguments& arguments, const TrainSettings& kept) {
  const auto refuse = [&](const std::string& option, const std::string& given, const std::string& was) {
    throw UsageError(option + " is " + given + "; the training in " + arguments.out + " was begun with " +
                     was + ", and goes on with that");
  };
  const auto number = [](const auto& value) { return nlohmann::json(value).dump(); };
  for (const IntegerSetting& one : integer_settings())
    if (const std::string option = option_of(one.name);
        given(app, option) && arguments.settings.*one.value != kept.*one.value)
      refuse(option, number(arguments.settings.*one.value), number(kept.*one.value));
  for (const RealSetting& one : real_settings())
    if (const std::string option = option_of(one.name);
        given(app, option) && arguments.settings.*one.value != kept.*one.value)
      refuse(option, number(arguments.settings.*one.value), number(kept.*one.value));
  if (arguments.settings.task != kept.task)
    refuse("--task", name_of(arguments.settings.task), name_of(kept.task));
  if (arguments.settings.attention_only && !kept.attention_only)
    throw UsageError("--attention-only is given; the training in " + arguments.out + " was begun without it");
}

void check_arguments(const CLI::App& app, TrainArguments& arguments) {
  require_option(app, "--out", "the folder for the model");
  const bool induction = arguments.settings.task == Task::induction;
  if (induction && !arguments.text.empty())
    throw UsageError("'" + arguments.text + "' is a text, but --task induction makes its own sequences");
  if (!induction && arguments.text.empty())
    throw UsageError("there is nothing to learn from: TEXT.txt, or --task induction, is expected");
  if (!induction && given(app, "--symbols"))
    throw UsageError("--symbols is given without --task induction; a text has its own characters");
  const TrainSettings& settings = arguments.settings;
  if (settings.model_dim % settings.heads != 0)
    throw UsageError("--model-dim is " + std::to_string(settings.model_dim) + "; a multiple of the " +
                     std::to_string(settings.heads) + " of --heads is expected");
}

// What a run that was killed while it wrote has left behind.
void remove_leftovers(const std::string& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".heed-") && name.ends_with(".tmp")) fs::remove(entry.path(), error);
  }
}

void check_folder(const TrainArguments& arguments) {
  std::error_code error;
  const bool trained = fs::exists(arguments.checkpoint(), error);
  if (arguments.resume && !trained)
    throw UsageError("--resume is given, but " + arguments.out +
                     " has no checkpoint.safetensors to go on from");
  if (!arguments.resume && trained)
    throw UsageError(arguments.out +
                     " holds a training already; add --resume to go on with it, or name another "
                     "folder");
}

// Once it is known that there is something to train.
void make_folder(const TrainArguments& arguments) {
  std::error_code error;
  fs::create_directories(arguments.out, error);
  if (error) throw Error(ErrorCode::io, "cannot make the folder " + arguments.out + ": " + error.message());
  if (access(arguments.out.c_str(), W_OK | X_OK) != 0)
    throw Error(ErrorCode::io, "cannot write to the folder " + arguments.out);
  remove_leftovers(arguments.out);
}

TrainData data_of(const TrainArguments& arguments, const TrainSettings& settings) {
  return settings.task == Task::text ? read_text_data(arguments.text, settings) : induction_data(settings);
}

class Training {
 public:
  Training(const TrainArguments& arguments, const TrainData& data, TrainState state)
      : arguments_(arguments),
        data_(data),
        state_(std::move(state)),
        grads_(zeros_like(state_.model)),
        progress_(std::cerr, width(), state_.step, state_.settings.steps,
                  state_.settings.batch * state_.settings.context) {}

  void run() {
    const StopSignals signals;
    const std::int64_t last =
        std::min(arguments_.stop_at.value_or(state_.settings.steps), state_.settings.steps);
    if (!arguments_.resume) save_checkpoint(arguments_.checkpoint(), state_);
    kept_ = state_.step;
    while (state_.step < last && !StopSignals::asked()) {
      step();
      if (state_.step % arguments_.checkpoint_every == 0 && state_.step < last) keep();
    }
    keep();
    progress_.clear();
    write_model_folder(arguments_.out, state_.settings, data_.vocabulary, state_.model, state_.marks);
    if (StopSignals::asked() && state_.step < last)
      throw Interrupted("stopped after step " + std::to_string(state_.step) + " of " +
                        std::to_string(state_.settings.steps) +
                        "; all is saved, go on with: " + resume_command(arguments_, state_.settings.task));
  }

  void print_summary() const {
    if (arguments_.json) {
      std::cout << summary_json().dump() << '\n';
      return;
    }
    std::cout << "Trained " << nn::parameter_count(state_.model.config) << " parameters for " << state_.step
              << " of " << state_.settings.steps << " steps; the loss is " << state_.smooth_loss
              << " nats a token.\nThe model is in " << printable(arguments_.out) << ".\n";
    if (state_.step < state_.settings.steps)
      std::cout << "To go on: " << printable(resume_command(arguments_, state_.settings.task)) << '\n';
  }

 private:
  static int width() {
    return isatty(STDERR_FILENO) == 1 ? std::max(kLeastTrainWidth, terminal_at(STDERR_FILENO).width) : 0;
  }

  void step() {
    guarded([&] { train_step(state_, data_, grads_, arguments_.threads); });
    progress_.show(state_.step, state_.smooth_loss);
  }

  void keep() {
    guarded([&] { save_checkpoint(arguments_.checkpoint(), state_); });
    kept_ = state_.step;
  }

  // Says where a training that diverges was last sound.
  template <class Work>
  void guarded(Work work) {
    try {
      work();
    } catch (const Error& error) {
      progress_.clear();
      if (error.code() != ErrorCode::internal) throw;
      throw Error(ErrorCode::internal, std::string(error.what()) + ": the training diverges; " +
                                           arguments_.checkpoint() + " is kept as it was after step " +
                                           std::to_string(kept_) + ", and a lower --learning-rate may help");
    }
  }

  [[nodiscard]] nlohmann::ordered_json summary_json() const {
    nlohmann::ordered_json json = {{"out", arguments_.out},
                                   {"parameters", nn::parameter_count(state_.model.config)},
                                   {"vocabulary", data_.vocabulary.size()},
                                   {"step", state_.step},
                                   {"steps", state_.settings.steps},
                                   {"loss", state_.smooth_loss},
                                   {"losses", nlohmann::ordered_json::array()},
                                   {"threads", arguments_.threads},
                                   {"seconds", progress_.seconds()},
                                   {"tokens_per_second", progress_.tokens_per_second(state_.step)}};
    for (const auto& [step, loss] : state_.marks) json["losses"].push_back({{"step", step}, {"loss", loss}});
    return json;
  }

  const TrainArguments& arguments_;
  const TrainData& data_;
  TrainState state_;
  nn::LanguageModel grads_;
  TrainProgress progress_;
  std::int64_t kept_ = 0;  // step of the checkpoint
};

void run_train(const CLI::App& app, TrainArguments& arguments) {
  check_arguments(app, arguments);
  check_folder(arguments);
  if (arguments.json) require_standard_output();
  if (arguments.threads == 0) arguments.threads = default_threads();
  // A sum that OpenBLAS splits among threads has other bits for each number of them; heed splits the batch.
  nn::set_blas_threads(1);
  TrainSettings settings = arguments.settings;
  if (arguments.resume) {
    settings = read_checkpoint_settings(arguments.checkpoint());
    refuse_other_settings(app, arguments, settings);
  }
  const TrainData data = data_of(arguments, settings);
  make_folder(arguments);
  Training training(
      arguments, data,
      arguments.resume ? read_checkpoint(arguments.checkpoint(), data) : begin_training(settings, data));
  training.run();
  training.print_summary();
}

void add_settings(CLI::App& app, TrainSettings& settings) {
  const auto group_of = [](const std::string& name) {
    const bool size =
        name == "layers" || name == "heads" || name == "model_dim" || name == "context" || name == "symbols";
    return size ? "Model" : "Learning";
  };
  add_choice(
      app, "--task", {"text", "induction"},
      [&settings](std::size_t i) { settings.task = static_cast<Task>(i); },
      "learn from TEXT.txt, or from random symbols that repeat (text)")
      ->group("Model");
  for (const IntegerSetting& one : integer_settings())
    add_integer(
        app, option_of(one.name), one.range,
        [&settings, value = one.value](std::int64_t n) { settings.*value = n; }, one.help)
        ->group(group_of(one.name));
  add_flag(app, "--attention-only", settings.attention_only, "blocks of attention alone, without an MLP")
      ->group("Model");
  for (const RealSetting& one : real_settings()) {
    const std::string option = option_of(one.name);
    const auto store = [&settings, one, option](double x) {
      if (x < 0 || (x == 0 && !one.zero_allowed))
        throw UsageError(option + " is " + nlohmann::json(x).dump() + "; a number " +
                         (one.zero_allowed ? "of at least 0" : "above 0") + " is expected");
      settings.*one.value = x;
    };
    add_real(app, option, store, one.help)->group(group_of(one.name));
  }
}

}  // namespace

Command add_train(CLI::App& heed) {
  CLI::App* app = add_command(heed, "train", kTrainDescription);
  const auto arguments = std::make_shared<TrainArguments>();
  add_argument(*app, "TEXT.txt", arguments->text, "UTF-8 text whose characters to learn");
  add_text(*app, "--out", "DIR", arguments->out, "the folder for the model and its checkpoint")
      ->group("Training");
  add_flag(*app, "--resume", arguments->resume, "go on from the checkpoint in DIR, with its settings")
      ->group("Training");
  add_integer(
      *app, "--checkpoint-every", {1}, [arguments](std::int64_t n) { arguments->checkpoint_every = n; },
      "save all each N steps, and at the end (100)")
      ->group("Training");
  add_integer(
      *app, "--stop-at", {1}, [arguments](std::int64_t n) { arguments->stop_at = n; },
      "save and stop after step N of --steps")
      ->group("Training");
  add_settings(*app, arguments->settings);
  add_integer(
      *app, "--threads", {1, 4096}, [arguments](std::int64_t n) { arguments->threads = static_cast<int>(n); },
      "at most this many, up to 8 are of use (what the machine has); the result is the same for any number")
      ->group("Running");
  add_flag(*app, "--json", arguments->json, "print one JSON object in the end")->group("Running");
  finish_help(
      *app,
      {"TEXT.txt --out DIR [options]", "--task induction --out DIR [options]", "TEXT.txt --out DIR --resume"},
      kTrainExamples);
  return {app, [app, arguments] { run_train(*app, *arguments); }};
}

}  // namespace heed::cli
