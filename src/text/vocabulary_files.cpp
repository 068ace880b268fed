// vocab.txt, or vocab.json and merges.txt, as the tokenizer.json that transformers makes of them.
#include "text/vocabulary_files.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/utf8.hpp"
#include "io/fault.hpp"
#include "io/json_file.hpp"
#include "text/json_part.hpp"
#include "text/models/token_table.hpp"
#include "text/unicode.hpp"

namespace heed::detail {
namespace {

using io::detail::fail;
using io::detail::printable;
using io::detail::subject_of;
using nlohmann::json;

// Those of tokenizer.json and config.json.
constexpr std::uintmax_t kMostVocabularyMiB = 128, kMostSettingsMiB = 4;
constexpr std::size_t kMostLines = 2'000'000;
constexpr JsonLimits kVocabularyLimits = {.depth = 4, .members = kMostLines, .values = 2 * kMostLines};
constexpr JsonLimits kSettingsLimits = {.depth = 16, .members = 100'000, .values = 200'000};

// The order in which transformers adds them.
constexpr std::array<const char*, 7> kNamedTokens = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                     "pad_token", "cls_token", "mask_token"};

bool is_there(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

std::string on_line(std::size_t number) { return " on line " + std::to_string(number); }

/// visit(line, number) for each, numbered from 1, without the end of the line.
template <typename Visit>
void each_line(const std::string& path, Visit visit) {
  const std::string bytes = io::detail::bytes_in(path, kMostVocabularyMiB);
  std::size_t number = 0;
  for (std::string_view rest = bytes; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (++number > kMostLines)
      fail(subject_of(path),
           "has more than " + std::to_string(kMostLines) + " lines, which is the most that is taken");
    if (!is_utf8(line)) fail(subject_of(path), "has bytes that are not UTF-8" + on_line(number));
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

/// BERT's: a token a line, whose ids count from 0.
json tokens_of_lines(const std::string& path) {
  json tokens = json::object();
  each_line(path, [&](std::string_view line, std::size_t number) {
    const auto [token, fresh] = tokens.emplace(without_spaces_behind(line), number - 1);
    if (!fresh)
      fail(subject_of(path), "has the token " + printable(token.key()) + on_line(number) + ", which line " +
                                 std::to_string(token->get<std::size_t>() + 1) + " has, too");
  });
  return tokens;
}

/// GPT-2's: an object of tokens and ids.
json tokens_of_object(const std::string& path) {
  const std::string text = io::detail::json_in(path, kMostVocabularyMiB, kVocabularyLimits);
  std::unordered_set<std::string> seen;
  const json tokens = json::parse(text, [&](int /*depth*/, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::key && !seen.insert(value.get<std::string>()).second)
      fail(subject_of(path), "has the token " + printable(value.get<std::string>()) + " twice");
    return true;
  });
  if (!tokens.is_object()) fail(subject_of(path), "is no object of tokens and their ids");
  for (const auto& [token, id] : tokens.items())
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= static_cast<std::uint64_t>(kMostTokenIds))
      fail(subject_of(path),
           "gives " + printable(token) + " no id from 0 to " + std::to_string(kMostTokenIds - 1));
  return tokens;
}

/// Pairs of tokens, the first to be merged first.
json merges_of_lines(const std::string& path, const json& tokens) {
  json merges = json::array();
  each_line(path, [&](std::string_view line, std::size_t number) {
    if (line.starts_with("#version")) return;
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
      fail(subject_of(path), "has " + printable(line) + on_line(number) +
                                 "; two tokens with a space between them are expected");
    const std::string left(line.substr(0, space)), right(line.substr(space + 1));
    for (const std::string& token : {left, right, left + right})
      if (!tokens.contains(token))
        fail(subject_of(path), "has " + printable(line) + on_line(number) + ", where " + printable(token) +
                                   " is no token of vocab.json");
    merges.push_back(std::string(line));
  });
  return merges;
}

/// An object of JSON in a file, without members where there is none.
class Settings {
 public:
  Settings(const std::string& folder, const char* name)
      : values_(read(folder + "/" + name)), part_(values_, subject_of(folder + "/" + name), "settings") {}
  Settings(const Settings&) = delete;
  Settings& operator=(const Settings&) = delete;

  [[nodiscard]] const json& values() const { return values_; }
  [[nodiscard]] const JsonPart& part() const { return part_; }

 private:
  static json read(const std::string& path) {
    if (!is_there(path)) return json::object();
    return json::parse(io::detail::json_in(path, kMostSettingsMiB, kSettingsLimits));
  }

  json values_;
  JsonPart part_;  // of values_
};

/// What tokenizer.json has of an added token, of an object with a member "content".
json added_token(const JsonPart& part, bool special) {
  return {{"content", part.text("content")},
          {"single_word", part.flag("single_word", false)},
          {"lstrip", part.flag("lstrip", false)},
          {"rstrip", part.flag("rstrip", false)},
          {"normalized", part.flag("normalized", !special)},
          {"special", special}};
}

/// Such an object, or the content alone.
json special_token(const json& value, const std::string& file, const char* name) {
  const json object = value.is_string() ? json::object({{"content", value}}) : value;
  return added_token(JsonPart(object, file, name), true);
}

/// The tokens that files add to a vocabulary, in transformers' order: those with ids by these, then special
/// ones.
class AddedTokens {
 public:
  /// `special` has the special tokens that are there without being said. Both files of old are read only
  /// where tokenizer_config.json has no added_tokens_decoder.
  AddedTokens(const std::string& folder, const Settings& config, const json& vocabulary, const json& special)
      : folder_(subject_of(folder)), vocabulary_(vocabulary), next_(std::ssize(vocabulary)) {
    for (const auto& [name, content] : special.items()) named_[name] = special_token(content, folder_, "");
    read_special(config);
    if (config.part().has("added_tokens_decoder")) {
      read_decoder(config.part());
    } else {
      read_special(Settings(folder, "special_tokens_map.json"));
      read_ids(Settings(folder, "added_tokens.json"));
    }
    for (const char* name : kNamedTokens)
      if (has(name)) add(named_[name]);
    for (const json& one : others_) add(one);
  }

  [[nodiscard]] const json& list() const { return list_; }
  [[nodiscard]] bool has(const char* name) const { return named_.contains(name) && !named_[name].is_null(); }
  /// A special token by its name; refused where there is none.
  [[nodiscard]] std::string content(const char* name) const {
    if (!has(name)) fail(folder_, "has a tokenizer without " + std::string(name));
    return named_[name]["content"].get<std::string>();
  }
  /// Of a token of the list.
  [[nodiscard]] std::int64_t id(const std::string& content) const {
    return ids_[content].get<std::int64_t>();
  }

 private:
  // A special token that is null is taken away.
  void read_special(const Settings& file) {
    const json& values = file.values();
    for (const char* name : kNamedTokens)
      if (values.contains(name))
        named_[name] =
            values[name].is_null() ? json() : special_token(values[name], file.part().file(), name);
    for (const char* name : {"additional_special_tokens", "extra_special_tokens"})
      if (file.part().has(name))
        for (const json& one : values[name]) others_.push_back(special_token(one, file.part().file(), name));
  }

  [[nodiscard]] std::unordered_set<std::string> special_contents() const {
    std::unordered_set<std::string> contents;
    for (const json* tokens : {&named_, &others_})
      for (const json& one : *tokens)
        if (!one.is_null()) contents.insert(one["content"].get<std::string>());
    return contents;
  }

  // {"50257": {"content": "<x>", …}}
  void read_decoder(const JsonPart& config) {
    const JsonPart decoder(config.at("added_tokens_decoder"), config.file(), "added_tokens_decoder");
    const auto special_ones = special_contents();
    std::vector<std::pair<std::int64_t, json>> tokens;
    for (const auto& [id, value] : config.at("added_tokens_decoder").items()) {
      const bool digits = !id.empty() && id.size() < 10 && id.find_first_not_of("0123456789") == id.npos;
      if (!digits) decoder.fail("with " + printable(id) + ", which is no id");
      const JsonPart token(value, config.file(), "an added token");
      const bool special = token.flag("special", false) || special_ones.contains(token.text("content"));
      tokens.emplace_back(std::stoll(id), added_token(token, special));
    }
    add_by_id(std::move(tokens), config.file());
  }

  // {"<x>": 50257}
  void read_ids(const Settings& file) {
    const auto special_ones = special_contents();
    std::vector<std::pair<std::int64_t, json>> tokens;
    for (const auto& [content, id] : file.values().items()) {
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= static_cast<std::uint64_t>(kMostTokenIds))
        fail(file.part().file(),
             "gives " + printable(content) + " no id from 0 to " + std::to_string(kMostTokenIds - 1));
      const json object = {{"content", content}};
      const JsonPart token(object, file.part().file(), "an added token");
      tokens.emplace_back(id.get<std::int64_t>(), added_token(token, special_ones.contains(content)));
    }
    add_by_id(std::move(tokens), file.part().file());
  }

  void add_by_id(std::vector<std::pair<std::int64_t, json>> tokens, const std::string& file) {
    std::stable_sort(tokens.begin(), tokens.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [id, token] : tokens) {
      const auto content = token["content"].get<std::string>();
      add(token);
      if (this->id(content) != id)
        fail(file, "has the added token " + printable(content) + " with id " + std::to_string(id) +
                       ", where the vocabulary gives " + std::to_string(this->id(content)));
    }
  }

  // Those that the vocabulary lacks count on from it, as in TokenVocabulary.
  void add(json token) {
    const auto content = token["content"].get<std::string>();
    if (ids_.contains(content)) return;
    const auto known = vocabulary_.find(content);
    const std::int64_t id = known == vocabulary_.end() ? next_++ : known->get<std::int64_t>();
    ids_[content] = token["id"] = id;
    list_.push_back(std::move(token));
  }

  std::string folder_;
  const json& vocabulary_;
  std::int64_t next_;
  json named_ = json::object();  // special tokens by names, null for those that there are not
  json others_ = json::array();
  json list_ = json::array();
  json ids_ = json::object();
};

/// A text with the special tokens of two names around it, as far as there are such; nullptr: none.
json around(const AddedTokens& added, const char* before, const char* behind) {
  json single = json::array(), special = json::object();
  const auto put = [&](const char* name) {
    if (name == nullptr || !added.has(name)) return;
    const std::string content = added.content(name);
    single.push_back({{"SpecialToken", {{"id", content}, {"type_id", 0}}}});
    special[content] = {{"id", content}, {"ids", {added.id(content)}}, {"tokens", {content}}};
  };
  put(before);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  put(behind);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", special}};
}

json bert_tokenizer(const std::string& folder, const Settings& config) {
  const JsonPart& said = config.part();
  json made;
  made["model"]["type"] = "WordPiece";
  made["model"]["vocab"] = tokens_of_lines(folder + "/vocab.txt");
  const AddedTokens added(folder, config, made["model"]["vocab"],
                          {{"unk_token", "[UNK]"},
                           {"sep_token", "[SEP]"},
                           {"pad_token", "[PAD]"},
                           {"cls_token", "[CLS]"},
                           {"mask_token", "[MASK]"}});
  made["model"]["unk_token"] = added.content("unk_token");
  made["added_tokens"] = added.list();
  made["normalizer"] = {{"type", "BertNormalizer"},
                        {"clean_text", true},
                        {"handle_chinese_chars", said.flag("tokenize_chinese_chars", true)},
                        {"lowercase", said.flag("do_lower_case", true)}};
  if (said.has("strip_accents")) made["normalizer"]["strip_accents"] = said.flag("strip_accents");
  made["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
  made["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}};
  made["post_processor"] = around(added, "cls_token", "sep_token");
  return made;
}

json gpt2_tokenizer(const std::string& folder, const Settings& config) {
  const JsonPart& said = config.part();
  json made;
  made["model"]["type"] = "BPE";
  made["model"]["vocab"] = tokens_of_object(folder + "/vocab.json");
  made["model"]["merges"] = merges_of_lines(folder + "/merges.txt", made["model"]["vocab"]);
  const char* const end = "<|endoftext|>";
  const AddedTokens added(folder, config, made["model"]["vocab"],
                          {{"bos_token", end}, {"eos_token", end}, {"unk_token", end}});
  made["added_tokens"] = added.list();
  made["pre_tokenizer"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", said.flag("add_prefix_space", false)}, {"use_regex", true}};
  made["decoder"] = {{"type", "ByteLevel"}};
  made["post_processor"] = around(added, said.flag("add_bos_token", false) ? "bos_token" : nullptr,
                                  said.flag("add_eos_token", false) ? "eos_token" : nullptr);
  return made;
}

struct Kind {
  std::vector<std::string_view> names;  // model_type or tokenizer_class
  std::vector<const char*> files;
  const char* listed;  // the files, in a sentence
  json (*make)(const std::string& folder, const Settings& config);
};

const std::array<Kind, 2>& kinds() {
  static const std::array<Kind, 2> all = {{{{"bert", "distilbert", "BertTokenizer", "DistilBertTokenizer"},
                                            {"vocab.txt"},
                                            "vocab.txt",
                                            bert_tokenizer},
                                           {{"gpt2", "GPT2Tokenizer"},
                                            {"vocab.json", "merges.txt"},
                                            "vocab.json and merges.txt",
                                            gpt2_tokenizer}}};
  return all;
}

const Kind* kind_of(std::string_view name) {
  if (name.ends_with("Fast")) name.remove_suffix(4);
  for (const Kind& one : kinds())
    if (std::find(one.names.begin(), one.names.end(), name) != one.names.end()) return &one;
  return nullptr;
}

/// Settings of slow tokenizers that change tokens, and that transformers' fast ones pass over.
void refuse_slow(const JsonPart& config) {
  if (!config.flag("do_basic_tokenize", true))
    config.fail("with do_basic_tokenize false, which heed does not know");
  if (config.has("never_split") && !config.at("never_split").empty())
    config.fail("with never_split, which heed does not know");
  if (config.flag("split_special_tokens", false))
    config.fail("with split_special_tokens, which heed does not know");
}

}  // namespace

FolderTokenizer tokenizer_in_folder(const std::string& folder, const std::string& family,
                                    const std::string& tokenizer_class) {
  if (is_there(folder + "/tokenizer.json")) return {TextTokenizer::from_file(folder + "/tokenizer.json"), ""};
  const auto in_folder = [&](const char* name) { return is_there(folder + "/" + name); };
  constexpr std::array<const char*, 6> kFiles = {
      "vocab.txt", "vocab.json", "merges.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model"};
  const auto found = std::find_if(kFiles.begin(), kFiles.end(), in_folder);
  if (found == kFiles.end()) return {std::nullopt, "has no tokenizer.json"};
  const Settings config(folder, "tokenizer_config.json");
  const std::string name =
      config.part().text("tokenizer_class", tokenizer_class.empty() ? family : tokenizer_class);
  const std::string without = "has " + std::string(*found) + " and no tokenizer.json, which heed ";
  const Kind* kind = kind_of(name);
  if (kind == nullptr) return {std::nullopt, without + "does not make for " + printable(name)};
  if (!std::all_of(kind->files.begin(), kind->files.end(), in_folder))
    return {std::nullopt, without + "makes for " + printable(name) + " from " + kind->listed};
  refuse_slow(config.part());
  // The values are not held beside those of reading.
  const std::string text = kind->make(folder, config).dump();
  return {TextTokenizer::from_json(text, folder), ""};
}

}  // namespace heed::detail
