#include "text/tokenizer_class.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "text/known_patterns.hpp"

namespace heed::detail {
namespace {

using nlohmann::json;

constexpr const char* kMark = "\u2581";  // SentencePiece's space

json byte_level(bool add_prefix_space, bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"use_regex", use_regex}};
}

json sequence(const char* type, const char* member, std::vector<json> parts) {
  return {{"type", type}, {member, std::move(parts)}};
}

json replace(const char* from, const char* to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

json metaspace(const char* scheme, bool split) {
  return {{"type", "Metaspace"}, {"replacement", kMark}, {"prepend_scheme", scheme}, {"split", split}};
}

// [CLS] and [SEP] have fixed ids if the settings remove their tokens.
void complete_bert(const ClassInput& input, json& made) {
  made["model"]["type"] = "WordPiece";
  made["model"]["unk_token"] = input.tokens.content("unk_token");
  made["normalizer"] = {{"type", "BertNormalizer"},
                        {"clean_text", true},
                        {"handle_chinese_chars", input.settings.flag("tokenize_chinese_chars", true)},
                        {"lowercase", input.settings.flag("do_lower_case", true)}};
  if (input.settings.has("strip_accents"))
    made["normalizer"]["strip_accents"] = input.settings.flag("strip_accents");
  made["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
  made["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}};
  const auto end = [&](const char* name, std::int64_t id) {
    return end_named(input.tokens, name).value_or(TextEnd{input.tokens.content(name), id});
  };
  made["post_processor"] = text_between(end("cls_token", 2), end("sep_token", 3));
}

void complete_mpnet(const ClassInput& input, json& made) {
  complete_bert(input, made);
  const auto end = [&](const char* name, std::int64_t id) {
    return end_named(input.tokens, name).value_or(TextEnd{input.tokens.content(name), id});
  };
  made["post_processor"] = text_between(end("cls_token", 0), end("sep_token", 2));
}

void complete_gpt2(const ClassInput& input, json& made) {
  made["model"]["type"] = "BPE";
  made["pre_tokenizer"] = byte_level(input.settings.flag("add_prefix_space", false), true);
  made["decoder"] = byte_level(true, true);
}

void complete_roberta(const ClassInput& input, json& made) {
  complete_gpt2(input, made);
  made["post_processor"] =
      text_between(end_named(input.tokens, "cls_token"), end_named(input.tokens, "sep_token"));
}

// GPT-NeoX drops the post-processor.
void complete_gpt_neox(const ClassInput& input, json& made) {
  complete_gpt2(input, made);
  made["normalizer"] = {{"type", "NFC"}};
  made["post_processor"] = nullptr;
}

// Special tokens are added again, without the properties of their entries.
void complete_qwen2(const ClassInput& input, json& made) {
  made["model"]["type"] = "BPE";
  made["normalizer"] = {{"type", "NFC"}};
  const json split = {{"type", "Split"},
                      {"pattern", {{"Regex", std::string(kWordsOfQwen2)}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  made["pre_tokenizer"] =
      sequence("Sequence", "pretokenizers",
               {split, byte_level(input.settings.flag("add_prefix_space", false), false)});
  made["decoder"] = byte_level(true, true);
  for (const std::string& token : input.tokens.special())
    made["added_tokens"].push_back({{"content", token}, {"special", true}});
}

void complete_sentence_piece(json& made) {
  made["model"]["type"] = "BPE";
  made["model"]["fuse_unk"] = true;
  made["model"]["byte_fallback"] = true;
}

void complete_llama(const ClassInput& input, json& made) {
  complete_sentence_piece(made);
  const bool prefix = input.settings.flag("add_prefix_space", true);
  const char* scheme = input.settings.flag("legacy", false) ? "always" : "first";
  made["pre_tokenizer"] = metaspace(prefix ? scheme : "never", false);
  std::vector<json> decoders = {replace(kMark, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  made["decoder"] = sequence("Sequence", "decoders", std::move(decoders));
}

void complete_gemma(const ClassInput& input, json& made) {
  complete_sentence_piece(made);
  made["model"]["unk_token"] = input.tokens.content("unk_token");
  made["normalizer"] = replace(" ", kMark);
  made["pre_tokenizer"] = {{"type", "Split"},
                           {"pattern", {{"String", " "}}},
                           {"behavior", "MergedWithPrevious"},
                           {"invert", false}};
  made["decoder"] =
      sequence("Sequence", "decoders", {replace(kMark, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}});
}

// XLM-RoBERTa keeps a normalizer's precompiled map: the normalizer itself, or the first in its list.
json map_of_letters(const json& normalizer) {
  if (!normalizer.is_object()) return nullptr;
  const json list = normalizer.value("normalizers", json::array({normalizer}));
  for (const json& one : list)
    if (one.is_object() && one.value("type", json()) == "Precompiled") return one;
  return nullptr;
}

void complete_unigram(const ClassInput& input, std::int64_t unknown, json& made) {
  made["model"]["type"] = "Unigram";
  made["model"]["unk_id"] = unknown;
  made["normalizer"] = map_of_letters(input.normalizer);
  const json marks = metaspace(input.settings.flag("add_prefix_space", true) ? "always" : "never", true);
  made["pre_tokenizer"] = sequence("Sequence", "pretokenizers", {{{"type", "WhitespaceSplit"}}, marks});
  made["decoder"] = marks;
  made["post_processor"] =
      text_between(end_named(input.tokens, "bos_token"), end_named(input.tokens, "eos_token"));
}

void complete_xlm_roberta(const ClassInput& input, json& made) { complete_unigram(input, 3, made); }

void complete_camembert(const ClassInput& input, json& made) {
  const std::string unknown = input.tokens.content("unk_token");
  const json& vocabulary = made["model"]["vocab"];
  const auto found = std::find_if(vocabulary.begin(), vocabulary.end(), [&](const json& one) {
    return one.is_array() && !one.empty() && one[0] == unknown;
  });
  complete_unigram(input, found == vocabulary.end() ? 0 : found - vocabulary.begin(), made);
}

const std::vector<TokenizerClass>& classes() {
  static const std::vector<TokenizerClass> all = [] {
    const json bert = {{"unk_token", "[UNK]"},
                       {"sep_token", "[SEP]"},
                       {"pad_token", "[PAD]"},
                       {"cls_token", "[CLS]"},
                       {"mask_token", "[MASK]"}};
    const char* const end = "<|endoftext|>";
    const json gpt2 = {{"bos_token", end}, {"eos_token", end}, {"unk_token", end}};
    json neox = gpt2;
    neox["pad_token"] = "<|padding|>";
    const json sentence = {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}};
    json xlm = sentence;
    xlm.update(
        {{"sep_token", "</s>"}, {"cls_token", "<s>"}, {"pad_token", "<pad>"}, {"mask_token", "<mask>"}});
    json mpnet = xlm;
    mpnet["unk_token"] = "[UNK]";
    json camembert = xlm;
    camembert["mask_token"] = {{"content", "<mask>"}, {"lstrip", true}};
    camembert["additional_special_tokens"] = {"<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"};
    return std::vector<TokenizerClass>{
        {"BertTokenizer", "WordPiece", bert, complete_bert},
        {"DistilBertTokenizer", "WordPiece", bert, complete_bert},
        {"GPT2Tokenizer", "BPE", gpt2, complete_gpt2},
        {"GPTNeoXTokenizer", "BPE", neox, complete_gpt_neox},
        {"Qwen2Tokenizer",
         "BPE",
         {{"unk_token", end}, {"eos_token", end}, {"pad_token", end}},
         complete_qwen2},
        {"LlamaTokenizer", "BPE", sentence, complete_llama},
        {"GemmaTokenizer",
         "BPE",
         {{"unk_token", "<unk>"},
          {"bos_token", "<bos>"},
          {"eos_token", "<eos>"},
          {"pad_token", "<pad>"},
          {"mask_token", "<mask>"}},
         complete_gemma},
        {"MPNetTokenizer", "WordPiece", mpnet, complete_mpnet},
        {"RobertaTokenizer", "BPE", xlm, complete_roberta},
        {"XLMRobertaTokenizer", "Unigram", xlm, complete_xlm_roberta},
        {"CamembertTokenizer", "Unigram", camembert, complete_camembert},
    };
  }();
  return all;
}

// The class that transformers has for a family; "" for the class that keeps all of tokenizer.json. The
// classes of some families take precedence over those that their folders state.
struct FamilyClass {
  std::string_view family, name;
  bool goes_first = false;
};
constexpr std::array<FamilyClass, 16> kFamilies = {{{"bert", "BertTokenizer"},
                                                    {"camembert", "CamembertTokenizer"},
                                                    {"distilbert", "BertTokenizer"},
                                                    {"electra", "BertTokenizer"},
                                                    {"mpnet", "MPNetTokenizer"},
                                                    {"nomic_bert", "BertTokenizer"},
                                                    {"roberta", "RobertaTokenizer"},
                                                    {"xlm-roberta", "XLMRobertaTokenizer"},
                                                    {"gpt2", "GPT2Tokenizer"},
                                                    {"mistral", "", true},
                                                    {"qwen2", "Qwen2Tokenizer", true},
                                                    {"qwen3", "Qwen2Tokenizer"},
                                                    {"gemma", "GemmaTokenizer"},
                                                    {"gemma2", "GemmaTokenizer"},
                                                    {"gemma3_text", "GemmaTokenizer"},
                                                    {"gpt_neox", "GPTNeoXTokenizer"}}};

std::string_view without_fast(std::string_view name) {
  if (name.ends_with("Fast")) name.remove_suffix(4);
  return name;
}

// Names of the class that keeps all of tokenizer.json.
bool keeps_all(std::string_view name) {
  constexpr std::array<std::string_view, 4> kNames = {"TokenizersBackend", "PreTrainedTokenizer",
                                                      "PythonBackend", "BloomTokenizer"};
  return name.empty() || std::find(kNames.begin(), kNames.end(), without_fast(name)) != kNames.end();
}

}  // namespace

std::optional<TextEnd> end_named(const SettingsTokens& tokens, const char* name) {
  if (!tokens.has(name)) return std::nullopt;
  const std::string content = tokens.content(name);
  return TextEnd{content, tokens.id(content)};
}

json text_between(const std::optional<TextEnd>& before, const std::optional<TextEnd>& behind) {
  json single = json::array(), special = json::object();
  const auto put = [&](const std::optional<TextEnd>& end) {
    if (!end) return;
    single.push_back({{"SpecialToken", {{"id", end->content}, {"type_id", 0}}}});
    const auto id = static_cast<std::uint64_t>(end->id);  // the type that parsed JSON has
    special[end->content] = {{"id", end->content}, {"ids", {id}}, {"tokens", {end->content}}};
  };
  put(before);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  put(behind);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", special}};
}

const TokenizerClass* tokenizer_class_named(std::string_view name) {
  for (const TokenizerClass& one : classes())
    if (one.name == without_fast(name)) return &one;
  return nullptr;
}

ChosenClass auto_class(std::string_view family, const std::string& settings_class,
                       const std::string& config_class, bool is_byte_level) {
  const auto known = std::find_if(kFamilies.begin(), kFamilies.end(),
                                  [&](const FamilyClass& one) { return one.family == family; });
  const bool is_known = known != kFamilies.end();
  std::string_view name = settings_class.empty() ? std::string_view(config_class) : settings_class;
  if (is_known && (name.empty() || known->goes_first)) name = known->name;
  // Folders of Llama 3 may state Llama 2's class.
  else if (is_byte_level && without_fast(name) == "LlamaTokenizer")
    name = "";
  if (keeps_all(name)) return {};
  const TokenizerClass* rules = tokenizer_class_named(name);
  return rules == nullptr ? ChosenClass{nullptr, std::string(name)} : ChosenClass{rules};
}

}  // namespace heed::detail
