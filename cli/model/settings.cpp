#include "model/settings.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "heed/error.hpp"

namespace heed::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMost = 1'000'000'000;

constexpr std::array<IntegerSetting, 9> kIntegers = {{
    {"layers", &TrainSettings::layers, {1, 1000}, "blocks of the model (2)"},
    {"heads", &TrainSettings::heads, {1, 100'000}, "attention heads of each block (4)"},
    {"model_dim", &TrainSettings::model_dim, {1, 100'000}, "numbers that stand for a token (64)"},
    {"context", &TrainSettings::context, {2, 1'000'000}, "tokens that the model sees at a time (64)"},
    {"symbols", &TrainSettings::symbols, {2, 1'000'000}, "of the induction task (64)"},
    {"batch", &TrainSettings::batch, {1, 1'000'000}, "sequences of a step (16)"},
    {"steps", &TrainSettings::steps, {1, kMost}, "of the optimiser (1000)"},
    {"warmup", &TrainSettings::warmup, {0, kMost}, "steps over which the learning rate rises (100)"},
    {"seed", &TrainSettings::seed, {0, 0xffffffff}, "of all random numbers (1)"},
}};

constexpr std::array<RealSetting, 3> kReals = {{
    {"learning_rate", &TrainSettings::learning_rate, false,
     "at its highest; from there it falls along a cosine to 0 (0.003)"},
    {"weight_decay", &TrainSettings::weight_decay, true, "of AdamW, for matrices only (0.01)"},
    {"clip", &TrainSettings::clip, false, "the longest that all gradients together may be (1)"},
}};

}  // namespace

std::span<const IntegerSetting> integer_settings() { return kIntegers; }
std::span<const RealSetting> real_settings() { return kReals; }

std::string option_of(const char* name) {
  std::string option = std::string("--") + name;
  std::replace(option.begin(), option.end(), '_', '-');
  return option;
}

const char* name_of(Task task) { return task == Task::text ? "text" : "induction"; }

Json settings_json(const TrainSettings& settings) {
  Json json = {{"task", name_of(settings.task)}, {"attention_only", settings.attention_only}};
  for (const IntegerSetting& one : kIntegers) json[one.name] = settings.*one.value;
  for (const RealSetting& one : kReals) json[one.name] = settings.*one.value;
  return json;
}

TrainSettings settings_from(const Json& json, const std::string& path) {
  const auto fail = [&](const std::string& what) { throw Error(ErrorCode::io, path + ": " + what); };
  if (!json.is_object()) fail("its settings are no JSON object");
  const auto member = [&](const char* name) -> const Json& {
    if (!json.contains(name)) fail("its settings have no '" + std::string(name) + "'");
    return json[name];
  };
  TrainSettings settings;
  const Json& task = member("task");
  if (task != "text" && task != "induction") fail("its task is neither 'text' nor 'induction'");
  settings.task = task == "text" ? Task::text : Task::induction;
  if (!member("attention_only").is_boolean()) fail("its 'attention_only' is neither true nor false");
  settings.attention_only = member("attention_only").get<bool>();
  for (const IntegerSetting& one : kIntegers) {
    const Json& value = member(one.name);
    // As a double first: a number of any size can be compared that way.
    if (!value.is_number_integer() || value.get<double>() < static_cast<double>(one.range.least) ||
        value.get<double>() > static_cast<double>(one.range.most))
      fail("its '" + std::string(one.name) + "' is no whole number from " + std::to_string(one.range.least) +
           " to " + std::to_string(one.range.most));
    settings.*one.value = value.get<std::int64_t>();
  }
  for (const RealSetting& one : kReals) {
    const Json& value = member(one.name);
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    if (!std::isfinite(number) || number < 0 || (number == 0 && !one.zero_allowed))
      fail("its '" + std::string(one.name) + "' is no number " +
           (one.zero_allowed ? "of at least 0" : "above 0"));
    settings.*one.value = number;
  }
  return settings;
}

nn::LanguageModelConfig model_config(const TrainSettings& settings, std::int64_t vocabulary) {
  return {.vocabulary = vocabulary,
          .context = settings.context,
          .layers = settings.layers,
          .heads = settings.heads,
          .model_dim = settings.model_dim,
          .attention_only = settings.attention_only};
}

}  // namespace heed::cli
