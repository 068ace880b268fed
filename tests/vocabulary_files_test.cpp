// Tokenizers of folders without tokenizer.json: small hand-made ones, and errors.
// python/tests/test_vocabulary_files.py compares them with transformers' tokenizers.
#include "text/vocabulary_files.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "io_support.hpp"
#include "support.hpp"

namespace heed::test {
namespace {

using detail::FolderTokenizer;
using detail::tokenizer_in_folder;
using Files = std::map<std::string, std::string>;
using Ids = std::vector<std::int64_t>;

// Ids count from 0.
const std::string kWords = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nable\n##ing\ncafe\ncaf\xC3\xA9\nAble\n";
const std::string kLetters =
    R"({"<|endoftext|>": 0, "a": 1, "b": 2, "Ġ": 3, "ab": 4, "Ġab": 5, "<": 6, "#": 7, "#version": 8})";
const std::string kMerges = "#version: 0.2\na b\nĠ ab\n";
const Files kBert = {{"vocab.txt", kWords}};
const Files kGpt2 = {{"vocab.json", kLetters}, {"merges.txt", kMerges}};

Files with(Files files, const std::string& name, const std::string& content) {
  files[name] = content;
  return files;
}
Files settings(const Files& files, const std::string& content) {
  return with(files, "tokenizer_config.json", content);
}

class VocabularyFiles : public testing::Test {
 protected:
  FolderTokenizer read(const Files& files, const std::string& family, const std::string& name = "") {
    for (const std::string& old : folder_.names()) std::filesystem::remove_all(folder_ / old);
    for (const auto& [file, content] : files) write_file(folder_ / file, content);
    return tokenizer_in_folder(folder_.path(), family, name);
  }
  Ids ids(const Files& files, const std::string& family, const std::string& text) {
    const FolderTokenizer found = read(files, family);
    Ids all;
    for (const TextToken& one : found.tokenizer.value().encode(text)) all.push_back(one.id);
    return all;
  }
  // The reason why there is no tokenizer.
  std::string lack(const Files& files, const std::string& family, const std::string& name = "") {
    const FolderTokenizer found = read(files, family, name);
    return found.tokenizer ? "there is one" : found.lack;
  }
  // The message without the folder's path.
  std::string refusal(const Files& files, const std::string& family) {
    std::string message = message_of([&] { (void)read(files, family); });
    const std::string path = folder_.path() + "/";
    for (std::size_t at = message.find(path); at != std::string::npos; at = message.find(path))
      message.erase(at, path.size());
    return message;
  }

  TemporaryFolder folder_;
};

TEST_F(VocabularyFiles, BertsVocabularyIsOfWordPieces) {
  EXPECT_EQ(ids(kBert, "bert", "Ableing caf\xC3\xA9?"), (Ids{2, 5, 6, 7, 1, 3}));
  EXPECT_EQ(ids(kBert, "distilbert", "able[MASK]able"), (Ids{2, 5, 4, 5, 3}));
  EXPECT_EQ(ids(settings(kBert, R"({"do_lower_case": false})"), "bert", "Able caf\xC3\xA9"),
            (Ids{2, 9, 8, 3}));
  EXPECT_EQ(ids(settings(kBert, R"({"strip_accents": false})"), "bert", "Able CAF\xC3\x89"),
            (Ids{2, 5, 8, 3}));
}

TEST_F(VocabularyFiles, LinesEndWithoutTheirWhiteSpace) {
  const std::string lines = "[PAD]\r\n[UNK] \n[CLS]\xE3\x80\x80\r\n[SEP]\t\n\nable";
  EXPECT_EQ(ids({{"vocab.txt", lines}}, "bert", "able"), (Ids{2, 5, 3}));
}

TEST_F(VocabularyFiles, Gpt2sVocabularyIsOfBytes) {
  EXPECT_EQ(ids(kGpt2, "gpt2", "ab ab b<|endoftext|>"), (Ids{4, 5, 3, 2, 0}));
  EXPECT_EQ(ids(with(kGpt2, "merges.txt", "a b\r\n\xC4\xA0 ab"), "gpt2", "ab ab"), (Ids{4, 5}));
  EXPECT_EQ(ids(settings(kGpt2, R"({"add_prefix_space": true})"), "gpt2", "ab"), (Ids{5}));
  EXPECT_EQ(ids(settings(kGpt2, R"({"add_bos_token": true, "add_eos_token": true, "eos_token": "b"})"),
                "gpt2", "a"),
            (Ids{0, 1, 2}));
}

TEST_F(VocabularyFiles, TokensThatAreAddedCountOnFromTheVocabulary) {
  const Files files =
      with(with(kGpt2, "added_tokens.json", R"({"a b": 10, "<x>": 9})"), "special_tokens_map.json",
           R"({"pad_token": {"content": "<pad>", "lstrip": true}})");
  EXPECT_EQ(ids(files, "gpt2", "a b<x>a <pad>"), (Ids{10, 9, 1, 11}));
  EXPECT_FALSE(read(files, "gpt2").tokenizer->is_special(9));
  EXPECT_TRUE(read(files, "gpt2").tokenizer->is_special(11));
}

TEST_F(VocabularyFiles, AnAddedTokensDecoderTakesThePlaceOfTheFiles) {
  const Files files = settings(with(kGpt2, "added_tokens.json", "[no JSON"),
                               R"({"added_tokens_decoder": {"10": {"content": "<y>", "special": true},
                                                            "9": {"content": "<x>"}}})");
  EXPECT_EQ(ids(files, "gpt2", "<x><y>"), (Ids{9, 10}));
  EXPECT_TRUE(read(files, "gpt2").tokenizer->is_special(10));
}

TEST_F(VocabularyFiles, TheClassGoesBeforeTheFamily) {
  Files both = kGpt2;
  both.insert(kBert.begin(), kBert.end());
  EXPECT_EQ(ids(both, "gpt2", "ab"), (Ids{4}));
  EXPECT_EQ(ids(both, "bert", "able"), (Ids{2, 5, 3}));
  EXPECT_EQ(ids(settings(both, R"({"tokenizer_class": "BertTokenizerFast"})"), "gpt2", "able"),
            (Ids{2, 5, 3}));
  EXPECT_TRUE(read(both, "llama", "GPT2Tokenizer").tokenizer->id("ab"));  // the class in config.json
  EXPECT_EQ(ids(with(both, "tokenizer.json",
                     R"({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}})"),
                "bert", "a"),
            (Ids{0}));
}

TEST_F(VocabularyFiles, SaysWhyThereIsNone) {
  EXPECT_EQ(lack({}, "bert"), "has no tokenizer.json");
  EXPECT_EQ(lack({{"tokenizer.model", "?"}}, "llama"),
            "has tokenizer.model and no tokenizer.json, which heed cannot build for 'llama'");
  EXPECT_EQ(lack({{"spiece.model", "?"}}, "bert", "T5Tokenizer"),
            "has spiece.model and no tokenizer.json, which heed cannot build for 'T5Tokenizer'");
  EXPECT_EQ(lack({{"sentencepiece.bpe.model", "?"}}, "bert"),
            "has sentencepiece.bpe.model and no tokenizer.json, which heed builds for 'bert' from vocab.txt");
  EXPECT_EQ(lack(settings(kBert, R"({"tokenizer_class": "BertJapaneseTokenizer"})"), "bert"),
            "has vocab.txt and no tokenizer.json, which heed cannot build for 'BertJapaneseTokenizer'");
  EXPECT_EQ(
      lack(kBert, "gpt2"),
      "has vocab.txt and no tokenizer.json, which heed builds for 'gpt2' from vocab.json and merges.txt");
  EXPECT_EQ(
      lack({{"merges.txt", kMerges}}, "gpt2"),
      "has merges.txt and no tokenizer.json, which heed builds for 'gpt2' from vocab.json and merges.txt");
  EXPECT_EQ(lack(settings(kGpt2, R"({"tokenizer_class": "BertTokenizer"})"), "gpt2"),
            "has vocab.json and no tokenizer.json, which heed builds for 'BertTokenizer' from vocab.txt");
}

TEST_F(VocabularyFiles, RefusesLinesByTheirNumber) {
  const auto words = [&](const std::string& content) { return refusal({{"vocab.txt", content}}, "bert"); };
  EXPECT_EQ(words(kWords + "able\n"), "'vocab.txt' has the token 'able' on line 11 and on line 6");
  EXPECT_EQ(words("a\n\n\n"), "'vocab.txt' has the token '' on line 3 and on line 2");
  EXPECT_EQ(words("a\n\xFF\n"), "'vocab.txt' has bytes that are not UTF-8 on line 2");
  const auto merges = [&](const std::string& content) {
    return refusal(with(kGpt2, "merges.txt", content), "gpt2");
  };
  const std::string expected = "; two tokens with a space between them are expected";
  EXPECT_EQ(merges("a b\nab\n"), "'merges.txt' has 'ab' on line 2" + expected);
  EXPECT_EQ(merges(kMerges + "a  b\n"), "'merges.txt' has 'a  b' on line 4" + expected);
  EXPECT_EQ(merges("a b\n\n"), "'merges.txt' has '' on line 2" + expected);
  EXPECT_EQ(merges("a c\n"), "'merges.txt' has 'a c' on line 1, but 'c' is not a token of vocab.json");
  EXPECT_EQ(merges("a b\nb a\n"), "'merges.txt' has 'b a' on line 2, but 'ba' is not a token of vocab.json");
  EXPECT_EQ(merges("a \xC3\n"), "'merges.txt' has bytes that are not UTF-8 on line 1");
  std::string many;
  for (int i = 0; i < 2'000'001; ++i) many += "a b\n";
  EXPECT_EQ(merges(many), "'merges.txt' has more than 2000000 lines, the limit");
}

TEST_F(VocabularyFiles, RefusesAVocabularyThatIsNotOfTokensAndIds) {
  const auto tokens = [&](const std::string& content) {
    return refusal(with(kGpt2, "vocab.json", content), "gpt2");
  };
  EXPECT_EQ(tokens("{"), "vocab.json is not JSON");
  EXPECT_EQ(tokens("[1]"), "'vocab.json' is not a JSON object of tokens and their ids");
  EXPECT_EQ(tokens(R"({"a": "b"})"), "'vocab.json' gives 'a' no id from 0 to 16777215");
  EXPECT_EQ(tokens(R"({"a": -1})"), "'vocab.json' gives 'a' no id from 0 to 16777215");
  EXPECT_EQ(tokens(R"({"a": 16777216})"), "'vocab.json' gives 'a' no id from 0 to 16777215");
  EXPECT_EQ(tokens(R"({"a": 1, "b": 2, "a": 3})"), "'vocab.json' has the token 'a' twice");
}

TEST_F(VocabularyFiles, RefusesSettings) {
  const auto said = [&](const std::string& content) { return refusal(settings(kBert, content), "bert"); };
  const std::string begin = "'tokenizer_config.json' has ";
  EXPECT_EQ(said("[]"), begin + "settings that is not a JSON object");
  EXPECT_EQ(said(R"({"tokenizer_class": 1})"), begin + "settings whose tokenizer_class is not a string");
  EXPECT_EQ(said(R"({"do_lower_case": 1})"),
            begin + "settings whose do_lower_case is neither true nor false");
  EXPECT_EQ(said(R"({"do_basic_tokenize": false})"),
            begin + "settings with do_basic_tokenize false, which heed does not know");
  EXPECT_EQ(said(R"({"never_split": []})"), "no error");
  EXPECT_EQ(said(R"({"never_split": ["a"]})"), begin + "settings with never_split, which heed does not know");
  EXPECT_EQ(said(R"({"split_special_tokens": true})"),
            begin + "settings with split_special_tokens, which heed does not know");
  EXPECT_EQ(said(R"({"cls_token": 1})"), begin + "cls_token that is not a JSON object");
  EXPECT_EQ(said(R"({"cls_token": {}})"), begin + "cls_token without content");
  EXPECT_EQ(said(R"({"extra_special_tokens": [1]})"),
            begin + "extra_special_tokens that is not a JSON object");
  EXPECT_EQ(said(R"({"added_tokens_decoder": 1})"), begin + "added_tokens_decoder that is not a JSON object");
  EXPECT_EQ(said(R"({"added_tokens_decoder": {"1x": {}}})"),
            begin + "added_tokens_decoder with '1x', which is not an id");
  EXPECT_EQ(said(R"({"added_tokens_decoder": {"10": {}}})"), begin + "an added token without content");
  EXPECT_EQ(said(R"({"added_tokens_decoder": {"11": {"content": "<x>"}}})"),
            begin + "the added token '<x>' with id 11, but the vocabulary gives 10");
  EXPECT_EQ(refusal(with(kBert, "added_tokens.json", R"({"able": 6})"), "bert"),
            "'added_tokens.json' has the added token 'able' with id 6, but the vocabulary gives 5");
  EXPECT_EQ(refusal(with(kBert, "added_tokens.json", R"({"<x>": "10"})"), "bert"),
            "'added_tokens.json' gives '<x>' no id from 0 to 16777215");
  EXPECT_EQ(refusal(with(kBert, "special_tokens_map.json", "1"), "bert"),
            "'special_tokens_map.json' has settings that is not a JSON object");
}

}  // namespace
}  // namespace heed::test
