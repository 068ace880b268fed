#include "model/folder.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "heed/error.hpp"
#include "heed/io.hpp"
#include "io/json_text.hpp"
#include "model/settings.hpp"

namespace heed {
namespace detail {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kModelFormat = "heed model 1";
// MiB of a configuration, whose list of losses grows with the logarithm of the steps, and of a vocabulary: a
// million characters, escaped in up to 15 bytes. And what a configuration holds; the vocabulary's own reader
// counts.
constexpr const char* kOfTransformers =
    "; a model of transformers is looked at from Python, by heed.transformers.look(model, tokenizer, text)";
constexpr std::uintmax_t kMostConfig = 1, kMostVocabulary = 16;
constexpr JsonLimits kConfig = {.values = 10'000};
constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();
constexpr JsonLimits kVocabulary = {.members = kAny, .values = kAny};

std::string bytes_in(const std::string& path, std::uintmax_t most) {
  std::error_code error;
  if (fs::is_directory(path, error)) throw Error(ErrorCode::io, path + " is a folder; a file is expected");
  // A pipe may wait for ever, and a device have no end.
  if (fs::exists(path, error) && !fs::is_regular_file(path, error))
    throw Error(ErrorCode::io, path + " is not a regular file");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(ErrorCode::io, path + " could not be opened: " + std::strerror(errno));
  const std::uintmax_t size = fs::file_size(path, error);
  if (error) throw Error(ErrorCode::io, path + " could not be read");
  if (size > most << 20)
    throw Error(ErrorCode::io, path + " is larger than " + std::to_string(most) + " MiB");
  std::string bytes(size, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(size));
  if (file.gcount() != static_cast<std::streamsize>(size))
    throw Error(ErrorCode::io, path + " could not be read");
  return bytes;
}

// Text that can be made into values without taking many times the file's size.
std::string json_in(const std::string& path, std::uintmax_t most, const JsonLimits& limits) {
  std::string text = bytes_in(path, most);
  const auto fail = [&](const std::string& what) { throw Error(ErrorCode::io, path + " " + what); };
  const std::string taken = ", which is the most that is taken";
  switch (fault_in_json(text, limits)) {
    case JsonFault::none:
      break;
    case JsonFault::malformed:
      fail("is not JSON");
      break;
    case JsonFault::deep:
      fail("nests values more than " + std::to_string(limits.depth) + " deep; no model does");
      break;
    case JsonFault::wide:
      fail("has an object of more than " + std::to_string(limits.members) + " members" + taken);
      break;
    case JsonFault::many:
      fail("has more than " + std::to_string(limits.values) + " values" + taken);
      break;
    case JsonFault::long_word:
      fail("has a string, a number or a gap of more than " + std::to_string(kLongestJsonWord) + " bytes" +
           taken);
      break;
  }
  return text;
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

}  // namespace detail

TrainedModel load_model(const std::string& folder) {
  using namespace detail;
  std::error_code error;
  if (!fs::is_directory(folder, error))
    throw Error(ErrorCode::io, folder + " is no folder; that of a model trained by heed train is expected" +
                                   kOfTransformers);
  const std::string config_path = folder + "/config.json";
  const Json config = Json::parse(json_in(config_path, kMostConfig, kConfig));
  if (config.is_object() && (config.contains("architectures") || config.contains("model_type")))
    throw Error(ErrorCode::io, folder + " holds a model that heed train did not make" + kOfTransformers);
  if (!config.is_object() || !config.contains("format") || config["format"] != kModelFormat ||
      !config.contains("settings"))
    throw Error(ErrorCode::io, config_path + " is no configuration of a model: its format is not '" +
                                   std::string(kModelFormat) + "'");
  const TrainSettings settings = settings_from(config["settings"], config_path);
  const std::string words_path = folder + "/vocabulary.json";
  Tokenizer tokenizer = tokenizer_from_json(json_in(words_path, kMostVocabulary, kVocabulary), words_path);
  nn::LanguageModel model =
      read_parameters(folder + "/model.safetensors", model_config(settings, tokenizer.size()));
  return {settings, std::move(tokenizer), std::move(model)};
}

void save_model(const std::string& folder, TrainedModel& trained, const LossMarks& losses) {
  using namespace detail;
  Json config = {{"format", kModelFormat},
                 {"parameters", nn::parameter_count(trained.model.config)},
                 {"settings", settings_json(trained.settings)},
                 {"losses", Json::array()}};
  for (const auto& [step, loss] : losses) config["losses"].push_back({{"step", step}, {"loss", loss}});
  const Tokenizer& tokenizer = trained.tokenizer;
  const Json vocabulary = tokenizer.is_symbols() ? Json{{"symbols", tokenizer.size()}}
                                                 : Json{{"characters", tokenizer.characters().words()}};
  io::write_text(folder + "/vocabulary.json", vocabulary.dump() + "\n");
  nn::save_parameters(folder + "/model.safetensors", trained.model.parameters());
  io::write_text(folder + "/config.json", config.dump(2) + "\n");
}

}  // namespace heed
