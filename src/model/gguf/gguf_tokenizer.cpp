#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "io/fault.hpp"
#include "model/gguf/gguf_model.hpp"

namespace heed::detail {
namespace {

using io::detail::fail;
using io::detail::GgufFile;
using io::detail::GgufValue;
using Json = nlohmann::ordered_json;
using Texts = std::vector<std::string_view>;

constexpr std::int64_t kControl = 3, kUserDefined = 4;
constexpr std::size_t kLongestPiece = 512, kMostTokens = 2'000'000;
// Of pairs of pieces and what they make: a token of n bytes may be made in n - 1 ways.
constexpr std::size_t kMostMergeBytes = std::size_t{64} << 20;

// How a text is cut before merges, by what tokenizer.ggml.pre calls it. GPT-2's is ByteLevel's own.
struct Cut {
  std::string_view name;
  const char* pattern;
};
constexpr std::array<Cut, 3> kCuts = {{
    {"gpt-2", nullptr},
    {"llama-bpe",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"qwen2",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
}};

bool flag_of(const GgufFile& file, const char* name, bool fallback) {
  const GgufValue* value = file.find(name);
  return value == nullptr ? fallback : value->flag();
}

Json vocabulary_of(const GgufFile& file, const Texts& tokens) {
  Json vocabulary = Json::object();
  auto& members = vocabulary.get_ref<Json::object_t&>();
  members.reserve(tokens.size());
  std::unordered_map<std::string_view, bool> seen;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (!seen.emplace(tokens[i], true).second)
      fail(file.subject(), "has the token " + io::detail::printable(tokens[i]) + " twice");
    members.emplace_back(std::string(tokens[i]), i);  // their number would make looking each up slow
  }
  return vocabulary;
}

std::vector<std::int64_t> types_of(const GgufFile& file, std::size_t count) {
  const GgufValue* given = file.find("tokenizer.ggml.token_type");
  if (given == nullptr) return std::vector<std::int64_t>(count, 1);
  std::vector<std::int64_t> types = given->integers();
  if (types.size() != count)
    fail(file.subject(),
         "has " + std::to_string(types.size()) + " token types for " + std::to_string(count) + " tokens");
  return types;
}

Json added_tokens(const Texts& tokens, const std::vector<std::int64_t>& types) {
  Json added = Json::array();
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (types[i] == kControl || types[i] == kUserDefined)
      added.push_back({{"id", i},
                       {"content", std::string(tokens[i])},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", types[i] == kControl}});
  return added;
}

// The first and the last token that a text gets.
Json post_processor(const GgufFile& file, const Texts& tokens, bool begins) {
  Json single = Json::array(), special = Json::object();
  const auto add = [&](const char* name) {
    const std::int64_t id = file.at(name).integer();
    if (id < 0 || id >= static_cast<std::int64_t>(tokens.size()))
      fail(file.subject(), "has " + std::string(name) + " " + std::to_string(id) + "; 0 to " +
                               std::to_string(tokens.size() - 1) + " is expected");
    const std::string text(tokens[static_cast<std::size_t>(id)]);
    single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
    special[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
  };
  if (flag_of(file, "tokenizer.ggml.add_bos_token", begins)) add("tokenizer.ggml.bos_token_id");
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (flag_of(file, "tokenizer.ggml.add_eos_token", false)) add("tokenizer.ggml.eos_token_id");
  if (special.empty()) return nullptr;
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", single}, {"special_tokens", special}};
}

// Byte-level BPE (Radford et al. 2019).
void add_byte_level(const GgufFile& file, Json& made) {
  const std::string name(file.at("tokenizer.ggml.pre").text());
  const auto cut = std::find_if(kCuts.begin(), kCuts.end(), [&](const Cut& one) { return one.name == name; });
  if (cut == kCuts.end())
    fail(file.subject(),
         "has tokenizer.ggml.pre " + io::detail::printable(name) + "; heed knows gpt-2, llama-bpe and qwen2");
  Json merges = Json::array();
  for (const std::string_view merge : file.at("tokenizer.ggml.merges").texts())
    merges.push_back(std::string(merge));
  made["model"]["merges"] = std::move(merges);
  made["model"]["ignore_merges"] = name == "llama-bpe";
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", cut->pattern == nullptr}};
  made["pre_tokenizer"] = byte_level;
  if (cut->pattern != nullptr) {
    const Json split = {{"type", "Split"},
                        {"pattern", {{"Regex", cut->pattern}}},
                        {"behavior", "Isolated"},
                        {"invert", false}};
    made["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}};
  }
  if (name == "qwen2") made["normalizer"] = {{"type", "NFC"}};
  made["decoder"] = byte_level;
}

// SentencePiece's BPE: any two tokens that make up a third merge, the third's score first. Among equal scores
// the earlier token goes first.
Json merges_of(const GgufFile& file, const Texts& tokens, const std::vector<std::int64_t>& types) {
  const std::vector<double> scores = file.at("tokenizer.ggml.scores").reals();
  if (scores.size() != tokens.size())
    fail(file.subject(),
         "has " + std::to_string(scores.size()) + " scores for " + std::to_string(tokens.size()) + " tokens");
  std::unordered_map<std::string_view, std::size_t> ids;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (types[i] == 1) ids.emplace(tokens[i], i);
  using Merge = std::tuple<double, std::size_t, std::size_t, std::size_t>;  // -score, id, left, right
  std::vector<Merge> found;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (types[i] != 1) continue;
    const std::string_view whole = tokens[i];
    if (whole.size() > kLongestPiece) fail(file.subject(), "has a token of more than 512 bytes");
    for (std::size_t cut = 1; cut < whole.size(); ++cut) {
      const auto left = ids.find(whole.substr(0, cut)), right = ids.find(whole.substr(cut));
      if (left == ids.end() || right == ids.end()) continue;
      bytes += sizeof(Merge) + whole.size();
      if (bytes > kMostMergeBytes)
        fail(file.subject(), "has tokens that are made of others in more ways than 64 MiB hold");
      found.emplace_back(-scores[i], i, left->second, right->second);
    }
  }
  std::sort(found.begin(), found.end());
  Json merges = Json::array();
  for (const auto& [score, id, left, right] : found)
    merges.push_back({std::string(tokens[left]), std::string(tokens[right])});
  return merges;
}

void add_sentence_piece(const GgufFile& file, const Texts& tokens, const std::vector<std::int64_t>& types,
                        Json& made) {
  constexpr const char* kSpace = "\u2581";
  made["model"]["merges"] = merges_of(file, tokens, types);
  made["model"]["byte_fallback"] = true;
  made["model"]["fuse_unk"] = true;
  const std::int64_t unknown =
      file.find("tokenizer.ggml.unknown_token_id") ? file.at("tokenizer.ggml.unknown_token_id").integer() : 0;
  if (unknown < 0 || unknown >= static_cast<std::int64_t>(tokens.size()))
    fail(file.subject(), "has tokenizer.ggml.unknown_token_id " + std::to_string(unknown) + "; 0 to " +
                             std::to_string(tokens.size() - 1) + " is expected");
  made["model"]["unk_token"] = std::string(tokens[static_cast<std::size_t>(unknown)]);
  const Json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}};
  const bool prefix = flag_of(file, "tokenizer.ggml.add_space_prefix", true);
  Json normalizers = Json::array();
  if (prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
  normalizers.push_back(replace);
  made["normalizer"] = {{"type", "Sequence"}, {"normalizers", normalizers}};
  Json decoders = Json::array();
  decoders.push_back({{"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}});
  decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  made["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
}

}  // namespace

std::optional<TextTokenizer> gguf_tokenizer(const GgufFile& file, const std::string& path) {
  const GgufValue* model = file.find("tokenizer.ggml.model");
  if (model == nullptr) return std::nullopt;
  const std::string_view name = model->text();
  if (name != "gpt2" && name != "llama")
    fail(file.subject(),
         "has tokenizer.ggml.model " + io::detail::printable(name) + "; heed knows gpt2 and llama");
  const Texts tokens = file.at("tokenizer.ggml.tokens").texts();
  if (tokens.empty() || tokens.size() > kMostTokens)
    fail(file.subject(), "has " + std::to_string(tokens.size()) + " tokens; 1 to 2000000 are expected");
  const std::vector<std::int64_t> types = types_of(file, tokens.size());
  Json made = {{"version", "1.0"}};
  made["added_tokens"] = added_tokens(tokens, types);
  made["model"] = {{"type", "BPE"}};
  made["model"]["vocab"] = vocabulary_of(file, tokens);
  if (name == "gpt2")
    add_byte_level(file, made);
  else
    add_sentence_piece(file, tokens, types, made);
  made["post_processor"] = post_processor(file, tokens, name == "llama");
  try {
    return TextTokenizer::from_json(made.dump(), path);
  } catch (const Json::exception&) {  // dump() takes UTF-8 alone
    fail(file.subject(), "has a token that is not UTF-8");
  }
}

}  // namespace heed::detail
