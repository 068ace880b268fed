#include "text/settings_tokens.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_set>

#include "io/fault.hpp"
#include "text/models/token_table.hpp"

namespace heed::detail {
namespace {

using io::detail::fail;
using io::detail::printable;
using nlohmann::json;

// The order in which transformers adds the named tokens.
constexpr std::array<const char*, 7> kNamedTokens = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                     "pad_token", "cls_token", "mask_token"};
constexpr std::size_t kMaxNames = 1000;
constexpr const char* kExtra = "extra_special_tokens";
constexpr const char* kAdditional = "additional_special_tokens";  // its older name

/// Writes an object with a member "content" in the form of tokenizer.json's added tokens.
json added_token(const JsonPart& part, bool special) {
  return {{"content", part.text("content")},
          {"single_word", part.flag("single_word", false)},
          {"lstrip", part.flag("lstrip", false)},
          {"rstrip", part.flag("rstrip", false)},
          {"normalized", part.flag("normalized", !special)},
          {"special", special}};
}

/// `value` is such an object, or the content alone, which takes its flags from `flags`.
json special_token(const json& value, const std::string& file, const char* name,
                   json flags = json::object()) {
  if (value.is_string()) flags["content"] = value;
  return added_token(JsonPart(value.is_string() ? flags : value, file, name), true);
}

std::string content_of(const json& token) { return token["content"].get<std::string>(); }

std::optional<std::int64_t> id_in(const json& vocabulary, const std::string& token) {
  if (vocabulary.is_object()) {
    const auto found = vocabulary.find(token);
    if (found != vocabulary.end() && found->is_number_unsigned()) return found->get<std::int64_t>();
    return std::nullopt;
  }
  const auto is_token = [&](const json& one) { return one.is_array() && !one.empty() && one[0] == token; };
  const auto found = std::find_if(vocabulary.begin(), vocabulary.end(), is_token);
  return found == vocabulary.end() ? std::nullopt : std::optional(found - vocabulary.begin());
}

bool is_extra_dictionary(const FolderSettings& file) {
  return file.part().has(kExtra) && file.values()[kExtra].is_object();
}

}  // namespace

SettingsTokens::SettingsTokens(const TokenSources& sources)
    : sources_(sources), next_(std::ssize(sources.vocabulary)) {
  for (const char* name : kNamedTokens) {
    const auto said = sources.special.find(name);
    named_.emplace_back(name,
                        said == sources.special.end() ? json() : special_token(*said, sources.folder, name));
  }
  const bool has_decoder = sources.config.part().has("added_tokens_decoder");
  read_special(sources.config, true);
  if (!has_decoder) read_special_map(FolderSettings(sources.folder, "special_tokens_map.json"));
  const auto by_default = sources.special.find(kAdditional);
  if (by_default != sources.special.end() && others_.empty() && !sources.config.part().has(kAdditional))
    for (const json& one : *by_default) others_.push_back(special_token(one, sources.folder, kAdditional));
  std::vector<NumberedToken> numbered = tokens_of_file();
  if (sources.keeps_file)
    for (const NumberedToken& one : numbered) add(one.token);
  if (has_decoder)
    numbered = tokens_of_decoder();
  else
    add_ids_of(FolderSettings(sources.folder, "added_tokens.json"), numbered);
  add_by_id(std::move(numbered));
  // Several tokens of one content are added in this order, so the last one's flags remain.
  json fresh = json::array();
  const auto collect = [&](const json& token) {
    const bool known = token.is_null() || ids_.contains(content_of(token));
    if (!known && std::find(fresh.begin(), fresh.end(), token) == fresh.end()) fresh.push_back(token);
  };
  for (const auto& [name, token] : named_) collect(token);
  for (const json& one : others_) collect(one);
  for (const json& one : fresh) add(one);
}

bool SettingsTokens::has(const char* name) const {
  return std::any_of(named_.begin(), named_.end(),
                     [&](const auto& one) { return one.first == name && !one.second.is_null(); });
}

std::string SettingsTokens::content(const char* name) const {
  for (const auto& [known, token] : named_)
    if (known == name && !token.is_null()) return content_of(token);
  return "None";
}

std::vector<std::pair<std::string, std::string>> SettingsTokens::named() const {
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& [name, token] : named_)
    if (!token.is_null()) all.emplace_back(name, content_of(token));
  return all;
}

std::int64_t SettingsTokens::id(const std::string& content) const {
  return ids_[content].get<std::int64_t>();
}

std::vector<std::string> SettingsTokens::special() const {
  std::vector<std::string> contents;
  for (const auto& [name, token] : named_)
    if (!token.is_null()) contents.push_back(content_of(token));
  for (const json& one : others_) contents.push_back(content_of(one));
  return contents;
}

// Its extra_special_tokens replace an earlier list, unless they are a list themselves.
void SettingsTokens::read_special_map(const FolderSettings& file) {
  const json& config = sources_.config.values();
  const bool has_list = is_extra_dictionary(sources_.config)
                            ? config[kExtra].empty() && config.contains(kAdditional)
                            : config.contains(kExtra) || config.contains(kAdditional);
  const bool takes_older = !has_list || is_extra_dictionary(file);
  const json& values = file.values();
  if (values.contains(kExtra) ? !values[kExtra].is_array() : takes_older && values.contains(kAdditional))
    others_ = json::array();
  read_special(file, takes_older);
}

// A list under the newer name takes precedence over the older name, which counts only if `takes_older`.
void SettingsTokens::read_special(const FolderSettings& file, bool takes_older) {
  read_named(file);
  const bool newer = file.part().has(kExtra) && !is_extra_dictionary(file) && !file.values()[kExtra].empty();
  const char* name = newer ? kExtra : kAdditional;
  if (!file.part().has(name) || file.values()[name].is_object() || (!newer && !takes_older)) return;
  for (const json& one : file.values()[name]) others_.push_back(special_token(one, file.part().file(), name));
}

// A special token that is null is removed. Models may name further special tokens.
void SettingsTokens::read_named(const FolderSettings& file) {
  const json& values = file.values();
  const auto set = [&](const std::string& name, const json& value) {
    const auto said = sources_.special.find(name);
    const bool has_flags = said != sources_.special.end() && said->is_object();
    json token = value.is_null() ? json()
                                 : special_token(value, file.part().file(), name.c_str(),
                                                 has_flags ? *said : json::object());
    if (!token.is_null() && content_of(token).empty()) token = nullptr;
    const auto known =
        std::find_if(named_.begin(), named_.end(), [&](const auto& one) { return one.first == name; });
    if (known != named_.end())
      known->second = token;
    else if (!token.is_null())
      named_.emplace_back(name, token);
    if (named_.size() > kMaxNames)
      fail(file.part().file(), "has special tokens of more than ", kMaxNames, " names");
  };
  for (const char* name : kNamedTokens)
    if (values.contains(name)) set(name, values[name]);
  const auto set_own = [&](bool texts) {
    for (const std::string& name : file.names())
      if (name.ends_with("_token") &&
          std::find(kNamedTokens.begin(), kNamedTokens.end(), name) == kNamedTokens.end() &&
          (texts ? values[name].is_string() : values[name].is_object()))
        set(name, values[name]);
  };
  set_own(false);
  set_own(true);
  if (is_extra_dictionary(file))
    for (const auto& [name, value] : values[kExtra].items()) set(name, value);
}

std::vector<SettingsTokens::NumberedToken> SettingsTokens::tokens_of_file() const {
  std::vector<NumberedToken> tokens;
  if (sources_.file == nullptr || !sources_.file->has("added_tokens")) return tokens;
  if (!sources_.file->at("added_tokens").is_array()) sources_.file->fail("whose added_tokens is not a list");
  for (const json& value : sources_.file->at("added_tokens")) {
    const JsonPart token(value, sources_.file->file(), "an added token");
    tokens.push_back({token.integer("id", 0, kMaxTokenIds), added_token(token, token.flag("special", false)),
                      sources_.file->file()});
  }
  return tokens;
}

// {"50257": {"content": "<x>", …}}
std::vector<SettingsTokens::NumberedToken> SettingsTokens::tokens_of_decoder() const {
  const JsonPart& config = sources_.config.part();
  const JsonPart decoder(config.at("added_tokens_decoder"), config.file(), "added_tokens_decoder");
  std::vector<NumberedToken> tokens;
  for (const auto& [id, value] : config.at("added_tokens_decoder").items()) {
    const bool digits = !id.empty() && id.size() < 10 && id.find_first_not_of("0123456789") == id.npos;
    if (!digits) decoder.fail("with ", printable(id), ", which is not an id");
    const JsonPart token(value, config.file(), "an added token");
    tokens.push_back({std::stoll(id), added_token(token, token.flag("special", false)), config.file()});
  }
  return tokens;
}

// {"<x>": 50257}. Ids that already have a token keep it.
void SettingsTokens::add_ids_of(const FolderSettings& file, std::vector<NumberedToken>& tokens) const {
  const std::vector<std::string> contents = special();
  const std::unordered_set<std::string> special_ones(contents.begin(), contents.end());
  std::unordered_set<std::int64_t> taken;
  for (const NumberedToken& one : tokens) taken.insert(one.id);
  for (const auto& [content, id] : file.values().items()) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= static_cast<std::uint64_t>(kMaxTokenIds))
      fail(file.part().file(), "gives ", printable(content), " no id from 0 to ", kMaxTokenIds - 1);
    if (taken.contains(id.get<std::int64_t>())) continue;
    const json object = {{"content", content}};
    const JsonPart token(object, file.part().file(), "an added token");
    tokens.push_back(
        {id.get<std::int64_t>(), added_token(token, special_ones.contains(content)), file.part().file()});
  }
}

void SettingsTokens::add_by_id(std::vector<NumberedToken> tokens) {
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const NumberedToken& a, const NumberedToken& b) { return a.id < b.id; });
  std::unordered_set<std::string> named;
  for (const auto& [name, token] : named_)
    if (!token.is_null()) named.insert(content_of(token));
  for (NumberedToken& one : tokens) {
    const std::string content = content_of(one.token);
    if (content.empty()) continue;
    if (named.contains(content)) one.token["special"] = true;
    add(one.token);
    if (id(content) != one.id && !contradiction_)
      contradiction_ = {one.file, "has the added token " + printable(content) + " with id " +
                                      std::to_string(one.id) + ", but the vocabulary gives " +
                                      std::to_string(id(content))};
  }
}

// Tokens that the vocabulary lacks continue its ids, as in TokenVocabulary.
void SettingsTokens::add(json token) {
  const std::string content = content_of(token);
  if (content.empty()) return;
  if (!ids_.contains(content)) {
    const auto known = id_in(sources_.vocabulary, content);
    ids_[content] = known ? *known : next_++;
  }
  token["id"] = ids_[content];
  list_.push_back(std::move(token));
}

}  // namespace heed::detail
