#include "model/folder.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "heed/error.hpp"

namespace heed::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "heed model 1";
// MiB of a configuration, whose list of losses grows with the logarithm of the steps, and of a vocabulary: a
// million characters, escaped in up to 15 bytes. And how deep either nests.
constexpr std::uintmax_t kMostConfig = 1, kMostVocabulary = 16;
constexpr int kDeepest = 8;

// What is in the file takes some thirty times its memory; nested brackets would take more.
Json read_json(const std::string& path, std::uintmax_t most) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(ErrorCode::io, path + " could not be opened: " + std::strerror(errno));
  std::error_code error;
  if (fs::is_directory(path, error)) throw Error(ErrorCode::io, path + " is a folder; a file is expected");
  if (fs::file_size(path, error) > most << 20 && !error)
    throw Error(ErrorCode::io, path + " is larger than " + std::to_string(most) + " MiB");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) throw Error(ErrorCode::io, path + " could not be read");
  bool is_deep = false;
  const auto is_shallow = [&](int depth, Json::parse_event_t, const Json&) {
    is_deep |= depth > kDeepest;
    return !is_deep;
  };
  Json json = Json::parse(text, is_shallow, false);
  if (is_deep)
    throw Error(ErrorCode::io,
                path + " nests values more than " + std::to_string(kDeepest) + " deep; no model does");
  if (json.is_discarded()) throw Error(ErrorCode::io, path + " is not JSON");
  return json;
}

std::int64_t numbers_in(const io::SafetensorsReader& file) {
  std::int64_t numbers = 0;
  // The reader has checked that the shapes fill the file, so that the sum cannot overflow.
  for (const std::string& name : file.names()) {
    try {
      numbers += element_count(file.shape(name));
    } catch (const Error&) {  // a type or rank that heed has no tensors for
      continue;
    }
  }
  return numbers;
}

}  // namespace

nn::LanguageModel read_parameters(const std::string& path, const nn::LanguageModelConfig& config) {
  const std::int64_t wanted = nn::parameter_count(config);
  if (const std::int64_t there = numbers_in(io::SafetensorsReader(path)); there < wanted)
    throw Error(ErrorCode::io, path + " holds " + std::to_string(there) +
                                   " numbers; a model of these sizes has " + std::to_string(wanted));
  Generator generator;
  nn::LanguageModel model(config, generator);
  nn::load_parameters(path, model.parameters());
  return model;
}

TrainedModel read_model_folder(const std::string& name) {
  const std::string folder = name == "induction" ? bundled_model(name) : name;
  std::error_code error;
  if (!fs::is_directory(folder, error))
    throw Error(ErrorCode::io, folder + " is no folder; that of a model trained by heed train is expected");
  const std::string config_path = folder + "/config.json";
  const Json config = read_json(config_path, kMostConfig);
  if (!config.is_object() || !config.contains("format") || config["format"] != kFormat ||
      !config.contains("settings"))
    throw Error(ErrorCode::io, config_path + " is no configuration of a model: its format is not '" +
                                   std::string(kFormat) + "'");
  const TrainSettings settings = settings_from(config["settings"], config_path);
  const std::string words_path = folder + "/vocabulary.json";
  ModelVocabulary vocabulary = ModelVocabulary::from_json(read_json(words_path, kMostVocabulary), words_path);
  if (settings.model_dim % settings.heads != 0)
    throw Error(ErrorCode::io, config_path + " has a model_dim that is no multiple of its heads");
  nn::LanguageModel model =
      read_parameters(folder + "/model.safetensors", model_config(settings, vocabulary.size()));
  return {settings, std::move(vocabulary), std::move(model)};
}

void write_model_folder(const std::string& folder, const TrainSettings& settings,
                        const ModelVocabulary& vocabulary, nn::LanguageModel& model,
                        const LossMarks& losses) {
  Json config = {{"format", kFormat},
                 {"parameters", nn::parameter_count(model.config)},
                 {"settings", settings_json(settings)},
                 {"losses", Json::array()}};
  for (const auto& [step, loss] : losses) config["losses"].push_back({{"step", step}, {"loss", loss}});
  io::write_text(folder + "/vocabulary.json", vocabulary.to_json().dump() + "\n");
  nn::save_parameters(folder + "/model.safetensors", model.parameters());
  io::write_text(folder + "/config.json", config.dump(2) + "\n");
}

std::string bundled_model(const std::string& name) {
  std::error_code error;
  const fs::path command = fs::read_symlink("/proc/self/exe", error);
  return (command.parent_path() / HEED_MODELS_FROM_COMMAND / name).lexically_normal().string();
}

}  // namespace heed::cli
