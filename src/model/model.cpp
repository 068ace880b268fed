// A model's folder, or its GGUF file.
#include "heed/model/model.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "core/message.hpp"
#include "heed/error.hpp"
#include "io/fault.hpp"
#include "io/json_text.hpp"
#include "io/model_folder.hpp"
#include "io/trained_tokenizer.hpp"
#include "model/gguf/gguf_file.hpp"
#include "model/gguf/gguf_model.hpp"
#include "model/parts.hpp"
#include "text/vocabulary_files.hpp"

namespace heed {
namespace {

// Characters and words are shown as they stand in the text.
ModelTokens own_tokens(const TrainedTokenizer& tokenizer, std::string_view text, const std::string& source) {
  ModelTokens made;
  made.shown = tokenizer.tokens_of(text, source);
  if (made.shown.empty()) detail::refuse(source, " has no tokens; at least one is expected");
  const Tensor ids = tokenizer.encode(made.shown, source);
  made.ids.assign(ids.values<std::int64_t>().begin(), ids.values<std::int64_t>().end());
  std::size_t at = 0;
  for (std::size_t i = 0; i < made.ids.size(); ++i) {
    const std::size_t begin = text.find(made.shown[i], at);
    at = begin + made.shown[i].size();
    made.places.push_back({made.ids[i], begin, at, false});
  }
  return made;
}

TrainedTokenizer own_tokenizer_in(const std::string& folder, const ModelInfo& info) {
  TrainedTokenizer tokenizer = detail::tokenizer_in(folder);
  if (tokenizer.size() != info.vocabulary)
    detail::refuse(ErrorCode::io, folder, "/vocabulary.json has ", detail::counted(tokenizer.size(), "token"),
                   "; config.json says ", info.vocabulary);
  return tokenizer;
}

// A text may begin with any character.
void set_own_tokenizer(TrainedTokenizer tokenizer, detail::ModelParts& parts) {
  parts.info.symbols = tokenizer.is_symbols();
  if (!parts.info.symbols) parts.info.begin_token = 0;
  parts.own_tokenizer = std::move(tokenizer);
}

void set_tokenizer(detail::FolderTokenizer found, detail::ModelParts& parts) {
  parts.tokenizer = std::move(found.tokenizer);
  parts.lack = std::move(found.lack);
  parts.chat = std::move(found.chat);
}

// The configured tokens that the model has: tiny models keep the token ids of large ones.
std::vector<std::int64_t> tokens_in(const detail::ModelConfig& config, const char* name,
                                    const ModelInfo& info) {
  std::vector<std::int64_t> all = config.integers(name);
  std::erase_if(all, [&](std::int64_t id) { return id < 0 || id >= info.vocabulary; });
  return all;
}

// Settings that change the generated text, with the values that do not. Temperature, top_k and top_p are
// options of heed.
constexpr const char* kNeutral = R"({"no_repeat_ngram_size": 0, "encoder_repetition_penalty": 1,
    "encoder_no_repeat_ngram_size": 0, "bad_words_ids": [], "suppress_tokens": [], "begin_suppress_tokens": [],
    "forced_bos_token_id": null, "forced_eos_token_id": null,
    "forced_decoder_ids": [], "exponential_decay_length_penalty": null, "sequence_bias": null,
    "guidance_scale": 1, "num_beams": 1, "constraints": null, "force_words_ids": null, "penalty_alpha": 0,
    "dola_layers": null, "stop_strings": [], "token_healing": false, "watermarking_config": null})";
// Settings that change it if tokens are sampled. The last two are of GGUF.
constexpr const char* kNeutralIfSampled = R"({"min_p": 0, "typical_p": 1.0, "epsilon_cutoff": 0,
    "eta_cutoff": 0, "top_h": null, "xtc_probability": 0, "mirostat": 0})";

void read_generation(const detail::ModelConfig& settings, detail::ModelParts& parts) {
  const std::string file = io::detail::subject_of(settings.path());
  const nlohmann::ordered_json& values = settings.json();
  if (settings.has("repetition_penalty")) {
    const auto& given = values["repetition_penalty"];
    const double penalty = given.is_number() ? given.get<double>() : 0;
    parts.repetition_penalty = penalty;
    if (!(penalty >= std::numeric_limits<float>::min() && penalty <= std::numeric_limits<float>::max()))
      parts.no_generation =
          file + " has repetition_penalty " + detail::shown(given) + "; a number of f32 above 0 is expected";
  }
  try {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    if (settings.has("min_length")) parts.min_length = settings.integer("min_length", 0, kMost);
    if (settings.has("min_new_tokens")) parts.min_new_tokens = settings.integer("min_new_tokens", 0, kMost);
  } catch (const Error& error) {
    parts.no_generation = error.what();
  }
  const auto refuse_others = [&](const char* neutral, const char* also, std::string& refusal) {
    const auto expected = detail::parsed_in_order(neutral);
    for (const auto& [name, value] : expected.items())
      if (settings.has(name.c_str()) && values[name] != value)
        refusal = file + " has " + name + " " + detail::shown(values[name]) + ", which heed cannot apply; " +
                  value.dump() + also + " is expected";
  };
  refuse_others(kNeutral, "", parts.no_generation);
  refuse_others(kNeutralIfSampled, ", or temperature 0,", parts.no_sampling);
}

// generation_config.json takes precedence over config.json.
void read_generation_config(const std::string& folder, const detail::ModelConfig& config,
                            detail::ModelParts& parts) {
  ModelInfo& info = parts.info;
  const std::string path = folder + "/generation_config.json";
  std::error_code error;
  std::optional<detail::ModelConfig> own;
  if (std::filesystem::exists(path, error)) own.emplace(path);
  const auto tokens = [&](const char* name) {
    return tokens_in(own && own->has(name) ? *own : config, name, info);
  };
  info.end_tokens = tokens("eos_token_id");
  if (const auto begin = tokens("bos_token_id"); !begin.empty()) info.begin_token = begin.front();
  read_generation(own ? *own : config, parts);
}

void note_unknown(const std::string& path, const std::vector<std::string>& names, ModelInfo& info) {
  if (names.empty()) return;
  constexpr std::size_t kMax = 8;
  std::string note = io::detail::subject_of(path) + " has ";
  for (std::size_t i = 0; i < std::min(names.size(), kMax); ++i)
    note += (i > 0 ? ", " : "") + io::detail::printable(names[i]);
  if (names.size() > kMax) note += " and " + std::to_string(names.size() - kMax) + " more";
  info.notes.push_back(note + ", which heed does not know and ignores");
}

// Makes the family's model, with the weights that `open` returns.
template <class Open>
std::unique_ptr<detail::ModelParts> parts_of(const detail::ModelConfig& file, const ModelOptions& options,
                                             const Open& open) {
  const detail::FamilyEntry& entry = detail::family_of(file);
  std::vector<std::string> unknown;
  const detail::ModelConfig config = detail::with_defaults(file, entry.keys, unknown);
  auto parts = std::make_unique<detail::ModelParts>();
  parts->info.family = entry.model_type;
  parts->info.fast = options.fast;
  note_unknown(file.path(), unknown, parts->info);
  parts->weights = open();
  parts->weights->set_fast(options.fast);
  parts->family = entry.make(config, *parts->weights, parts->info);
  parts->weights->require_all_taken();
  parts->info.parameters = parts->weights->numbers();
  return parts;
}

Model model_in_gguf(const std::string& path, const ModelOptions& options) {
  const std::vector<io::detail::GgufFile> files = detail::open_gguf(path);
  const nlohmann::ordered_json values = detail::gguf_config(files);
  const detail::ModelConfig config(values, path);
  auto parts = parts_of(config, options, [&] { return detail::gguf_weights(files, values); });
  note_unknown(path, detail::unknown_in_gguf(files.front()), parts->info);
  set_tokenizer(detail::gguf_tokenizer(files.front(), path), *parts);
  parts->info.end_tokens = tokens_in(config, "eos_token_id", parts->info);
  if (const auto begin = tokens_in(config, "bos_token_id", parts->info); !begin.empty())
    parts->info.begin_token = begin.front();
  read_generation(config, *parts);
  return Model(std::move(parts));
}

}  // namespace

Model::Model(std::unique_ptr<const detail::ModelParts> parts) : parts_(std::move(parts)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

const ModelInfo& Model::info() const noexcept { return parts_->info; }

const Tokenizer* Model::tokenizer() const noexcept {
  return parts_->tokenizer ? &*parts_->tokenizer : nullptr;
}

ModelTokens Model::tokenize(std::string_view text, const std::string& source, bool add_special) const {
  if (parts_->own_tokenizer) return own_tokens(*parts_->own_tokenizer, text, source);
  if (!parts_->tokenizer)
    detail::refuse("the model ", parts_->lack, ", so ", source, " cannot be split into tokens");
  ModelTokens made;
  try {
    made.places = parts_->tokenizer->encode(text, add_special);
  } catch (const Error& error) {
    detail::refuse(error.code(), source, ": ", error.what());
  }
  if (made.places.empty()) detail::refuse(source, " has no tokens; at least one is expected");
  for (const TextToken& token : made.places) made.ids.push_back(token.id);
  made.shown = parts_->tokenizer->shown(made.ids);
  // A tokenizer may have more tokens than the embedding has rows: Gemma 3's has one for images.
  for (std::size_t i = 0; i < made.ids.size(); ++i)
    if (made.ids[i] >= info().vocabulary)
      detail::refuse(source, " has the token '", made.shown[i], "' with id ", made.ids[i], "; the model has ",
                     detail::counted(info().vocabulary, "token"));
  return made;
}

std::string Model::text_of(std::int64_t id, const ModelTokens& beside) const {
  detail::check_range("id", id, 0, info().vocabulary - 1);
  if (parts_->own_tokenizer) return parts_->own_tokenizer->text_of(id, beside.shown);
  if (parts_->tokenizer && parts_->tokenizer->token(id)) return parts_->tokenizer->shown({&id, 1}).front();
  std::string number = std::to_string(id);
  return number.insert(0, 1, '#');
}

Model load_model(const std::string& name, const ModelOptions& options) {
  namespace fs = std::filesystem;
  std::error_code error;
  const std::string folder = model_folder(name);
  if (folder.ends_with(".gguf") && !fs::is_directory(folder, error)) return model_in_gguf(folder, options);
  if (!fs::is_directory(folder, error)) detail::fail_without_folder(folder);
  const detail::ModelConfig config(folder + "/config.json");
  if (config.has("format") && !config.has("model_type"))
    config.fail(
        "was written by an earlier heed; heed train --resume rewrites the folder from its checkpoint");
  auto parts = parts_of(config, options, [&] { return detail::Weights::open(folder); });
  read_generation_config(folder, config, *parts);
  if (config.has("heed") && fs::exists(folder + "/vocabulary.json", error)) {
    set_own_tokenizer(own_tokenizer_in(folder, parts->info), *parts);
    return Model(std::move(parts));
  }
  const std::string tokenizer_class = config.has("tokenizer_class") ? config.text("tokenizer_class") : "";
  set_tokenizer(detail::tokenizer_in_folder(folder, parts->info.family, tokenizer_class), *parts);
  return Model(std::move(parts));
}

}  // namespace heed
