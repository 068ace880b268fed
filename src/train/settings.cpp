#include "train/settings.hpp"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/message.hpp"

namespace heed {
namespace {

constexpr std::int64_t kMax = 1'000'000'000;

constexpr std::array<IntegerSetting, 9> kIntegers = {{
    {"layers", &TrainSettings::layers, 1, 1000, "blocks of the model"},
    {"heads", &TrainSettings::heads, 1, 100'000, "attention heads of each block"},
    {"model_dim", &TrainSettings::model_dim, 1, 100'000, "numbers in a token's vector"},
    {"context", &TrainSettings::context, 2, 1'000'000, "tokens that the model sees at once"},
    {"symbols", &TrainSettings::symbols, 2, 1'000'000, "different symbols of the induction task"},
    {"batch", &TrainSettings::batch, 1, 1'000'000, "sequences per step"},
    {"steps", &TrainSettings::steps, 1, kMax, "steps of the optimiser"},
    {"warmup", &TrainSettings::warmup, 0, kMax, "steps over which the learning rate rises"},
    {"seed", &TrainSettings::seed, 0, 0xffffffff, "seed of all random numbers"},
}};

constexpr std::array<RealSetting, 3> kReals = {{
    {"learning_rate", &TrainSettings::learning_rate, false,
     "highest learning rate; after warmup it falls along a cosine to 0"},
    {"weight_decay", &TrainSettings::weight_decay, true, "weight decay of AdamW, for matrices only"},
    {"clip", &TrainSettings::clip, false, "largest norm of all gradients together"},
}};

bool fits(const RealSetting& one, double value) {
  return std::isfinite(value) && (one.zero_allowed ? value >= 0 : value > 0);
}

std::string range_text(const IntegerSetting& one) {
  return "whole number from " + std::to_string(one.least) + " to " + std::to_string(one.most);
}

std::string range_text(const RealSetting& one) {
  return one.zero_allowed ? "finite number of at least 0" : "finite number above 0";
}

template <class Setting, class Number>
void require(bool holds, const Setting& one, Number value) {
  if (!holds) detail::refuse(one.name, " is ", value, "; a ", range_text(one), " is expected");
}

}  // namespace

std::span<const IntegerSetting> integer_settings() noexcept { return kIntegers; }
std::span<const RealSetting> real_settings() noexcept { return kReals; }

std::string_view name_of(Task task) noexcept { return task == Task::text ? "text" : "induction"; }

void check(const TrainSettings& settings) {
  heed::detail::check_listed("task", settings.task, Task::induction);
  for (const IntegerSetting& one : kIntegers)
    require(settings.*one.value >= one.least && settings.*one.value <= one.most, one, settings.*one.value);
  for (const RealSetting& one : kReals) require(fits(one, settings.*one.value), one, settings.*one.value);
  if (settings.model_dim % settings.heads != 0)
    detail::refuse("model_dim is ", settings.model_dim, "; a multiple of the ", settings.heads,
                   " heads is expected");
  if (settings.warmup > settings.steps)
    detail::refuse("warmup is ", settings.warmup, "; at most the ", settings.steps, " of steps is expected");
}

namespace detail {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace
Json settings_json(const TrainSettings& settings) {
  Json json = {{"task", name_of(settings.task)}, {"attention_only", settings.attention_only}};
  for (const IntegerSetting& one : kIntegers) json[one.name] = settings.*one.value;
  for (const RealSetting& one : kReals) json[one.name] = settings.*one.value;
  return json;
}

TrainSettings settings_from(const Json& json, const std::string& path) {
  const auto fail = [&](const auto&... what) { detail::refuse(ErrorCode::io, path, ": ", what...); };
  if (!json.is_object()) fail("its settings are not a JSON object");
  const auto member = [&](const char* name) -> const Json& {
    if (!json.contains(name)) fail("its settings have no '", name, "'");
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
    // Compared as a double first, because that works for a number of any size.
    if (!value.is_number_integer() || value.get<double>() < static_cast<double>(one.least) ||
        value.get<double>() > static_cast<double>(one.most))
      fail("its '", one.name, "' is not a ", range_text(one));
    settings.*one.value = value.get<std::int64_t>();
  }
  for (const RealSetting& one : kReals) {
    const Json& value = member(one.name);
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    if (!fits(one, number)) fail("its '", one.name, "' is not a ", range_text(one));
    settings.*one.value = number;
  }
  if (settings.model_dim % settings.heads != 0)
    detail::refuse(ErrorCode::io, path, " has a model_dim that is not a multiple of its heads");
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

}  // namespace detail
}  // namespace heed
