// The state of a training in one safetensors file. Its tensors are the parameters under their names, the
// optimiser's moments "adamw.NAME.m" and "adamw.NAME.v", "generator", "losses" [marks, 2] and "progress". Its
// metadata are format, settings and state (JSON).
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/message.hpp"
#include "heed/error.hpp"
#include "heed/io/tensors.hpp"
#include "heed/nn/train.hpp"
#include "io/json_text.hpp"
#include "train/data.hpp"
#include "train/gpt2.hpp"
#include "train/settings.hpp"

namespace heed {
namespace detail {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kCheckpointFormat = "heed checkpoint 1";

bool all_finite(const Tensor& tensor) {
  const auto values = tensor.values<float>();
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

bool has_negative(const Tensor& tensor) {
  const auto values = tensor.values<float>();
  return std::any_of(values.begin(), values.end(), [](float value) { return value < 0; });
}

bool is_loss(double value) { return value >= 0 && std::isfinite(value); }

class CheckpointReader {
 public:
  explicit CheckpointReader(const std::string& path) : path_(path), file_(path) {
    if (text("format") != kCheckpointFormat)
      fail("is not a checkpoint: the format in its metadata is not '", kCheckpointFormat, "'");
  }

  [[nodiscard]] TrainSettings settings() const { return settings_from(json("settings"), path_); }

  [[nodiscard]] TrainState read(const TrainData& data) const {
    const TrainSettings settings = this->settings();
    const Json state = json("state");
    if (!state.is_object() || !state.contains("text") || !state["text"].is_string())
      fail("has a state without the name of its text");
    if (state["text"].get<std::string>() != data.fingerprint)
      detail::refuse("the text (", data.fingerprint, ") is not the text that ", path_, " was made with (",
                     state["text"].get<std::string>(), ")");
    require_enough(data, settings);
    // Checks the sizes against the file before memory is allocated for them.
    const nn::LanguageModelConfig config = model_config(settings, data.tokenizer.size());
    require_numbers(path_, config);
    Generator unused;
    nn::LanguageModel model(config, unused);
    nn::load_parameters(path_, model.parameters());
    for (const nn::NamedParameter& one : model.parameters()) require_finite(one.name, *one.value);
    nn::AdamW optimizer(model.parameters(), {.weight_decay = settings.weight_decay});
    for (const nn::NamedParameter& moment : optimizer.state()) {
      Tensor value = tensor("adamw." + moment.name, DType::f32);
      if (value.shape() != moment.value->shape())
        fail("has a tensor adamw.", moment.name, " of another shape");
      require_finite("adamw." + moment.name, value);
      if (moment.name.ends_with(".v") && has_negative(value))
        fail("has a tensor adamw.", moment.name, " with a number below 0; squares have a mean of at least 0");
      *moment.value = std::move(value);
    }
    nn::LanguageModel gradients = zeros_like(model);
    TrainState result{{settings, data.tokenizer, std::move(model)},
                      data.fingerprint,
                      generator(),
                      std::move(optimizer),
                      std::move(gradients)};
    read_progress(state, result);
    return result;
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... what) const {
    detail::refuse(ErrorCode::io, path_, " ", what...);
  }

  [[nodiscard]] std::string text(const std::string& name) const {
    const auto found = file_.metadata().find(name);
    return found == file_.metadata().end() ? "" : found->second;
  }

  [[nodiscard]] Json json(const char* name) const {
    std::optional<Json> value = json_of(text(name));
    if (!value) fail("has metadata '", name, "' that is not JSON");
    return std::move(*value);
  }

  [[nodiscard]] Tensor tensor(const std::string& name, DType dtype) const {
    if (!file_.contains(name) || file_.dtype(name) != dtype) fail("has no tensor ", name, " of ", dtype);
    return file_.read(name);
  }

  void require_finite(const std::string& name, const Tensor& tensor) const {
    if (!all_finite(tensor)) fail("has a tensor ", name, " that is not of finite numbers");
  }

  [[nodiscard]] Generator generator() const {
    Generator generator;
    const Tensor state = tensor("generator", DType::i64);
    try {
      generator.set_state(state);
    } catch (const Error& error) {
      fail("has an invalid generator: ", error.what());
    }
    return generator;
  }

  void read_progress(const Json& state, TrainState& to) const {
    const Tensor numbers = tensor("progress", DType::f64);
    const Tensor losses = tensor("losses", DType::f64);
    if (!state.contains("step") || !state["step"].is_number_integer() || numbers.shape() != Dims{2} ||
        losses.rank() != 2 || losses.size(1) != 2)
      fail("has an inconsistent state");
    const double step = state["step"].get<double>();
    if (step < 0 || step > static_cast<double>(to.trained.settings.steps))
      fail("has a step that is out of range");
    to.step = to.optimizer.steps = state["step"].get<std::int64_t>();
    to.smooth_loss = numbers.at<double>(0);
    to.sum_since_mark = numbers.at<double>(1);
    if (!is_loss(to.smooth_loss) || !is_loss(to.sum_since_mark))
      fail("has progress that is not finite numbers of at least 0");
    double last = 0;
    for (std::int64_t i = 0; i < losses.size(0); ++i) {
      const double marked = losses.at<double>(i, 0);
      if (!(marked > last && marked <= step) || marked != std::floor(marked))
        fail("has losses that are not in order");
      if (!is_loss(losses.at<double>(i, 1))) fail("has losses that are not finite numbers of at least 0");
      last = marked;
      to.marks.emplace_back(static_cast<std::int64_t>(marked), losses.at<double>(i, 1));
    }
  }

  std::string path_;
  io::SafetensorsReader file_;
};

}  // namespace
}  // namespace detail

void save_checkpoint(const std::string& path, TrainState& state) {
  using namespace detail;
  std::vector<std::pair<std::string, TensorView>> tensors;
  for (const nn::NamedParameter& parameter : state.trained.model.parameters()) {
    if (!all_finite(*parameter.value))
      detail::refuse(ErrorCode::internal, "the parameters are not numbers after step ", state.step);
    tensors.emplace_back(parameter.name, parameter.value->view());
  }
  for (const nn::NamedParameter& moment : state.optimizer.state())
    tensors.emplace_back("adamw." + moment.name, moment.value->view());
  const Tensor generator = state.generator.state();
  const Tensor progress = Tensor::from<double>({state.smooth_loss, state.sum_since_mark}, {2});
  Tensor losses({static_cast<std::int64_t>(state.marks.size()), 2}, DType::f64);
  for (std::size_t i = 0; i < state.marks.size(); ++i) {
    losses.values<double>()[2 * i] = static_cast<double>(state.marks[i].first);
    losses.values<double>()[2 * i + 1] = state.marks[i].second;
  }
  tensors.emplace_back("generator", generator);
  tensors.emplace_back("progress", progress);
  tensors.emplace_back("losses", losses);
  io::write_safetensors(path, tensors,
                        {{"format", kCheckpointFormat},
                         {"settings", settings_json(state.trained.settings).dump()},
                         {"state", Json{{"step", state.step}, {"text", state.fingerprint}}.dump()}});
}

TrainSettings read_checkpoint_settings(const std::string& path) {
  return detail::CheckpointReader(path).settings();
}

TrainState read_checkpoint(const std::string& path, const TrainData& data) {
  return detail::CheckpointReader(path).read(data);
}

}  // namespace heed
