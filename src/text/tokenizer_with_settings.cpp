#include "text/tokenizer_with_settings.hpp"

#include <algorithm>
#include <utility>

#include "io/fault.hpp"
#include "text/settings_tokens.hpp"
#include "text/tokenizer_class.hpp"
#include "text/tokenizer_json.hpp"

namespace heed::detail {
namespace {

using io::detail::printable;
using nlohmann::json;

FolderTokenizer none(const std::string& what) {
  return {std::nullopt, "has a tokenizer_config.json " + what + ", which heed does not know"};
}

bool is_given(const JsonPart& settings, const char* name) {
  if (!settings.has(name)) return false;
  const json& value = settings.at(name);
  return value.is_boolean() ? value.get<bool>() : !value.is_array() || !value.empty();
}

// The name of a setting that needs a tokenizer outside tokenizer.json, or one that heed lacks; nullptr: none.
const char* unknown_setting(const JsonPart& settings) {
  const bool is_map = settings.has("auto_map") && settings.at("auto_map").is_object();
  if (is_map ? settings.at("auto_map").contains("AutoTokenizer") : settings.has("auto_map"))
    return "auto_map";
  for (const char* name :
       {"fast_tokenizer_files", "fix_mistral_regex", "init_inputs", "split_special_tokens"})
    if (is_given(settings, name)) return name;
  return nullptr;
}

// Old files lack the type: only BPE has merges, and only Unigram a list of tokens.
std::string model_type(const JsonPart& model) {
  if (!model.type().empty()) return model.type();
  if (model.has("merges")) return "BPE";
  return model.at("vocab").is_array() ? "Unigram" : "WordPiece";
}

// The parts that a class keeps: vocabulary, merges and post-processor.
json kept_by_class(json& values) {
  json made;
  for (const char* name : {"vocab", "merges"})
    if (values["model"].contains(name)) made["model"][name] = std::move(values["model"][name]);
  if (values.contains("post_processor")) made["post_processor"] = std::move(values["post_processor"]);
  return made;
}

}  // namespace

FolderTokenizer tokenizer_with_settings(const std::string& folder, const std::string& family,
                                        const std::string& config_class) {
  const std::string path = folder + "/tokenizer.json", subject = io::detail::subject_of(path);
  if (!is_there(folder + "/tokenizer_config.json")) return {Tokenizer::from_file(path), ""};
  const FolderSettings settings(folder, "tokenizer_config.json");
  if (const char* name = unknown_setting(settings.part())) return none("with " + std::string(name));

  const std::string text = TokenizerJson::bytes(path);
  json values = TokenizerJson::values(text, subject);
  const bool is_byte_level = text.find("\"ByteLevel\"") != text.npos;
  const ChosenClass chosen =
      auto_class(family, settings.part().text("tokenizer_class", ""), config_class, is_byte_level);
  if (!chosen.unknown.empty()) return none("of " + printable(chosen.unknown));
  const JsonPart file(values, subject, "a value");
  const JsonPart model(file.at("model"), subject, "a model");
  const TokenizerClass* rules = chosen.rules;
  if (rules != nullptr && model_type(model) != rules->model)
    return {std::nullopt, "has a tokenizer.json of " + printable(model_type(model)) +
                              " and a tokenizer_config.json of " + std::string(rules->name) +
                              ", which is for " + std::string(rules->model)};
  const json no_special;
  const SettingsTokens tokens({.folder = folder,
                               .config = settings,
                               .vocabulary = model.at("vocab"),
                               .special = rules == nullptr ? no_special : rules->special,
                               .file = &file,
                               .keeps_file = rules == nullptr});
  if (const auto& found = tokens.contradiction()) return {std::nullopt, found->what};
  const json normalizer = values.value("normalizer", json());
  json made = rules == nullptr ? std::move(values) : kept_by_class(values);
  made["added_tokens"] = tokens.list();
  if (rules != nullptr) rules->complete({settings.part(), tokens, normalizer}, made);
  return {TokenizerJson::tokenizer(made, subject), "", chat_settings_in(folder, settings, tokens)};
}

}  // namespace heed::detail
