// heed train: trains a small language model on a text or on the induction task.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>

#include "command.hpp"
#include "heed/error.hpp"
#include "heed/nn/train.hpp"
#include "heed/parallel.hpp"
#include "help.hpp"
#include "machine.hpp"
#include "options.hpp"
#include "rank_options.hpp"
#include "terminal.hpp"
#include "text.hpp"
#include "train/stop_signals.hpp"
#include "train/train_progress.hpp"
#include "train/trained_by.hpp"

namespace heed::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kLeastTrainWidth = 40;

constexpr const char* kTrainDescription =
    "train a small language model\n"
    "\n"
    "A Transformer learns to predict the next character of TEXT.txt or, with --task induction, to repeat "
    "what followed the last time in random symbols. The folder of --out receives the model as "
    "a GPT-2 for transformers (model.safetensors, config.json, vocabulary.json, for text also "
    "tokenizer.json) and a checkpoint, from which --resume continues bit for bit as if training had never "
    "stopped. Ctrl-C "
    "saves and stops.";

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
  TrainOptions options;
  bool over_sequence = false;
  bool json = false;
};

// The option of a setting: "model_dim" becomes "--model-dim".
std::string option_of(const char* name) { return "--" + with_dashes(name); }

std::string resume_command(const TrainArguments& arguments, const TrainedBy& by, Task task) {
  const std::string source = task == Task::text ? shell_quoted(arguments.text) : "--task induction";
  return (by.together ? "mpirun -n " + std::to_string(by.ranks) + " " : "") + "heed train " + source +
         " --out " + shell_quoted(arguments.out) + " --resume" +
         (arguments.over_sequence ? " --over sequence" : "");
}

// Throws UsageError if an option contradicts the settings of the checkpoint.
void refuse_other_settings(const CLI::App& app, const TrainArguments& arguments, const TrainSettings& kept) {
  const auto refuse = [&](const std::string& option, const std::string& given, const std::string& was) {
    refuse_usage(option, " is ", given, "; the training in ", arguments.out, " was started with ", was,
                 ", and keeps it");
  };
  const auto check = [&](const auto& one) {
    const auto asked = arguments.settings.*one.value, was = kept.*one.value;
    const std::string option = option_of(one.name);
    if (given(app, option) && asked != was)
      refuse(option, nlohmann::json(asked).dump(), nlohmann::json(was).dump());
  };
  std::ranges::for_each(integer_settings(), check);
  std::ranges::for_each(real_settings(), check);
  if (given(app, "--task") && arguments.settings.task != kept.task)
    refuse("--task", std::string(name_of(arguments.settings.task)), std::string(name_of(kept.task)));
  if (arguments.settings.attention_only && !kept.attention_only)
    refuse_usage("--attention-only is given; the training in ", arguments.out, " was started without it");
  if (kept.task == Task::induction && !arguments.text.empty())
    refuse_usage("'", arguments.text, "' is given; the training in ", arguments.out,
                 " was started with --task induction, and keeps it");
  if (kept.task == Task::text && arguments.text.empty())
    refuse_usage("TEXT.txt is missing; the text that the training in ", arguments.out,
                 " was started with is expected");
}

// Checks the arguments of a new training.
void check_arguments(const CLI::App& app, TrainArguments& arguments) {
  const bool induction = arguments.settings.task == Task::induction;
  if (induction && !arguments.text.empty())
    refuse_usage("'", arguments.text,
                 "' is given together with --task induction, which makes its own sequences");
  if (!induction && arguments.text.empty())
    refuse_usage("no task is given; TEXT.txt or --task induction is expected");
  if (!induction && given(app, "--symbols"))
    refuse_usage("--symbols is given without --task induction; a text uses its own characters");
  TrainSettings& settings = arguments.settings;
  if (settings.model_dim % settings.heads != 0)
    refuse_usage("--model-dim is ", settings.model_dim, "; a multiple of the ", settings.heads,
                 " of --heads is expected");
  if (!given(app, "--warmup")) settings.warmup = std::min(settings.warmup, settings.steps);
  if (settings.warmup > settings.steps)
    refuse_usage("--warmup is ", settings.warmup, "; at most the ", settings.steps,
                 " of --steps is expected");
}

void check_folder(const TrainArguments& arguments) {
  std::error_code error;
  const bool trained = fs::exists(checkpoint_in(arguments.out), error);
  if (arguments.resume && !trained)
    refuse_usage("--resume is given, but ", arguments.out, " has no checkpoint.safetensors to continue from");
  if (!arguments.resume && trained)
    refuse_usage(arguments.out,
                 " already holds a training; add --resume to continue it, or name another folder");
}

TrainData data_of(const TrainArguments& arguments, const TrainSettings& settings) {
  if (settings.task == Task::induction) return induction_data(settings);
  TrainData data = read_train_text(arguments.text);
  if (data.tokens.count() <= settings.context)
    refuse_usage(arguments.text, " has ", counted(data.tokens.count(), "character"), "; more than the ",
                 settings.context, " of --context are expected");
  return data;
}

// At the least: the weights, their gradients and AdamW's two averages; each layer's stream, and the logits.
void check_memory(const TrainSettings& sizes, std::int64_t vocabulary, int ranks) {
  const auto dim = static_cast<double>(sizes.model_dim), layers = static_cast<double>(sizes.layers);
  const double words = 2.0 * static_cast<double>(vocabulary);
  const double weights = (words + static_cast<double>(sizes.context)) * dim +
                         (sizes.attention_only ? 4 : 12) * layers * dim * dim;
  const double tokens = static_cast<double>(sizes.batch) * static_cast<double>(sizes.context) / ranks;
  require_memory(detail::said("training with --layers ", sizes.layers, ", --model-dim ", sizes.model_dim,
                              ", --batch ", sizes.batch, " and --context ", sizes.context),
                 sizeof(float) * (4 * weights + tokens * (4 * layers * dim + words)));
}

nlohmann::ordered_json summary_json(const TrainArguments& arguments, const TrainedBy& by,
                                    const TrainState& state, const TrainProgress& progress) {
  nlohmann::ordered_json json = {{"out", arguments.out},
                                 {"parameters", nn::parameter_count(state.trained.model.config)},
                                 {"vocabulary", state.trained.tokenizer.size()},
                                 {"step", state.step},
                                 {"steps", state.trained.settings.steps},
                                 {"loss", state.smooth_loss},
                                 {"losses", nlohmann::ordered_json::array()},
                                 {"threads", arguments.options.threads},
                                 {"seconds", progress.seconds()},
                                 {"tokens_per_second", progress.tokens_per_second(state.step)}};
  if (by.together) json["ranks"] = by.ranks;
  if (by.together) json["over"] = arguments.over_sequence ? "sequence" : "batch";
  for (const auto& [step, loss] : state.marks) json["losses"].push_back({{"step", step}, {"loss", loss}});
  return json;
}

void print_summary(const TrainArguments& arguments, const TrainedBy& by, const TrainState& state,
                   const TrainProgress& progress) {
  if (arguments.json) {
    std::cout << summary_json(arguments, by, state, progress).dump() << '\n';
    return;
  }
  const TrainSettings& settings = state.trained.settings;
  std::cout << "Trained " << nn::parameter_count(state.trained.model.config) << " parameters for "
            << state.step << " of " << settings.steps << " steps; the loss is " << state.smooth_loss
            << " nats a token.\nThe model is in " << printable(arguments.out) << ".\n";
  if (state.step < settings.steps)
    std::cout << "To continue: " << printable(resume_command(arguments, by, settings.task)) << '\n';
}

void train_and_print(const TrainArguments& arguments, const TrainedBy& by, const TrainSettings& settings,
                     const TrainData& data) {
  const StopSignals signals;
  std::optional<TrainProgress> progress;
  const std::unique_ptr<TrainRanks> ranks =
      by.together ? by.together(arguments.over_sequence) : std::make_unique<TrainRanks>();
  TrainOptions options = arguments.options;
  options.ranks = ranks.get();
  options.stop = StopSignals::asked;
  options.progress = [&](const TrainState& state) {
    if (!by.is_first) return;
    if (progress) return progress->show(state.step, state.smooth_loss);
    const int columns = std::max(kLeastTrainWidth, terminal_at(STDERR_FILENO).width);
    progress.emplace(std::cerr, isatty(STDERR_FILENO) == 1 ? columns : 0, state.step, settings.steps,
                     settings.batch * settings.context);
  };
  try {
    const TrainState state = arguments.resume ? resume_training(arguments.out, data, options)
                                              : train(arguments.out, settings, data, options);
    if (progress) progress->clear();
    // All ranks stop alike, even if only one received the signal.
    if (state.step < std::min(options.stop_at.value_or(settings.steps), settings.steps))
      throw Interrupted(
          "stopped after step " + std::to_string(state.step) + " of " + std::to_string(settings.steps) +
          "; everything is saved, continue with: " + resume_command(arguments, by, settings.task));
    if (by.is_first) print_summary(arguments, by, state, *progress);
  } catch (const Error& error) {
    if (progress) progress->clear();
    if (error.code() != ErrorCode::internal) throw;
    detail::refuse(ErrorCode::internal, error.what(),
                   "; a lower --learning-rate may help");  // training diverged
  }
}

void run_train(const CLI::App& app, TrainArguments& arguments, const TrainedBy& by) {
  if (!by.together) refuse_rank_options_alone(app, {"--over"});
  require_option(app, "--out", "the folder for the model");
  if (!arguments.resume) check_arguments(app, arguments);
  check_folder(arguments);
  if (arguments.json) require_standard_output();
  if (arguments.options.threads == 0)
    arguments.options.threads = by.threads > 0 ? by.threads : default_threads();
  TrainSettings settings = arguments.settings;
  if (arguments.resume) {
    settings = read_checkpoint_settings(checkpoint_in(arguments.out));
    refuse_other_settings(app, arguments, settings);
  }
  const TrainData data = data_of(arguments, settings);
  check_memory(settings, data.tokenizer.size(), by.ranks);
  train_and_print(arguments, by, settings, data);
}

// The meaning of a setting and its default: "attention heads of each block (default 4)".
template <class Setting>
std::string help_of(const Setting& one, const TrainSettings& defaults) {
  std::ostringstream text;
  text << one.meaning << " (default " << defaults.*one.value << ")";
  return text.str();
}

void add_settings(CLI::App& app, TrainSettings& settings) {
  const auto group_of = [](const std::string& name) {
    const bool size =
        name == "layers" || name == "heads" || name == "model_dim" || name == "context" || name == "symbols";
    return size ? "Model" : "Learning";
  };
  begin_group(app, "Model");
  add_choice(
      app, "--task", {"text", "induction"},
      [&settings](std::size_t i) { settings.task = static_cast<Task>(i); },
      "learn from TEXT.txt, or from random symbols that repeat (default text)");
  for (const IntegerSetting& one : integer_settings()) {
    begin_group(app, group_of(one.name));
    add_integer(app, option_of(one.name), {one.least, one.most}, settings.*one.value, help_of(one, settings));
  }
  begin_group(app, "Model");
  add_flag(app, "--attention-only", settings.attention_only, "use blocks of attention only, without an MLP");
  for (const RealSetting& one : real_settings()) {
    const std::string option = option_of(one.name);
    const auto store = [&settings, one, option](double x) {
      if (x < 0 || (x == 0 && !one.zero_allowed))
        refuse_usage(option, " is ", nlohmann::json(x).dump(), "; a number ",
                     one.zero_allowed ? "of at least 0" : "above 0", " is expected");
      settings.*one.value = x;
    };
    begin_group(app, group_of(one.name));
    add_real(app, option, store, help_of(one, settings));
  }
}

}  // namespace

Command add_train(CLI::App& heed) { return add_train_with(heed, {}); }

Command add_train_with(CLI::App& heed, const TrainedBy& by) {
  CLI::App* app = add_command(heed, "train", kTrainDescription);
  const auto arguments = std::make_shared<TrainArguments>();
  add_argument(*app, "TEXT.txt", arguments->text, "UTF-8 text to learn from, character by character");
  begin_group(*app, "Training");
  add_text(*app, "--out", "DIR", arguments->out, "the folder for the model and its checkpoint");
  add_flag(*app, "--resume", arguments->resume, "continue from the checkpoint in DIR with its settings");
  add_integer(*app, "--checkpoint-every", {1}, arguments->options.checkpoint_every,
              "save a checkpoint every N steps and at the end (default 100)");
  add_integer(*app, "--stop-at", {1}, arguments->options.stop_at, "save and stop after step N of --steps");
  add_settings(*app, arguments->settings);
  begin_group(*app, "Running");
  add_integer(*app, "--threads", {1, 4096}, arguments->options.threads,
              "use at most N threads, of which up to 8 help (default: all of the machine); the result is the "
              "same for any number");
  add_flag(*app, "--json", arguments->json, "print one JSON object at the end");
  begin_group(*app, kRankGroup);
  add_choice(
      *app, "--over", {"batch", "sequence"},
      [arguments](std::size_t i) { arguments->over_sequence = i == 1; },
      "what is divided among the ranks: the sequences of a batch, or the positions of each sequence (default "
      "batch)");
  finish_help(
      *app,
      {"TEXT.txt --out DIR [options]", "--task induction --out DIR [options]", "TEXT.txt --out DIR --resume"},
      kTrainExamples);
  return {app, [app, arguments, by] { run_train(*app, *arguments, by); }};
}

}  // namespace heed::cli
