#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "core/message.hpp"
#include "heed/error.hpp"
#include "heed/io/tensors.hpp"
#include "heed/nn/trained_model.hpp"
#include "io/gpt2_keys.hpp"
#include "io/json_file.hpp"
#include "io/trained_tokenizer.hpp"
#include "train/gpt2.hpp"
#include "train/settings.hpp"

namespace heed {
namespace detail {
namespace {

namespace fs = std::filesystem;
using io::detail::json_in;
using Json = nlohmann::ordered_json;

constexpr const char* kModelFormat = "heed model 2";
// MiB of a configuration, and how many values it holds. Its list of losses grows with the logarithm of the
// steps.
constexpr std::uintmax_t kConfigMiB = 1;
constexpr JsonLimits kConfig = {.values = 10'000};

// The part of a configuration that heed wrote. `path` is the file's.
const Json& own_part(const Json& config, const std::string& path) {
  const auto fail = [&](const auto&... what) { detail::refuse(ErrorCode::io, path, " ", what...); };
  if (config.is_object() && config.contains("format") && config["format"] == "heed model 1")
    fail("was written by an earlier heed; heed train --resume rewrites the folder from its checkpoint");
  const bool own = config.is_object() && config.contains("heed") && config["heed"].is_object();
  if (!own && config.is_object() && config.contains("model_type"))
    fail("describes a model that heed train did not make");
  if (!own || !config["heed"].contains("format") || config["heed"]["format"] != kModelFormat ||
      !config["heed"].contains("settings"))
    fail("is not the configuration of a model from heed train: its format is not '", kModelFormat, "'");
  return config["heed"];
}

// Other programs read the folder as a GPT-2: each key that decides a GPT-2's numbers must say what heed's
// settings say.
void require_same_sizes(const Json& config, const nn::LanguageModelConfig& sizes, const std::string& path) {
  Json expected = parsed_in_order(kGpt2Keys);
  expected.update(parsed_in_order(kGpt2OnlyKeys));
  Json found = expected;
  const Json given = gpt2_config(sizes), renamed = parsed_in_order(kGpt2Renamed);
  for (const auto& [name, value] : given.items())
    if (expected.contains(name)) expected[name] = value;
  for (const auto& [name, value] : config.items())
    if (found.contains(name)) found[name] = value;
  for (const auto& [name, own] : renamed.items())  // they win, as in transformers
    if (config.contains(name)) found[own.get<std::string>()] = config[name];
  for (const auto& [name, value] : expected.items())
    if (found[name] != value)
      detail::refuse(ErrorCode::io, path, " has ", name, " ",
                     config.contains(name) ? found[name].dump() : "missing",
                     "; its settings and vocabulary.json give ", value.dump());
}

Json losses_json(const LossMarks& losses) {
  Json list = Json::array();
  for (const auto& [step, loss] : losses) list.push_back({{"step", step}, {"loss", loss}});
  return list;
}

// The tokenizer.json of characters, for PyPI's tokenizers. Each code point is a word. The word for others is
// not among the words, so that they are refused.
std::string tokenizers_json(const Vocabulary& characters) {
  using Sorted = nlohmann::json;  // an ordered_json of a million members takes hours
  Sorted words = Sorted::object();
  for (const std::string& character : characters.words())
    words.emplace(character, static_cast<std::int64_t>(words.size()));
  const Sorted json = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", Sorted::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer",
       {{"type", "Split"},
        {"pattern", {{"Regex", "[\\s\\S]"}}},
        {"behavior", "Isolated"},
        {"invert", false}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "Fuse"}}},
      {"model", {{"type", "WordLevel"}, {"vocab", std::move(words)}, {"unk_token", "<unknown>"}}}};
  return json.dump();
}

void write_tokenizers(const std::string& folder, const TrainedTokenizer& tokenizer, std::int64_t context) {
  const Json vocabulary = tokenizer.is_symbols() ? Json{{"symbols", tokenizer.size()}}
                                                 : Json{{"characters", tokenizer.characters().words()}};
  io::write_text(folder + "/vocabulary.json", vocabulary.dump() + "\n");
  if (tokenizer.is_symbols()) return;
  io::write_text(folder + "/tokenizer.json", tokenizers_json(tokenizer.characters()) + "\n");
  const Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                       {"clean_up_tokenization_spaces", false},
                       {"model_max_length", context}};
  io::write_text(folder + "/tokenizer_config.json", config.dump(2) + "\n");
}

}  // namespace

bool holds_other_model(const std::string& folder) {
  std::error_code error;
  const std::string config = folder + "/config.json";
  if (!fs::exists(config, error)) return fs::exists(folder + "/model.safetensors", error);
  try {
    const Json found = parsed_in_order(json_in(config, kConfigMiB, kConfig));
    return !found.contains("heed") && found.value("format", "") != "heed model 1";
  } catch (const std::exception&) {
    return true;  // heed writes none that cannot be read
  }
}
}  // namespace detail

TrainedModel load_trained_model(const std::string& name) {
  using namespace detail;
  std::error_code error;
  const std::string folder = model_folder(name);
  if (!fs::is_directory(folder, error))
    detail::refuse(ErrorCode::io, folder,
                   " is not a folder; the folder of a model from heed train is expected");
  const std::string config_path = folder + "/config.json";
  const Json config = parsed_in_order(json_in(config_path, kConfigMiB, kConfig));
  const TrainSettings settings = settings_from(own_part(config, config_path)["settings"], config_path);
  TrainedTokenizer tokenizer = tokenizer_in(folder);
  const nn::LanguageModelConfig sizes = model_config(settings, tokenizer.size());
  require_same_sizes(config, sizes, config_path);
  nn::LanguageModel model = read_gpt2_tensors(folder + "/model.safetensors", sizes);
  return {settings, std::move(tokenizer), std::move(model)};
}

void save_model(const std::string& folder, TrainedModel& trained, const LossMarks& losses) {
  using namespace detail;
  Json config = {{"architectures", {"GPT2LMHeadModel"}}};
  config.update(gpt2_config(trained.model.config));
  // No token begins or ends a text, and training had no dropout.
  config.update({{"bos_token_id", nullptr},
                 {"eos_token_id", nullptr},
                 {"embd_pdrop", 0.0},
                 {"attn_pdrop", 0.0},
                 {"resid_pdrop", 0.0},
                 {"dtype", "float32"}});
  config["heed"] = {{"format", kModelFormat},
                    {"parameters", nn::parameter_count(trained.model.config)},
                    {"settings", settings_json(trained.settings)},
                    {"losses", losses_json(losses)}};
  write_tokenizers(folder, trained.tokenizer, trained.model.config.context);
  write_gpt2_tensors(folder + "/model.safetensors", trained.model);
  io::write_text(folder + "/config.json", config.dump(2) + "\n");
}

}  // namespace heed
