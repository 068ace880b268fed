// heed.load_model and heed.train: models trained by heed, and training.
#include "heed/nn/trained_model.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "calls.hpp"
#include "fail.hpp"
#include "heed/nn/living_page.hpp"
#include "heed/nn/train.hpp"
#include "saved.hpp"

namespace heed::python {
namespace {

// The settings of heed/nn/trained_model.hpp by name.
nb::dict settings_of(const TrainedModel& trained) {
  nb::dict all;
  all["task"] = std::string(name_of(trained.settings.task));
  all["attention_only"] = trained.settings.attention_only;
  for (const IntegerSetting& one : integer_settings()) all[one.name] = trained.settings.*one.value;
  for (const RealSetting& one : real_settings()) all[one.name] = trained.settings.*one.value;
  return all;
}

void set(TrainSettings& settings, const std::string& name, nb::handle value) {
  if (name == "attention_only") {
    settings.attention_only = truth(name, value);
    return;
  }
  for (const IntegerSetting& one : integer_settings())
    if (name == one.name) {
      settings.*one.value = integer(name, value);
      return;
    }
  for (const RealSetting& one : real_settings())
    if (name == one.name) {
      settings.*one.value = number(name, value);
      return;
    }
  fail_type("train() got an unexpected keyword argument '", name, "'");
}

// Settings from Python. If there is a checkpoint, they must equal its settings. The default warmup is at most
// all steps.
TrainSettings settings_from(const nb::dict& given, const std::optional<TrainSettings>& kept, Task task) {
  TrainSettings settings = kept.value_or(TrainSettings{.task = task});
  if (settings.task != task)
    fail(task == Task::text ? "text is given" : "text is not given",
         "; the training was started with the task '", name_of(settings.task), "'");
  for (const auto& [key, value] : given) {
    const auto name = nb::cast<std::string>(key);
    TrainSettings changed = settings;
    set(changed, name, value);
    const auto keep = [&](auto now, auto was) {
      if (kept && now != was)
        fail(name, " is ", now, "; the training was started with ", was, ", and keeps it");
    };
    if (kept && changed.attention_only != kept->attention_only)
      fail(name, " is ", changed.attention_only ? "True" : "False", "; the training was started with ",
           kept->attention_only ? "True" : "False", ", and keeps it");
    for (const IntegerSetting& one : integer_settings()) keep(changed.*one.value, settings.*one.value);
    for (const RealSetting& one : real_settings()) keep(changed.*one.value, settings.*one.value);
    settings = changed;
  }
  if (!kept && !given.contains("warmup")) settings.warmup = std::min(settings.warmup, settings.steps);
  return settings;
}

// Handles Python events during training. An exception, including Ctrl-C's, stops the training so that it can
// resume.
class Watch {
 public:
  explicit Watch(nb::object progress) : progress_(std::move(progress)) {}

  void tell(const TrainState& state) {
    const nb::gil_scoped_acquire held;
    try {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (!progress_.is_none()) progress_(state.step, state.smooth_loss);
    } catch (...) {
      raised_ = std::current_exception();
    }
  }
  [[nodiscard]] bool has_raised() const { return raised_ != nullptr; }
  void raise_again() const {
    if (raised_) std::rethrow_exception(raised_);
  }

 private:
  nb::object progress_;
  std::exception_ptr raised_;
};

void train_of_python(const std::string& folder, const std::optional<std::string>& text, nb::handle resuming,
                     nb::handle checkpoint_every, nb::handle stop_at, nb::handle threads, nb::object progress,
                     const nb::dict& given) {
  std::optional<TrainSettings> kept;
  const bool resume = truth("resume", resuming);
  if (resume) kept = read_checkpoint_settings(checkpoint_in(folder));
  const TrainSettings settings = settings_from(given, kept, text ? Task::text : Task::induction);
  if (!kept) check(settings);  // an older checkpoint may have a warmup longer than its steps
  Watch watch(std::move(progress));
  TrainOptions options{.checkpoint_every = integer("checkpoint_every", checkpoint_every),
                       .threads = threads_of(threads),
                       .progress = [&](const TrainState& state) { watch.tell(state); },
                       .stop = [&] { return watch.has_raised(); }};
  if (!stop_at.is_none()) options.stop_at = integer("stop_at", stop_at);
  std::optional<TrainState> state;
  {
    const nb::gil_scoped_release released;
    const TrainData data = text ? read_train_text(*text) : induction_data(settings);
    state = resume ? resume_training(folder, data, options) : train(folder, settings, data, options);
  }
  watch.raise_again();
}

}  // namespace

void define_model(nb::module_& module) {
  nb::class_<TrainedModel>(module, "TrainedModelData")
      .def(CopiedAsItself())
      .def(NotPickled("TrainedModelData cannot be pickled; pickle the heed.TrainedModel that has it"))
      .def_prop_ro("settings", settings_of)
      .def_prop_ro("symbols", [](const TrainedModel& trained) { return trained.tokenizer.is_symbols(); })
      .def(
          "page",
          [](const TrainedModel& trained, const std::string& path, const std::string& name,
             const std::string& text) {
            const nb::gil_scoped_release released;
            write_living_page(path, trained, {name, text});
          },
          nb::arg("path"), nb::arg("name"), nb::arg("text"))
      .def(
          "save", [](TrainedModel& trained, const std::string& folder) { save_model(folder, trained); },
          nb::arg("folder"));
  module.def("load_model", load_trained_model, nb::arg("folder"), nb::call_guard<nb::gil_scoped_release>());
  module.def("train", train_of_python, nb::arg("folder"), nb::arg("text").none(), nb::arg("resume").none(),
             nb::arg("checkpoint_every").none(), nb::arg("stop_at").none(), nb::arg("threads").none(),
             nb::arg("progress").none(), nb::arg("settings"));
}

}  // namespace heed::python
