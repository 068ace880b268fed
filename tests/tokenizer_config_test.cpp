// A tokenizer.json beside a tokenizer_config.json. The expected ids come from AutoTokenizer of transformers
// 5.23; python/tests/test_tokenizer_config.py compares many more folders with it.
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io_support.hpp"
#include "support.hpp"
#include "text/vocabulary_files.hpp"

namespace heed::test {
namespace {

using detail::FolderTokenizer;
using detail::tokenizer_in_folder;
using nlohmann::json;
using Ids = std::vector<std::int64_t>;

const json kBert = json::parse(R"({
  "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "[MASK]": 3,
                                                       "ab": 4, "AB": 5, "cd": 6, "é": 7}},
  "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                 "strip_accents": null, "lowercase": true},
  "pre_tokenizer": {"type": "BertPreTokenizer"},
  "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]}})");
const json kBytes = json::parse(R"({
  "added_tokens": [{"id": 8, "content": "<e>", "special": true}],
  "model": {"type": "BPE", "merges": ["a b", "Ġ ab", "1 2"],
            "vocab": {"a": 0, "b": 1, "Ġ": 2, "ab": 3, "Ġab": 4, "1": 5, "2": 6, "12": 7, "<e>": 8}},
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}})");
const json kSentence = json::parse(R"({
  "added_tokens": [{"id": 0, "content": "<unk>", "special": true}, {"id": 1, "content": "<s>", "special": true},
                   {"id": 2, "content": "</s>", "special": true}],
  "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
            "merges": ["a b", "▁ ab"],
            "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, "▁": 3, "a": 4, "b": 5, "ab": 6, "▁ab": 7, "<0x63>": 8}},
  "normalizer": {"type": "Sequence", "normalizers": [
    {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
  "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                                              {"Sequence": {"id": "A", "type_id": 0}}],
                     "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}})");
const json kUnigram = json::parse(R"({
  "model": {"type": "Unigram", "unk_id": 3, "vocab": [["<s>", 0], ["<pad>", 0], ["</s>", 0], ["<unk>", 0],
                                                      ["▁", -2], ["▁ab", -1], ["ab", -1.5]]}})");
const json kEnds = {{"unk_token", "<e>"}, {"bos_token", "<e>"}, {"eos_token", "<e>"}, {"pad_token", "<e>"}};

class TokenizerConfig : public testing::Test {
 protected:
  FolderTokenizer read(const json& tokenizer, const json& settings, const std::string& family) {
    write_file(folder_ / "tokenizer.json", tokenizer.dump());
    write_file(folder_ / "tokenizer_config.json", settings.dump());
    return tokenizer_in_folder(folder_.path(), family, "");
  }
  Ids ids(const json& tokenizer, json settings, const std::string& family, const std::string& text) {
    if (tokenizer == kBert) settings.emplace("pad_token", "[UNK]");
    const FolderTokenizer found = read(tokenizer, settings, family);
    Ids all;
    for (const TextToken& one : found.tokenizer.value().encode(text)) all.push_back(one.id);
    return all;
  }
  std::string lack(const json& tokenizer, const json& settings, const std::string& family) {
    const FolderTokenizer found = read(tokenizer, settings, family);
    return found.tokenizer ? "there is one" : found.lack;
  }

  TemporaryFolder folder_;
};

json with(json settings, const std::string& name, const json& value) {
  settings[name] = value;
  return settings;
}

json of_class(const std::string& name, json settings = json::object()) {
  return with(std::move(settings), "tokenizer_class", name);
}

json without_type(json tokenizer) {
  tokenizer["model"].erase("type");
  return tokenizer;
}

TEST_F(TokenizerConfig, SaysHowBertReadsLetters) {
  EXPECT_EQ(ids(kBert, of_class("BertTokenizer"), "bert", "AB ab É"), (Ids{1, 4, 4, 0, 2}));
  EXPECT_EQ(ids(kBert, with(of_class("BertTokenizer"), "do_lower_case", false), "bert", "AB ab É"),
            (Ids{1, 5, 4, 0, 2}));
  EXPECT_EQ(ids(kBert, with(of_class("BertTokenizer"), "strip_accents", false), "bert", "AB ab É"),
            (Ids{1, 4, 4, 7, 2}));
  EXPECT_EQ(ids(kBert, {{"cls_token", "[MASK]"}}, "bert", "ab"), (Ids{3, 4, 2}));
}

TEST_F(TokenizerConfig, SaysHowByteLevelTokenizersBegin) {
  EXPECT_EQ(ids(kBytes, of_class("GPT2Tokenizer", with(kEnds, "add_prefix_space", true)), "gpt2", "ab ab 12"),
            (Ids{4, 4, 2, 7}));
  EXPECT_EQ(ids(kBytes, of_class("Qwen2Tokenizer", kEnds), "qwen2", "ab 12"), (Ids{3, 2, 5, 6}));
  EXPECT_EQ(ids(kBytes, of_class("GPTNeoXTokenizer"), "gpt_neox", "ab<e>"), (Ids{3, 8}));
}

TEST_F(TokenizerConfig, AddsTokens) {
  EXPECT_EQ(ids(kBytes, of_class("GPT2Tokenizer", with(kEnds, "pad_token", "b 1")), "gpt2", "ab 12"),
            (Ids{0, 9, 6}));
  const json more = {{"added_tokens_decoder", {{"9", {{"content", " 12"}}}}}};
  EXPECT_EQ(ids(kBytes, of_class("PreTrainedTokenizerFast", more), "llama", "ab 12"), (Ids{3, 9}));
}

TEST_F(TokenizerConfig, SaysHowSentencePieceBeginsWords) {
  EXPECT_EQ(ids(kSentence, of_class("PreTrainedTokenizerFast"), "llama", "ab ab<s>ab"), (Ids{1, 7, 7, 1, 7}));
  EXPECT_EQ(ids(kSentence, of_class("LlamaTokenizer"), "llama", "ab ab<s>ab"), (Ids{1, 7, 7, 1, 6}));
  EXPECT_EQ(ids(kSentence, with(of_class("LlamaTokenizer"), "legacy", true), "llama", "ab ab<s>ab"),
            (Ids{1, 7, 7, 1, 7}));
  EXPECT_EQ(ids(kSentence, with(of_class("LlamaTokenizer"), "add_prefix_space", false), "llama", "ab c"),
            (Ids{1, 6, 3, 8}));
  const json gemma = {
      {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"pad_token", "<s>"}, {"mask_token", "<s>"}};
  EXPECT_EQ(ids(kSentence, of_class("GemmaTokenizer", gemma), "gemma2", "ab ab"), (Ids{1, 6, 7}));
  EXPECT_EQ(ids(kUnigram, of_class("XLMRobertaTokenizer"), "bert", "ab  ab<mask>"), (Ids{0, 5, 5, 7, 2}));
  EXPECT_EQ(ids(kUnigram, with(of_class("XLMRobertaTokenizer"), "add_prefix_space", false), "bert", "ab ab"),
            (Ids{0, 6, 6, 2}));
}

TEST_F(TokenizerConfig, OfWhatHeedDoesNotKnowMakesNoTokenizer) {
  const auto unknown = [](const std::string& what) {
    return "has a tokenizer_config.json " + what + ", which heed does not know";
  };
  EXPECT_EQ(lack(kBytes, of_class("CLIPTokenizer"), "gpt2"), unknown("of 'CLIPTokenizer'"));
  EXPECT_EQ(lack(kBytes, {{"split_special_tokens", true}}, "gpt2"), unknown("with split_special_tokens"));
  EXPECT_EQ(lack(kBytes, {{"fix_mistral_regex", true}}, "mistral"), unknown("with fix_mistral_regex"));
  EXPECT_EQ(lack(kBytes, {{"init_inputs", {1}}}, "gpt2"), unknown("with init_inputs"));
  EXPECT_EQ(lack(kBytes, {{"fast_tokenizer_files", {"a.json"}}}, "gpt2"),
            unknown("with fast_tokenizer_files"));
  EXPECT_EQ(lack(kBytes, {{"auto_map", {{"AutoTokenizer", {"a.B", nullptr}}}}}, "gpt2"),
            unknown("with auto_map"));
  EXPECT_EQ(lack(kBytes, {{"auto_map", {"a.B", nullptr}}}, "gpt2"), unknown("with auto_map"));
  EXPECT_EQ(lack(kBytes, {{"init_inputs", 1}}, "gpt2"), unknown("with init_inputs"));
  EXPECT_EQ(lack(kBytes, {{"init_inputs", json::array()}}, "gpt2"), "there is one");
  EXPECT_EQ(lack(kBytes, {{"auto_map", {{"AutoModel", "a.B"}}}}, "gpt2"), "there is one");
  EXPECT_EQ(lack(kBytes, {{"added_tokens_decoder", {{"30", {{"content", "brandnew"}}}}}}, "gpt2"),
            "has the added token 'brandnew' with id 30, but the vocabulary gives 9");
  // Old files lack the model's type.
  for (const auto& [type, file] : {std::pair{"Unigram", kUnigram},
                                   {"Unigram", without_type(kUnigram)},
                                   {"WordPiece", without_type(kBert)},
                                   {"WordLevel", json::parse(R"({"model": {"vocab": {"a": 0}}})")}})
    EXPECT_EQ(lack(file, of_class("GPT2Tokenizer"), "gpt2"),
              "has a tokenizer.json of '" + std::string(type) +
                  "' and a tokenizer_config.json of GPT2Tokenizer, which is for BPE");
  EXPECT_EQ(lack(without_type(kBytes), of_class("GPT2Tokenizer", kEnds), "gpt2"), "there is one");
}

TEST_F(TokenizerConfig, ThatIsNotAsItShouldBeIsRefused) {
  const auto refusal = [&](const json& tokenizer, const json& settings) {
    const std::string message = message_of([&] { (void)read(tokenizer, settings, "gpt2"); });
    const std::size_t end = message.find("' ");
    return message.substr(message.rfind('/', end) + 1);
  };
  EXPECT_EQ(refusal(kBytes, {{"added_tokens_decoder", {{"x", {{"content", "a"}}}}}}),
            "tokenizer_config.json' has added_tokens_decoder with 'x', which is not an id");
  json many;
  for (int i = 0; i < 1000; ++i) many["a" + std::to_string(i) + "_token"] = "x";
  EXPECT_EQ(refusal(kBytes, many), "tokenizer_config.json' has special tokens of more than 1000 names");
  EXPECT_EQ(refusal({{"model", 3}}, json::object()), "tokenizer.json' has a model that is not a JSON object");
  EXPECT_EQ(refusal({{"model", {{"type", "BPE"}, {"vocab", 3}, {"merges", 4}}}}, json::object()),
            "tokenizer.json' has a model of type 'BPE' whose vocab is not a JSON object");
}

}  // namespace
}  // namespace heed::test
