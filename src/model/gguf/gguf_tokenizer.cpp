#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "core/utf8.hpp"
#include "io/fault.hpp"
#include "model/gguf/gguf_model.hpp"
#include "text/known_patterns.hpp"

namespace heed::detail {
namespace {

using io::detail::fail;
using io::detail::GgufFile;
using io::detail::GgufValue;
using Json = nlohmann::ordered_json;
using Texts = std::vector<std::string_view>;

constexpr std::int64_t kNormal = 1, kControl = 3, kUserDefined = 4;
constexpr std::size_t kLongestPiece = 512, kMaxTokens = 2'000'000;
// Memory for merges, pairs of pieces and their result: a token of n bytes may be made in n - 1 ways.
constexpr std::size_t kMaxMergeBytes = std::size_t{64} << 20;

// How a byte-level tokenizer splits a text before merges, and what llama.cpp (llama-vocab.cpp) assumes with
// that split. An empty pattern means ByteLevel's own.
struct Cut {
  std::string_view pattern;
  bool ignores_merges;  ///< a piece that is a token stays whole
  bool begins;          ///< texts begin with the BOS token if the file has no add_bos_token
  bool digits = false;  ///< each digit is a piece of its own
};
constexpr Cut kGpt2 = {"", false, false};
constexpr Cut kDigits = {"", false, false, true};
constexpr Cut kLlama3 = {kWordsOfLlama3, true, true};
constexpr Cut kDbrx = {kWordsOfLlama3, false, false};
constexpr Cut kQwen2 = {kWordsOfQwen2, false, false};

// Values of tokenizer.ggml.pre. They never add an EOS token to a text.
struct PreTokenizerNames {
  const Cut* cut;
  std::string_view names;  // each between spaces
};
constexpr std::array<PreTokenizerNames, 5> kPreTokenizers = {
    {{&kLlama3, " llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 "},
     {&kGpt2,
      " gpt-2 phi-2 gigachat a.x-4.0 mellum modern-bert exaone4 jina-es jina-de jina-v2-es jina-v2-de "
      "jina-v1-en jina-v2-code roberta-bpe mpt olmo jais trillion granite-docling "},
     {&kDigits, " smollm starcoder refact command-r codeshell exaone minerva-7b "},
     {&kDbrx, " dbrx smaug-bpe "},
     {&kQwen2, " stablelm2 qwen2 megrez deepseek-r1-qwen kormo "}}};

// Returns nullptr for an unknown name.
const Cut* cut_named(std::string_view name) {
  const std::string word = " " + std::string(name) + " ";
  for (const auto& [cut, names] : kPreTokenizers)
    if (name.find(' ') == name.npos && names.find(word) != names.npos) return cut;
  return nullptr;
}

Json vocabulary_of(const GgufFile& file, const Texts& tokens) {
  Json vocabulary = Json::object();
  auto& members = vocabulary.get_ref<Json::object_t&>();
  members.reserve(tokens.size());
  std::unordered_map<std::string_view, bool> seen;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (!seen.emplace(tokens[i], true).second)
      fail(file.subject(), "has the token ", io::detail::printable(tokens[i]), " twice");
    members.emplace_back(std::string(tokens[i]), i);  // no lookup: the keys are distinct
  }
  return vocabulary;
}

std::vector<std::int64_t> types_of(const GgufFile& file, std::size_t count) {
  const GgufValue* given = file.find("tokenizer.ggml.token_type");
  if (given == nullptr) return std::vector<std::int64_t>(count, 1);
  std::vector<std::int64_t> types = given->integers();
  if (types.size() != count)
    fail(file.subject(), "has ", counted(types.size(), "token type"), " for ", counted(count, "token"));
  return types;
}

// In Phi-3, a special token takes the spaces behind it. GGUF has no key for that; llama.cpp (llama-vocab.cpp)
// knows the model by its name, and these tokens by theirs.
bool strips_right(const GgufFile& file, std::string_view token) {
  const GgufValue* name = file.find("general.name");
  if (name == nullptr || token == "<unk>" || token == "<s>" || token == "<|endoftext|>") return false;
  std::string lower(name->text());
  std::ranges::transform(lower, lower.begin(), ascii_lower);
  return lower.find("phi-3") != lower.npos || lower.find("phi3") != lower.npos;
}

Json added_tokens(const GgufFile& file, const Texts& tokens, const std::vector<std::int64_t>& types) {
  Json added = Json::array();
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (types[i] == kControl || types[i] == kUserDefined)
      added.push_back({{"id", i},
                       {"content", std::string(tokens[i])},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", strips_right(file, tokens[i])},
                       {"normalized", false},
                       {"special", types[i] == kControl}});
  return added;
}

// The id that the file has under `name`, checked.
std::size_t id_of(const GgufFile& file, const Texts& tokens, const std::string& name,
                  std::optional<std::int64_t> fallback) {
  const bool given = !fallback || file.find(name) != nullptr;
  const std::int64_t id = given ? file.at(name).integer() : *fallback;
  if (id < 0 || id >= std::ssize(tokens))
    fail(file.subject(), "has ", name, " ", id, "; 0 to ", tokens.size() - 1, " is expected");
  return static_cast<std::size_t>(id);
}

std::string unknown_token(const GgufFile& file, const Texts& tokens, std::int64_t fallback) {
  return std::string(tokens[id_of(file, tokens, "tokenizer.ggml.unknown_token_id", fallback)]);
}

// A token before or after a text: the key of its id, and the id if the file has none.
struct TextEnd {
  bool added;
  const char* name;
  std::optional<std::int64_t> fallback{};
};

Json post_processor(const GgufFile& file, const Texts& tokens, const TextEnd& begin, const TextEnd& end) {
  Json single = Json::array(), special = Json::object();
  const auto add = [&](const TextEnd& one) {
    const std::size_t id = id_of(file, tokens, one.name, one.fallback);
    const std::string text(tokens[id]);
    single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
    special[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
  };
  if (begin.added) add(begin);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (end.added) add(end);
  if (special.empty()) return nullptr;
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", single}, {"special_tokens", special}};
}

// Byte-level BPE (Radford et al. 2019).
void add_byte_level(const GgufFile& file, const Cut& cut, Json& made) {
  Json merges = Json::array();
  for (const std::string_view merge : file.at("tokenizer.ggml.merges").texts())
    merges.push_back(std::string(merge));
  made["model"]["merges"] = std::move(merges);
  made["model"]["ignore_merges"] = cut.ignores_merges;
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", cut.pattern.empty()}};
  made["pre_tokenizer"] = byte_level;
  if (cut.digits)
    made["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, byte_level}}};
  if (!cut.pattern.empty()) {
    const Json split = {{"type", "Split"},
                        {"pattern", {{"Regex", std::string(cut.pattern)}}},
                        {"behavior", "Isolated"},
                        {"invert", false}};
    made["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}};
  }
  if (file.at("tokenizer.ggml.pre").text() == "qwen2") made["normalizer"] = {{"type", "NFC"}};
  made["decoder"] = byte_level;
}

// SentencePiece's BPE: any two tokens that make up a third may merge; the highest score of the result goes
// first. Among equal scores the lower id goes first.
Json merges_of(const GgufFile& file, const Texts& tokens, const std::vector<std::int64_t>& types) {
  const std::vector<double> scores = file.at("tokenizer.ggml.scores").reals();
  if (scores.size() != tokens.size())
    fail(file.subject(), "has ", counted(scores.size(), "score"), " for ", counted(tokens.size(), "token"));
  std::unordered_map<std::string_view, std::size_t> ids;
  const auto is_piece = [&](std::size_t i) { return types[i] == kNormal || types[i] == kUserDefined; };
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (is_piece(i)) ids.emplace(tokens[i], i);
  using Merge = std::tuple<double, std::size_t, std::size_t, std::size_t>;  // -score, id, left, right
  std::vector<Merge> found;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (!is_piece(i)) continue;
    const std::string_view whole = tokens[i];
    if (whole.size() > kLongestPiece) fail(file.subject(), "has a token of more than 512 bytes");
    for (std::size_t cut = 1; cut < whole.size(); ++cut) {
      const auto left = ids.find(whole.substr(0, cut)), right = ids.find(whole.substr(cut));
      if (left == ids.end() || right == ids.end()) continue;
      bytes += sizeof(Merge) + whole.size();
      if (bytes > kMaxMergeBytes)
        fail(file.subject(), "has tokens that can be built from others in more ways than fit into 64 MiB");
      found.emplace_back(-scores[i], i, left->second, right->second);
    }
  }
  std::ranges::sort(found);
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
  made["model"]["unk_token"] = unknown_token(file, tokens, 0);
  const Json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}};
  const bool prefix = file.flag_or("tokenizer.ggml.add_space_prefix", true);
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

// BERT's tokens: files have "▁" before a word's first piece, and no "##" before the others. Special tokens,
// which older files do not mark, are as they are.
std::vector<std::string> word_pieces(const Texts& tokens, const std::vector<std::int64_t>& types) {
  constexpr std::string_view kBegin = "\u2581";
  std::vector<std::string> pieces;
  pieces.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view token = tokens[i];
    if (token.starts_with(kBegin))
      pieces.emplace_back(token.substr(kBegin.size()));
    else if (types[i] != kNormal || (token.starts_with('[') && token.ends_with(']')))
      pieces.emplace_back(token);
    else
      pieces.push_back("##" + std::string(token));
  }
  return pieces;
}

// WordPiece. Texts lose case and accents, as in llama.cpp.
void add_word_piece(const GgufFile& file, const Texts& tokens, Json& made) {
  made["model"]["type"] = "WordPiece";
  made["model"]["unk_token"] = unknown_token(file, tokens, 100);
  made["model"]["continuing_subword_prefix"] = "##";
  made["model"]["max_input_chars_per_word"] = 100;
  made["normalizer"] = {{"type", "BertNormalizer"},
                        {"clean_text", true},
                        {"handle_chinese_chars", true},
                        {"strip_accents", nullptr},
                        {"lowercase", true}};
  made["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
  made["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
}

// The template, and the special tokens under the names that transformers gives them.
ChatSettings chat_settings(const GgufFile& file, const Texts& tokens) {
  ChatSettings chat;
  const GgufValue* text = file.find("tokenizer.chat_template");
  if (text == nullptr) return chat;
  chat.source = file.subject();
  chat.text = text->text();
  if (!is_utf8(chat.text)) fail(file.subject(), "has a tokenizer.chat_template that is not UTF-8");
  for (const auto& [name, key] : {std::pair{"bos_token", "bos_token_id"},
                                  {"eos_token", "eos_token_id"},
                                  {"unk_token", "unknown_token_id"},
                                  {"pad_token", "padding_token_id"}}) {
    const GgufValue* id = file.find(std::string("tokenizer.ggml.") + key);
    if (id == nullptr || id->integer() < 0 || id->integer() >= std::ssize(tokens)) continue;
    chat.tokens.emplace_back(name, tokens[static_cast<std::size_t>(id->integer())]);
  }
  return chat;
}

// The reason why heed cannot make a tokenizer of the file; empty if it can.
std::string lack_of(const GgufFile& file) {
  const GgufValue* model = file.find("tokenizer.ggml.model");
  if (model == nullptr) return "has no tokenizer.ggml.model";
  if (model->text() == "llama" || model->text() == "bert") return "";
  if (model->text() != "gpt2")
    return "has tokenizer.ggml.model " + io::detail::printable(model->text()) +
           ", which heed does not know; gpt2, llama or bert is expected";
  const GgufValue* pre = file.find("tokenizer.ggml.pre");
  if (pre == nullptr) return "has no tokenizer.ggml.pre, which tells how to split texts";
  const Cut* cut = cut_named(pre->text());
  if (cut == nullptr)
    return "has tokenizer.ggml.pre " + io::detail::printable(pre->text()) + ", which heed does not know";
  const auto has = [&](const char* name) { return file.find(name) != nullptr; };
  const bool assumed = cut->begins && !has("tokenizer.ggml.add_bos_token");
  return assumed && !has("tokenizer.ggml.bos_token_id")
             ? "has no tokenizer.ggml.bos_token_id, with which its texts begin"
             : "";
}

}  // namespace

FolderTokenizer gguf_tokenizer(const GgufFile& file, const std::string& path) {
  if (std::string lack = lack_of(file); !lack.empty()) return {std::nullopt, std::move(lack)};
  const std::string_view model = file.at("tokenizer.ggml.model").text();
  Texts tokens = file.at("tokenizer.ggml.tokens").texts();
  if (tokens.empty() || tokens.size() > kMaxTokens)
    fail(file.subject(), "has ", tokens.size(), " tokens; 1 to 2000000 are expected");
  const std::vector<std::int64_t> types = types_of(file, tokens.size());
  std::vector<std::string> pieces;
  if (model == "bert") {
    pieces = word_pieces(tokens, types);
    tokens.assign(pieces.begin(), pieces.end());
  }
  Json made = {{"version", "1.0"}};
  made["added_tokens"] = added_tokens(file, tokens, types);
  made["model"] = {{"type", "BPE"}};
  made["model"]["vocab"] = vocabulary_of(file, tokens);
  TextEnd begin{file.flag_or("tokenizer.ggml.add_bos_token", true), "tokenizer.ggml.bos_token_id", 1},
      end{file.flag_or("tokenizer.ggml.add_eos_token", false), "tokenizer.ggml.eos_token_id", 2};
  if (model == "gpt2") {
    const Cut& cut = *cut_named(file.at("tokenizer.ggml.pre").text());
    add_byte_level(file, cut, made);
    begin = {file.flag_or("tokenizer.ggml.add_bos_token", cut.begins), begin.name};
    end.fallback.reset();
  } else if (model == "bert") {
    add_word_piece(file, tokens, made);
    const bool named = file.find("tokenizer.ggml.cls_token_id") != nullptr;
    begin = {true, named ? "tokenizer.ggml.cls_token_id" : begin.name, 101};
    end = {true, "tokenizer.ggml.seperator_token_id", 102};  // spelled so in GGUF
  } else {
    add_sentence_piece(file, tokens, types, made);
  }
  made["post_processor"] = post_processor(file, tokens, begin, end);
  try {
    return {Tokenizer::from_json(made.dump(), path), "", chat_settings(file, tokens)};
  } catch (const Json::exception&) {  // dump() accepts only UTF-8
    fail(file.subject(), "has a token that is not UTF-8");
  }
}

}  // namespace heed::detail
