// Converts vocab.txt, or vocab.json and merges.txt, to the tokenizer.json that transformers makes of them.
#include "text/vocabulary_files.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/utf8.hpp"
#include "io/fault.hpp"
#include "io/json_file.hpp"
#include "text/folder_settings.hpp"
#include "text/models/token_model.hpp"
#include "text/models/token_table.hpp"
#include "text/settings_tokens.hpp"
#include "text/shared/unicode.hpp"
#include "text/tokenizer_class.hpp"
#include "text/tokenizer_json.hpp"

namespace heed::detail {
namespace {

using io::detail::fail;
using io::detail::printable;
using io::detail::subject_of;
using nlohmann::json;

constexpr std::uintmax_t kMaxVocabularyMiB = 128;  // as for tokenizer.json
constexpr std::size_t kMaxLines = 2'000'000;
constexpr JsonLimits kVocabularyLimits = {.depth = 4, .members = kMaxLines, .values = 2 * kMaxLines};

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

// The parts that a class keeps: vocabulary, merges and post-processor.
json kept_by_class(json& values) {
  json made;
  for (const char* name : {"vocab", "merges"})
    if (values["model"].contains(name)) made["model"][name] = std::move(values["model"][name]);
  if (values.contains("post_processor")) made["post_processor"] = std::move(values["post_processor"]);
  return made;
}

// Reads the tokenizer of a folder with a tokenizer.json. If there is a tokenizer_config.json, the ids equal
// those that transformers' AutoTokenizer gives, or no tokenizer is returned. `family` and `config_class` come
// from config.json (model_type, tokenizer_class). Throws Error (io) for a broken file.
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
  if (rules != nullptr && type_of_model(model) != rules->model)
    return {std::nullopt, "has a tokenizer.json of " + printable(type_of_model(model)) +
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

std::string on_line(std::size_t number) { return " on line " + std::to_string(number); }

/// Calls visit(line, number) for each line, numbered from 1, without its line end.
template <typename Visit>
void each_line(const std::string& path, Visit visit) {
  const std::string bytes = io::detail::bytes_in(path, kMaxVocabularyMiB);
  std::size_t number = 0;
  for (std::string_view rest = bytes; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (++number > kMaxLines) fail(subject_of(path), "has more than ", kMaxLines, " lines, the limit");
    if (!is_utf8(line)) fail(subject_of(path), "has bytes that are not UTF-8", on_line(number));
    visit(line, number);
  }
}

std::string without_spaces_behind(std::string_view line) {
  while (!line.empty()) {
    const std::size_t last = begin_of_last(line);
    if (!is_white_space(decode_utf8(line.substr(last)).value)) break;
    line = line.substr(0, last);
  }
  return std::string(line);
}

/// BERT's vocabulary: one token per line; ids count from 0.
json tokens_of_lines(const std::string& path) {
  json tokens = json::object();
  each_line(path, [&](std::string_view line, std::size_t number) {
    const auto [token, fresh] = tokens.emplace(without_spaces_behind(line), number - 1);
    if (!fresh)
      fail(subject_of(path), "has the token ", printable(token.key()), on_line(number), " and on line ",
           token->get<std::size_t>() + 1);
  });
  return tokens;
}

/// GPT-2's vocabulary: an object of tokens and ids.
json tokens_of_object(const std::string& path) {
  const std::string text = io::detail::json_in(path, kMaxVocabularyMiB, kVocabularyLimits);
  std::unordered_set<std::string> seen;
  const json tokens = parsed(text, [&](int /*depth*/, const std::string& token) {
    if (!seen.insert(token).second) fail(subject_of(path), "has the token ", printable(token), " twice");
  });
  if (!tokens.is_object()) fail(subject_of(path), "is not a JSON object of tokens and their ids");
  for (const auto& [token, id] : tokens.items())
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= static_cast<std::uint64_t>(kMaxTokenIds))
      fail(subject_of(path), "gives ", printable(token), " no id from 0 to ", kMaxTokenIds - 1);
  return tokens;
}

/// Pairs of tokens in the order of merging.
json merges_of_lines(const std::string& path, const json& tokens) {
  json merges = json::array();
  each_line(path, [&](std::string_view line, std::size_t number) {
    if (line.starts_with("#version")) return;
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
      fail(subject_of(path), "has ", printable(line), on_line(number),
           "; two tokens with a space between them are expected");
    const std::string left(line.substr(0, space)), right(line.substr(space + 1));
    for (const std::string& token : {left, right, left + right})
      if (!tokens.contains(token))
        fail(subject_of(path), "has ", printable(line), on_line(number), ", but ", printable(token),
             " is not a token of vocab.json");
    merges.push_back(std::string(line));
  });
  return merges;
}

// A model's vocabulary and merges in the form of tokenizer.json.
json words_of_bert(const std::string& folder) { return {{"vocab", tokens_of_lines(folder + "/vocab.txt")}}; }

json pairs_of_gpt2(const std::string& folder) {
  json model = {{"vocab", tokens_of_object(folder + "/vocab.json")}};
  model["merges"] = merges_of_lines(folder + "/merges.txt", model["vocab"]);
  return model;
}

struct Kind {
  std::vector<std::string_view> names;  // model_type or tokenizer_class
  const char* rules;                    // a class
  std::vector<const char*> files;
  const char* listed;  // the files, as messages list them
  json (*read)(const std::string& folder);
};

const std::array<Kind, 2>& kinds() {
  static const std::array<Kind, 2> all = {{{{"bert", "distilbert", "BertTokenizer", "DistilBertTokenizer"},
                                            "BertTokenizer",
                                            {"vocab.txt"},
                                            "vocab.txt",
                                            words_of_bert},
                                           {{"gpt2", "GPT2Tokenizer"},
                                            "GPT2Tokenizer",
                                            {"vocab.json", "merges.txt"},
                                            "vocab.json and merges.txt",
                                            pairs_of_gpt2}}};
  return all;
}

const Kind* kind_of(std::string_view name) {
  if (name.ends_with("Fast")) name.remove_suffix(4);
  for (const Kind& one : kinds())
    if (std::find(one.names.begin(), one.names.end(), name) != one.names.end()) return &one;
  return nullptr;
}

/// Refuses settings of slow tokenizers that change tokens and that transformers' fast ones ignore.
void refuse_slow(const JsonPart& config) {
  if (!config.flag("do_basic_tokenize", true))
    config.fail("with do_basic_tokenize false, which heed does not know");
  if (config.has("never_split") && !config.at("never_split").empty())
    config.fail("with never_split, which heed does not know");
  if (config.flag("split_special_tokens", false))
    config.fail("with split_special_tokens, which heed does not know");
}

FolderTokenizer made_from(const Kind& kind, const std::string& folder, const FolderSettings& config) {
  const TokenizerClass& rules = *tokenizer_class_named(kind.rules);
  json made = {{"model", kind.read(folder)}};
  const SettingsTokens tokens({folder, config, made["model"]["vocab"], rules.special});
  if (const auto& found = tokens.contradiction()) fail(found->file, found->what);
  made["added_tokens"] = tokens.list();
  const auto said = [&](const char* flag) { return config.part().flag(flag, false); };
  made["post_processor"] =
      text_between(said("add_bos_token") ? end_named(tokens, "bos_token") : std::nullopt,
                   said("add_eos_token") ? end_named(tokens, "eos_token") : std::nullopt);
  rules.complete({config.part(), tokens, nullptr}, made);
  return {TokenizerJson::tokenizer(made, subject_of(folder)), "", chat_settings_in(folder, config, tokens)};
}

}  // namespace

FolderTokenizer tokenizer_in_folder(const std::string& folder, const std::string& family,
                                    const std::string& tokenizer_class) {
  if (is_there(folder + "/tokenizer.json")) return tokenizer_with_settings(folder, family, tokenizer_class);
  const auto in_folder = [&](const char* name) { return is_there(folder + "/" + name); };
  constexpr std::array<const char*, 6> kFiles = {
      "vocab.txt", "vocab.json", "merges.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model"};
  const auto found = std::find_if(kFiles.begin(), kFiles.end(), in_folder);
  if (found == kFiles.end()) return {std::nullopt, "has no tokenizer.json"};
  const FolderSettings config(folder, "tokenizer_config.json");
  const std::string name =
      config.part().text("tokenizer_class", tokenizer_class.empty() ? family : tokenizer_class);
  const std::string without = "has " + std::string(*found) + " and no tokenizer.json, which heed ";
  const Kind* kind = kind_of(name);
  if (kind == nullptr) return {std::nullopt, without + "cannot build for " + printable(name)};
  if (!std::all_of(kind->files.begin(), kind->files.end(), in_folder))
    return {std::nullopt, without + "builds for " + printable(name) + " from " + kind->listed};
  refuse_slow(config.part());
  return made_from(*kind, folder, config);
}

}  // namespace heed::detail
