#include "text/models/token_model.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "heed/model/tokenizer.hpp"
#include "support.hpp"

namespace {

using heed::Tokenizer;
using heed::detail::token_model_from;
using heed::detail::TokenModel;
using heed::detail::TokenPiece;
using heed::test::message_of;
using nlohmann::json;

using Pieces = std::vector<std::tuple<int, int, int>>;  // id, begin, end

std::unique_ptr<const TokenModel> model_of(const std::string& text) {
  return token_model_from(json::parse(text), "'t.json'");
}

std::string refusal_of(const std::string& text) {
  return message_of([&] { (void)model_of(text); });
}

Pieces cut(const TokenModel& model, std::string_view word) {
  std::vector<TokenPiece> pieces;
  model.cut(word, pieces);
  Pieces all;
  for (const TokenPiece& one : pieces)
    all.emplace_back(static_cast<int>(one.id), static_cast<int>(one.begin), static_cast<int>(one.end));
  return all;
}

// {"<0x00>": 0, …, "<0xFF>": 255, and more}
std::string with_bytes(const std::string& more) {
  std::string vocabulary = "{";
  for (int byte = 0; byte < 256; ++byte) {
    char token[16];
    std::snprintf(token, sizeof token, "\"<0x%02X>\": ", static_cast<unsigned>(byte));
    vocabulary += token;
    vocabulary += std::to_string(byte);
    vocabulary += ", ";
  }
  return vocabulary + more + "}";
}

// Expected values were printed by PyPI's tokenizers 0.23.3, except for offsets, which count bytes here.

TEST(Bpe, MergesTheEarliestOfThePairsThatAreThere) {
  const auto model = model_of(R"({"type": "BPE", "unk_token": "<unk>",
    "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4, "abc": 5, "<unk>": 6, "é": 7},
    "merges": ["b c", "a b", "a bc"]})");
  EXPECT_EQ(cut(*model, "abc"), (Pieces{{5, 0, 3}}));
  EXPECT_EQ(cut(*model, "ab"), (Pieces{{3, 0, 2}}));
  EXPECT_EQ(cut(*model, "abab"), (Pieces{{3, 0, 2}, {3, 2, 4}}));
  EXPECT_EQ(cut(*model, "aab"), (Pieces{{0, 0, 1}, {3, 1, 3}}));
  EXPECT_EQ(cut(*model, ""), Pieces{});
}

TEST(Bpe, MergesAPairThatIsListedTwiceAtTheLastOfItsPlaces) {
  EXPECT_EQ(cut(*model_of(R"({"type": "BPE", "dropout": 0, "merges": ["a b", "b c", "a b"],
                              "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4, "": 5}})"),
                "abc"),
            (Pieces{{0, 0, 1}, {4, 1, 3}}));
}

// A text is cut before a ▁ where no token has the two letters there.
TEST(Bpe, MergesAcrossMarksOfSpaces) {
  const Tokenizer tokenizer =
      Tokenizer::from_json(R"({"model": {"type": "BPE", "merges": ["a ▁", "a▁ b", "▁ c"],
      "vocab": {"▁": 0, "a": 1, "b": 2, "c": 3, "a▁": 4, "a▁b": 5, "▁c": 6}}})");
  const auto ids = [&](const std::string& text) {
    std::vector<std::int64_t> all;
    for (const heed::TextToken& one : tokenizer.encode(text)) all.push_back(one.id);
    return all;
  };
  EXPECT_EQ(ids("a▁b"), (std::vector<std::int64_t>{5}));
  EXPECT_EQ(ids("b▁c"), (std::vector<std::int64_t>{2, 6}));
  EXPECT_EQ(ids("c▁a▁b▁c"), (std::vector<std::int64_t>{3, 0, 5, 6}));
  EXPECT_EQ(ids("a▁▁c"), (std::vector<std::int64_t>{4, 6}));
}

TEST(Bpe, GivesEachLetterThatItDoesNotKnowATokenOrAllInARowOne) {
  const std::string rest = R"("unk_token": "<unk>",
    "vocab": {"a": 0, "b": 1, "ab": 3, "<unk>": 6, "é": 7}, "merges": [["a", "b"]]})";
  const auto apart = model_of(R"({"type": "BPE", )" + rest);
  EXPECT_EQ(cut(*apart, "xyab"), (Pieces{{6, 0, 1}, {6, 1, 2}, {3, 2, 4}}));
  EXPECT_EQ(cut(*apart, "aéxyb"), (Pieces{{0, 0, 1}, {7, 1, 3}, {6, 3, 4}, {6, 4, 5}, {1, 5, 6}}));
  const auto fused = model_of(R"({"type": "BPE", "fuse_unk": true, )" + rest);
  EXPECT_EQ(cut(*fused, "xyab"), (Pieces{{6, 0, 2}, {3, 2, 4}}));
  EXPECT_EQ(cut(*fused, "ax€yb"), (Pieces{{0, 0, 1}, {6, 1, 6}, {1, 6, 7}}));
}

TEST(Bpe, LeavesLettersOutThatItDoesNotKnowWithoutAnUnkToken) {
  const auto model = model_of(R"({"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 3}, "merges": ["a b"]})");
  EXPECT_EQ(cut(*model, "xyab"), (Pieces{{3, 2, 4}}));
  EXPECT_EQ(cut(*model, "ax€b"), (Pieces{{3, 0, 6}}));
}

TEST(Bpe, MarksWhatGoesOnWithAWordAndWhatEndsIt) {
  const auto prefixed = model_of(R"({"type": "BPE", "continuing_subword_prefix": "##",
    "vocab": {"a": 0, "##b": 1, "##c": 2, "ab": 3, "##bc": 4}, "merges": ["##b ##c", "a ##b"]})");
  EXPECT_EQ(cut(*prefixed, "abc"), (Pieces{{0, 0, 1}, {4, 1, 3}}));
  EXPECT_EQ(cut(*prefixed, "abb"), (Pieces{{3, 0, 2}, {1, 2, 3}}));
  const auto ended = model_of(R"({"type": "BPE", "end_of_word_suffix": "</w>",
    "vocab": {"a": 0, "b": 1, "b</w>": 2, "ab</w>": 3, "a</w>": 4}, "merges": ["a b</w>"]})");
  EXPECT_EQ(cut(*ended, "ab"), (Pieces{{3, 0, 2}}));
  EXPECT_EQ(cut(*ended, "aba"), (Pieces{{0, 0, 1}, {1, 1, 2}, {4, 2, 3}}));
  EXPECT_EQ(cut(*ended, "bab"), (Pieces{{1, 0, 1}, {3, 1, 3}}));
}

TEST(Bpe, SpellsLettersThatItDoesNotKnowByTheirBytes) {
  const auto model = model_of(R"({"type": "BPE", "byte_fallback": true, "unk_token": "<unk>", "merges": [],
    "vocab": )" + with_bytes(R"("a": 256, "<unk>": 257)") +
                              "}");
  EXPECT_EQ(cut(*model, "a€a"), (Pieces{{256, 0, 1}, {226, 1, 2}, {130, 2, 3}, {172, 3, 4}, {256, 4, 5}}));
}

// The bytes of "€" are E2 82 AC. All bytes of "¢", C2 A2, are in the vocabulary.
TEST(Bpe, LeavesALetterUnknownOneOfWhoseBytesHasNoToken) {
  json made = json::parse(R"({"type": "BPE", "byte_fallback": true, "unk_token": "<unk>", "merges": []})");
  made["vocab"] = json::parse(with_bytes(R"("a": 256, "<unk>": 257)"));
  made["vocab"].erase("<0xAC>");
  const auto model = model_of(made.dump());
  EXPECT_EQ(cut(*model, "a€a¢"), (Pieces{{256, 0, 1}, {257, 1, 4}, {256, 4, 5}, {194, 5, 6}, {162, 6, 7}}));
  // tokenizers 0.23.3 gives "€¢" 194, 162, 257.
  EXPECT_EQ(
      heed::test::message_of([&] { (void)cut(*model, "€¢"); }),
      "text has '\?\?' behind a letter without a token, and only one of the two has tokens for its bytes, "
      "which tokenizers puts into another order");
}

TEST(Bpe, TakesAWordThatIsATokenWholeWhereMergesAreIgnored) {
  const auto model = model_of(R"({"type": "BPE", "ignore_merges": true,
    "vocab": {"a": 0, "b": 1, "ab": 2, "abb": 3}, "merges": []})");
  EXPECT_EQ(cut(*model, "abb"), (Pieces{{3, 0, 3}}));
  EXPECT_EQ(cut(*model, "aab"), (Pieces{{0, 0, 1}, {0, 1, 2}, {1, 2, 3}}));
}

TEST(Bpe, CutsAWordOfAMillionLetters) {
  const auto model = model_of(R"({"type": "BPE", "vocab": {"a": 0, "aa": 1, "aaaa": 2},
    "merges": ["a a", "aa aa"]})");
  std::vector<TokenPiece> pieces;
  model->cut(std::string(1'000'001, 'a'), pieces);
  ASSERT_EQ(pieces.size(), 250'001u);
  EXPECT_EQ(pieces.front().id, 2);
  EXPECT_EQ(pieces.back().id, 0);
  EXPECT_EQ(pieces.back().end, 1'000'001u);
}

TEST(WordPiece, TakesTheLongestTokenFromTheLeftOrTheWholeWordIsUnknown) {
  const auto model = model_of(R"({"type": "WordPiece", "unk_token": "[UNK]",
    "continuing_subword_prefix": "##", "max_input_chars_per_word": 8,
    "vocab": {"[UNK]": 0, "un": 1, "##able": 2, "##a": 3, "##b": 4, "u": 5, "##n": 6, "able": 7}})");
  EXPECT_EQ(cut(*model, "unable"), (Pieces{{1, 0, 2}, {2, 2, 6}}));
  EXPECT_EQ(cut(*model, "able"), (Pieces{{7, 0, 4}}));
  EXPECT_EQ(cut(*model, "unabab"), (Pieces{{1, 0, 2}, {3, 2, 3}, {4, 3, 4}, {3, 4, 5}, {4, 5, 6}}));
  EXPECT_EQ(cut(*model, "ux"), (Pieces{{0, 0, 2}}));
  EXPECT_EQ(cut(*model, "é"), (Pieces{{0, 0, 2}}));
  EXPECT_EQ(cut(*model, "unababab").size(), 7u);
  EXPECT_EQ(cut(*model, "unabababa"), (Pieces{{0, 0, 9}}));  // nine letters make one unknown token
}

TEST(Unigram, TakesTheWayOfTheLargestSum) {
  const auto model = model_of(R"({"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", -1.0], ["a", -1.0],
    ["b", -1.5], ["ab", -2.0], ["abc", -6.0], ["c", -2.5], ["bc", -3.0]]})");
  EXPECT_EQ(cut(*model, "abc"), (Pieces{{1, 0, 1}, {6, 1, 3}}));
  EXPECT_EQ(cut(*model, "abab"), (Pieces{{3, 0, 2}, {3, 2, 4}}));
  EXPECT_EQ(cut(*model, "xyab"), (Pieces{{0, 0, 2}, {3, 2, 4}}));
  EXPECT_EQ(cut(*model, "axyb"), (Pieces{{1, 0, 1}, {0, 1, 3}, {2, 3, 4}}));
  EXPECT_EQ(cut(*model, "a€"), (Pieces{{1, 0, 1}, {0, 1, 4}}));
}

TEST(Unigram, SpellsLettersThatItDoesNotKnowByTheirBytes) {
  std::string vocabulary = R"([["<unk>", 0.0], ["a", -1.0])";
  const json bytes = json::parse(with_bytes(R"("": 0)"));
  for (const auto& [token, id] : bytes.items())
    if (!token.empty()) vocabulary += ", [\"" + token + "\", -5.0]";
  const auto model =
      model_of(R"({"type": "Unigram", "unk_id": 0, "byte_fallback": true, "vocab": )" + vocabulary + "]}");
  EXPECT_EQ(cut(*model, "a€a"), (Pieces{{1, 0, 1}, {228, 1, 4}, {132, 1, 4}, {174, 1, 4}, {1, 4, 5}}));
  // The unknown token's own text is it, unless letters without a token are beside it.
  EXPECT_EQ(cut(*model, "a<unk>"), (Pieces{{1, 0, 1}, {0, 1, 6}}));
  Pieces spelled;
  for (const char byte : std::string_view("<unk>€"))
    spelled.emplace_back(2 + static_cast<unsigned char>(byte), 0, 8);
  EXPECT_EQ(cut(*model, "<unk>€"), spelled);
}

TEST(Unigram, LeavesALetterUnknownOneOfWhoseBytesHasNoToken) {
  const auto model = model_of(R"({"type": "Unigram", "unk_id": 1, "byte_fallback": true, "vocab": [
    ["<0xE2>", -5.0], ["<unk>", 0.0], ["a", -1.0], ["<0xAC>", -5.0], ["<0xC2>", -5.0], ["<0xA2>", -5.0]]})");
  EXPECT_EQ(cut(*model, "a€a¢"), (Pieces{{2, 0, 1}, {1, 1, 4}, {2, 4, 5}, {4, 5, 7}, {5, 5, 7}}));
}

TEST(WordLevel, KnowsWholeWords) {
  const auto model =
      model_of(R"({"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "an": 1, "a": 2}})");
  EXPECT_EQ(cut(*model, "an"), (Pieces{{1, 0, 2}}));
  EXPECT_EQ(cut(*model, "ann"), (Pieces{{0, 0, 3}}));
}

TEST(TokenModels, KnowTheirTokensBothWays) {
  const auto model =
      model_of(R"({"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "an": 7, "annual": 2}})");
  EXPECT_EQ(model->size(), 8);
  EXPECT_EQ(model->id("an"), 7);
  EXPECT_EQ(model->token(2), "annual");
  EXPECT_FALSE(model->id("ann"));
  EXPECT_FALSE(model->id(""));
  EXPECT_FALSE(model->token(3));
  EXPECT_FALSE(model->token(8));
  EXPECT_FALSE(model->token(-1));
}

TEST(TokenModels, AreToldApartWhereTheFileDoesNotSay) {
  EXPECT_EQ(cut(*model_of(R"({"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]})"), "ab"),
            (Pieces{{2, 0, 2}}));
  EXPECT_EQ(cut(*model_of(R"({"vocab": [["a", -1], ["ab", -1]]})"), "aba"), (Pieces{{1, 0, 2}, {0, 2, 3}}));
  const std::string words =
      R"({"unk_token": "a", "max_input_chars_per_word": 9, "vocab": {"a": 0, "##b": 1})";
  EXPECT_EQ(cut(*model_of(words + R"(, "continuing_subword_prefix": "##"})"), "ab"),
            (Pieces{{0, 0, 1}, {1, 1, 2}}));
  EXPECT_EQ(cut(*model_of(words + "}"), "ab"), (Pieces{{0, 0, 2}}));  // whole words
}

TEST(TokenModels, SayWhichWordTheyHaveNoTokenFor) {
  for (const auto& [type, word] : {std::pair{R"("WordLevel", "unk_token": "?", "vocab": {"a": 0})", "abc"},
                                   {R"("WordPiece", "unk_token": "?", "vocab": {"a": 0})", "abc"},
                                   {R"("BPE", "unk_token": "?", "vocab": {"a": 0}, "merges": [])", "b"},
                                   {R"("Unigram", "vocab": [["a", -1]])", "b"}}) {
    const auto model = model_of(std::string(R"({"type": )") + type + "}");
    EXPECT_EQ(
        message_of([&] { (void)cut(*model, "abc"); }),
        "text has '" + std::string(word) + "', which is not a token, and the tokenizer has no unknown token");
  }
}

TEST(TokenModels, RefuseWhatTheyCannotBeMadeOf) {
  EXPECT_EQ(refusal_of("3"), "'t.json' has a model that is not a JSON object");
  EXPECT_EQ(refusal_of(R"({"type": "Words", "vocab": {}})"),
            "'t.json' has a model of type 'Words', which heed does not know");
  for (const char* odd : {"3", "[]", "{}", "true"})
    EXPECT_EQ(refusal_of(std::string(R"({"vocab": {"a": 0}, "type": )") + odd + "}"),
              "'t.json' has a model whose type is not a string");
  EXPECT_EQ(refusal_of(R"({"type": "", "vocab": {"a": 0}})"), "'t.json' has a model without a type");
  EXPECT_EQ(refusal_of(R"({"type": "BPE", "merges": []})"),
            "'t.json' has a model of type 'BPE' without vocab");
  EXPECT_EQ(refusal_of(R"({"type": "BPE", "vocab": [], "merges": []})"),
            "'t.json' has a model of type 'BPE' whose vocab is not a JSON object");
  EXPECT_EQ(refusal_of(R"({"type": "WordPiece", "vocab": {"a": -1}})"),
            "'t.json' has a model of type 'WordPiece' whose vocab gives 'a' no id from 0 to 16777215");
  EXPECT_EQ(refusal_of(R"({"type": "WordPiece", "vocab": {"a": 16777216}})"),
            "'t.json' has a model of type 'WordPiece' whose vocab gives 'a' no id from 0 to 16777215");
  EXPECT_EQ(refusal_of(R"({"type": "BPE", "dropout": 0.1, "vocab": {}, "merges": []})"),
            "'t.json' has a model of type 'BPE' with a dropout that is not 0: the same text would have other "
            "tokens each time");
  EXPECT_EQ(refusal_of(R"({"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]})"),
            "'t.json' has a model of type 'BPE' whose merges has 'b', which is not in its vocab");
  EXPECT_EQ(refusal_of(R"({"type": "BPE", "vocab": {"a": 0}, "merges": ["a a"]})"),
            "'t.json' has a model of type 'BPE' whose merges has 'aa', which is not in its vocab");
  EXPECT_EQ(refusal_of(R"({"type": "BPE", "vocab": {"a": 0}, "merges": ["a a a"]})"),
            "'t.json' has a model of type 'BPE' whose merges has 'a a a', which is not two tokens");
  EXPECT_EQ(refusal_of(R"({"type": "BPE", "vocab": {"a": 0}, "merges": [3]})"),
            "'t.json' has a model of type 'BPE' whose merges has an entry that is neither a string nor two "
            "strings");
  EXPECT_EQ(
      refusal_of(
          R"({"type": "BPE", "vocab": {"a": 0}, "merges": ["a a"], "continuing_subword_prefix": "##"})"),
      "'t.json' has a model of type 'BPE' whose merges has 'a', which lacks continuing_subword_prefix");
  EXPECT_EQ(
      refusal_of(
          R"({"type": "BPE", "vocab": {}, "merges": [], "byte_fallback": true, "end_of_word_suffix": "."})"),
      "'t.json' has a model of type 'BPE' with byte_fallback and also continuing_subword_prefix or "
      "end_of_word_suffix");
  for (const char* merges : {"3", "{}", "\"a a\""})
    EXPECT_EQ(refusal_of(R"({"type": "BPE", "vocab": {"a": 0}, "merges": )" + std::string(merges) + "}"),
              "'t.json' has a model of type 'BPE' whose merges is not a list");
  for (const char* merge : {R"(["a"])", R"(["a", 1])", R"([1, "a"])", "{}"})
    EXPECT_EQ(refusal_of(R"({"type": "BPE", "vocab": {"a": 0}, "merges": [)" + std::string(merge) + "]}"),
              "'t.json' has a model of type 'BPE' whose merges has an entry that is neither a string nor two "
              "strings");
  for (const char* id : {"1", "-1", "0.5", "\"0\"", "18446744073709551615"})
    EXPECT_EQ(refusal_of(R"({"type": "Unigram", "vocab": [["a", 0]], "unk_id": )" + std::string(id) + "}"),
              "'t.json' has a model of type 'Unigram' whose unk_id is not a whole number from 0 to 0");
  for (const char* entry : {"3", R"(["a"])", R"([1, 0])", R"(["a", "b"])", R"(["a", 0, 0])"})
    EXPECT_EQ(
        refusal_of(R"({"type": "Unigram", "vocab": [)" + std::string(entry) + "]}"),
        "'t.json' has a model of type 'Unigram' whose vocab has an entry that is not a token and a score");
  EXPECT_EQ(refusal_of(R"({"type": "Unigram", "vocab": {}})"),
            "'t.json' has a model of type 'Unigram' whose vocab is not a list");
  EXPECT_EQ(refusal_of(R"({"type": "WordPiece", "vocab": {}, "max_input_chars_per_word": 10001})"),
            "'t.json' has a model of type 'WordPiece' whose max_input_chars_per_word is not a whole number "
            "from 0 to 10000");
}

}  // namespace
