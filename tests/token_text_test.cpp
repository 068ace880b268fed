// The steps after the token model: tokens added around a text, offsets that are trimmed, and decoding.
// Expected values were printed by PyPI's tokenizers 0.23.3, except for offsets, which count bytes here.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "heed/model/tokenizer.hpp"
#include "support.hpp"
#include "text/shared/unicode.hpp"
#include "text/token_decoder.hpp"

namespace {

using heed::TextToken;
using heed::Tokenizer;
using heed::detail::JsonPart;
using heed::test::message_of;
using Tokens = std::vector<std::string>;
using Places = std::vector<std::tuple<int, int, int>>;  // id, begin, end

std::string decoded(const std::string& decoder, Tokens tokens) {
  const auto json = nlohmann::json::parse(decoder);
  heed::detail::token_decoder_from(JsonPart(json, "'t.json'", "a decoder"))(tokens);
  std::string text;
  for (const std::string& one : tokens) text += one;
  return text;
}

// Byte-level BPE with the post-processor, and an added token that takes the spaces before it.
std::string file_with(const std::string& post_processor, bool prefixed) {
  return R"({"added_tokens": [{"id": 5, "content": "<s>", "special": true},
      {"id": 6, "content": "</s>", "special": true}, {"id": 9, "content": "<m>", "lstrip": true, "special": false},
      {"id": 10, "content": "<r>", "rstrip": true, "special": false}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": )" +
         std::string(prefixed ? "true" : "false") + R"(, "trim_offsets": true, "use_regex": true},
    "post_processor": )" +
         post_processor + R"(,
    "model": {"type": "BPE", "merges": ["Ġ a", "Ġ Ġ"],
      "vocab": {"a": 0, "Ġ": 1, "b": 2, "Ġa": 3, "ĠĠ": 4, "<s>": 5, "</s>": 6, "Ã": 7, "©": 8}}})";
}

Places places(const std::string& post_processor, bool prefixed, std::string_view text,
              bool add_special = true) {
  Places all;
  for (const TextToken& one :
       Tokenizer::from_json(file_with(post_processor, prefixed)).encode(text, add_special))
    all.emplace_back(static_cast<int>(one.id), static_cast<int>(one.begin), static_cast<int>(one.end));
  return all;
}

std::string refusal_of(const std::string& post_processor) {
  return message_of([&] { (void)Tokenizer::from_json(file_with(post_processor, false), "t.json"); });
}

constexpr std::string_view kText = " a  ab é a   <m> a";

TEST(PostProcessors, TakeSpacesOffThePlacesOfTokens) {
  EXPECT_EQ(places(R"({"type": "ByteLevel", "trim_offsets": true, "add_prefix_space": false})", false, kText),
            (Places{{3, 1, 2},
                    {1, 3, 3},
                    {3, 4, 5},
                    {2, 5, 6},
                    {1, 7, 7},
                    {7, 7, 9},
                    {8, 7, 9},
                    {3, 10, 11},
                    {9, 14, 17},
                    {3, 18, 19}}));
  EXPECT_EQ(places(R"({"type": "ByteLevel", "trim_offsets": false, "add_prefix_space": true})", false, kText),
            (Places{{3, 0, 2},
                    {1, 2, 3},
                    {3, 3, 5},
                    {2, 5, 6},
                    {1, 6, 7},
                    {7, 7, 9},
                    {8, 7, 9},
                    {3, 9, 11},
                    {9, 11, 17},
                    {3, 17, 19}}));
}

// Spaces of three bytes beside added tokens; a letter that normalisation makes three spaces of.
TEST(PostProcessors, TakeNoMoreSpacesThanTheTextHas) {
  const auto places_of = [](std::string_view text, bool prefixed) {
    const std::string file =
        R"({"normalizer": {"type": "Replace", "pattern": {"String": "x"}, "content": "   "}, )" +
        file_with(R"({"type": "ByteLevel", "trim_offsets": true, "add_prefix_space": )" +
                      std::string(prefixed ? "true}" : "false}"),
                  prefixed)
            .substr(1);
    Places all;
    for (const TextToken& one : Tokenizer::from_json(file).encode(text))
      all.emplace_back(static_cast<int>(one.id), static_cast<int>(one.begin), static_cast<int>(one.end));
    return all;
  };
  EXPECT_EQ(places_of("a\u3000<m>\u3000a", false), (Places{{0, 0, 1}, {9, 4, 7}, {0, 10, 11}}));
  EXPECT_EQ(places_of("a<r>\u3000a", true), (Places{{3, 0, 1}, {10, 1, 4}, {3, 8, 8}}));
  EXPECT_EQ(places_of("\u3000\u3000<m>", true), (Places{{9, 6, 9}}));
  EXPECT_EQ(places_of("é a", true), (Places{{1, 0, 0}, {7, 0, 2}, {8, 0, 2}, {3, 3, 4}}));
  EXPECT_EQ(places_of("x", false), (Places{{4, 1, 1}, {1, 1, 1}}));
  EXPECT_EQ(places_of("x", true), (Places{{4, 1, 1}, {1, 0, 0}}));
  EXPECT_EQ(places_of("xa", true), (Places{{4, 1, 1}, {3, 0, 2}}));
  EXPECT_EQ(places_of("axa", true), (Places{{3, 0, 1}, {4, 2, 2}, {3, 2, 3}}));
}

TEST(PostProcessors, LeaveTheSpaceThatIsPutBeforeTheText) {
  EXPECT_EQ(places(R"({"type": "ByteLevel", "trim_offsets": true, "add_prefix_space": true})", true, "a a"),
            (Places{{3, 0, 1}, {3, 2, 3}}));
  EXPECT_EQ(places(R"({"type": "ByteLevel", "trim_offsets": true, "add_prefix_space": false})", true, "a a"),
            (Places{{3, 1, 1}, {3, 2, 3}}));
}

TEST(PostProcessors, PutSpecialTokensAroundTheTextWhereTheyAreAskedFor) {
  const std::string roberta = R"({"type": "RobertaProcessing", "sep": ["</s>", 6], "cls": ["<s>", 5],
    "trim_offsets": true, "add_prefix_space": true})";
  EXPECT_EQ(places(roberta, true, "a a"), (Places{{5, 0, 0}, {3, 0, 1}, {3, 2, 3}, {6, 0, 0}}));
  EXPECT_EQ(places(roberta, true, "a a", false), (Places{{3, 0, 1}, {3, 2, 3}}));
  EXPECT_EQ(places(R"({"type": "BertProcessing", "sep": ["</s>", 6], "cls": ["<s>", 5]})", false, " a"),
            (Places{{5, 0, 0}, {3, 0, 2}, {6, 0, 0}}));
}

// A word goes on in the tokens that spell one of its letters.
TEST(ShownTokens, ContinueAWordWithALetterOfSeveral) {
  const Tokenizer tokenizer =
      Tokenizer::from_json(R"({"decoder": {"type": "ByteLevel"}, )" + file_with("null", false).substr(1));
  std::vector<std::int64_t> ids;
  for (const TextToken& one : tokenizer.encode("aéa aé")) ids.push_back(one.id);
  EXPECT_EQ(tokenizer.shown(ids), (Tokens{"a", "·é 1/2", "é 2/2", "·a", "a", "·é 1/2", "é 2/2"}));
  EXPECT_EQ(tokenizer.shown(std::vector<std::int64_t>{7, 8, 0}), (Tokens{"é 1/2", "é 2/2", "·a"}));
}

// Whole words, whose texts follow each other without spaces; the added tokens are special.
Tokens shown(const Tokens& tokens, const std::string& decoder = R"({"type": "Fuse"})",
             const Tokens& special = {}) {
  nlohmann::json file = {{"model", {{"type", "WordLevel"}, {"unk_token", tokens[0]}}}};
  file["decoder"] = nlohmann::json::parse(decoder);
  for (const std::string& one : tokens) file["model"]["vocab"].emplace(one, file["model"]["vocab"].size());
  for (const std::string& one : special)
    file["added_tokens"].push_back(
        {{"id", file["model"]["vocab"][one]}, {"content", one}, {"special", true}});
  const Tokenizer tokenizer = Tokenizer::from_json(file.dump());
  std::vector<std::int64_t> ids;
  for (const std::string& one : tokens) ids.push_back(tokenizer.id(one).value());
  return tokenizer.shown(ids);
}

TEST(ShownTokens, ContinueWordsOfLettersAndNumbersAlone) {
  for (const auto& [token, label] : {std::pair<std::string, std::string>{"b", "·b"},
                                     {"½", "·½"},
                                     {"7", "·7"},
                                     {"_", "_"},
                                     {"\u0301", "\u0301"},
                                     {"\u200d", "\u200d"},
                                     {"漢", "漢"}})
    EXPECT_EQ(shown({"a", token}), (Tokens{"a", label}));
  EXPECT_EQ(shown({"漢", "a"}), (Tokens{"漢", "a"}));
  EXPECT_EQ(
      shown({"a", "[x", "<x", "x]", "[x]", "<x>"}, R"({"type": "Fuse"})", {"[x", "<x", "x]", "[x]", "<x>"}),
      (Tokens{"a", "⟨[x⟩", "⟨<x⟩", "⟨x]⟩", "[x]", "<x>"}));
}

// A text changes with what follows it, or with where it begins.
TEST(ShownTokens, AreWhatEachAddsToTheText) {
  const std::string replace = R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Replace", )";
  EXPECT_EQ(shown({"a", "b"}, replace + R"("pattern": {"String": "ab"}, "content": ""}]})"),
            (Tokens{"a", ""}));
  const Tokens many(70, "a");
  Tokens expected(70, "·a");
  expected[0] = "X";
  EXPECT_EQ(shown(many, replace + R"("pattern": {"Regex": "^."}, "content": "X"}]})"), expected);
}

TEST(ShownTokens, OfLettersThatAreNotWholeAreMarked) {
  const Tokenizer tokenizer =
      Tokenizer::from_json(R"({"decoder": {"type": "ByteLevel"}, )" + file_with("null", false).substr(1));
  const auto shown_ids = [&](const std::vector<std::int64_t>& ids) { return tokenizer.shown(ids); };
  EXPECT_EQ(shown_ids({7}), Tokens{"\uFFFD"});
  const std::string four = "\uFFFD\uFFFD\uFFFD\uFFFD ";
  EXPECT_EQ(shown_ids({7, 7, 7, 7, 0}),
            (Tokens{four + "1/4", four + "2/4", four + "3/4", four + "4/4", "a"}));
}

TEST(Tokenizers, RefuseWhatIsNoTokenOrTooLong) {
  const Tokenizer tokenizer = Tokenizer::from_json(file_with("null", false));
  const std::vector<std::int64_t> ids = {0, 77};
  EXPECT_EQ(message_of([&] { (void)tokenizer.decode(ids); }), "ids has 77, which is not a token");
  EXPECT_EQ(message_of([&] { (void)tokenizer.shown(ids); }), "ids has 77, which is not a token");
  EXPECT_EQ(tokenizer.token(77), std::nullopt);
  const std::string_view vast("a", std::size_t{1} << 32);  // refused before it is read
  EXPECT_EQ(message_of([&] { (void)tokenizer.encode(vast); }),
            "text has 4294967296 bytes; fewer than 2^32 are expected");
}

// heed remembers the pieces of a short word. It cuts a long word, or one of many pieces, anew each time.
TEST(Tokenizers, CutAWordTheSameWayEachTime) {
  std::string text;
  std::vector<std::int64_t> expected;
  for (const int pairs : {21, 21, 5, 5, 1, 1}) {
    text += text.empty() ? "" : " ";
    for (int i = 0; i < pairs; ++i) {
      text += "ab";
      expected.push_back(i == 0 && text.size() > 2 ? 3 : 0);
      expected.push_back(2);
    }
  }
  std::vector<std::int64_t> ids;
  for (const TextToken& one : Tokenizer::from_json(file_with("null", false)).encode(text))
    ids.push_back(one.id);
  EXPECT_EQ(ids, expected);
}

// tokenizers drops a text that normalisation empties before the pre-tokenizer puts its mark there.
TEST(Tokenizers, GiveNoTokenForATextThatNormalisationEmpties) {
  const Tokenizer tokenizer = Tokenizer::from_json(R"({
      "normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": ""},
      "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
      "model": {"type": "BPE", "vocab": {"▁": 0, "b": 1, "<s>": 2}, "merges": []},
      "added_tokens": [{"id": 2, "content": "<s>", "special": true, "normalized": false}]})");
  EXPECT_TRUE(tokenizer.encode("a").empty());
  EXPECT_TRUE(tokenizer.encode("").empty());
  EXPECT_EQ(tokenizer.encode("a<s>aa"), std::vector<TextToken>({{2, 1, 4, true}}));
  EXPECT_EQ(tokenizer.encode("b"), std::vector<TextToken>({{0, 0, 1, false}, {1, 0, 1, false}}));
}

constexpr const char* kTemplate = R"({"type": "TemplateProcessing", "pair": [], "single": [
    {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
    {"SpecialToken": {"id": "end", "type_id": 0}}], "special_tokens": {
    "<s>": {"id": "<s>", "ids": [5], "tokens": ["<s>"]},
    "end": {"id": "end", "ids": [6, 6], "tokens": ["</s>", "</s>"]}}})";

TEST(PostProcessors, FillTemplates) {
  const Places expected = {{5, 0, 0}, {0, 0, 1}, {3, 1, 3}, {6, 0, 0}, {6, 0, 0}};
  EXPECT_EQ(places(kTemplate, false, "a a"), expected);
  EXPECT_EQ(places(R"({"type": "Sequence", "processors": [)" + std::string(kTemplate) + "]}", false, "a a"),
            expected);
}

TEST(PostProcessors, SayWhichTokensAreSpecial) {
  const auto tokens = Tokenizer::from_json(file_with(kTemplate, false)).encode("a<m><s>");
  ASSERT_EQ(tokens.size(), 6u);
  EXPECT_EQ(tokens[0], (TextToken{5, 0, 0, true}));
  EXPECT_EQ(tokens[1], (TextToken{0, 0, 1, false}));
  EXPECT_EQ(tokens[2], (TextToken{9, 1, 4, false}));
  EXPECT_EQ(tokens[3], (TextToken{5, 4, 7, true}));
}

TEST(PostProcessors, RefuseWhatTheyDoNotKnow) {
  EXPECT_EQ(refusal_of(R"({"type": "Post"})"),
            "'t.json' has a post-processor of type 'Post', which heed does not know");
  EXPECT_EQ(refusal_of(R"({"type": "BertProcessing", "sep": ["[SEP]", 1]})"),
            "'t.json' has a post-processor of type 'BertProcessing' without cls");
  EXPECT_EQ(
      refusal_of(R"({"type": "BertProcessing", "sep": 1, "cls": ["a", 2]})"),
      "'t.json' has a post-processor of type 'BertProcessing' whose sep is not a list of a token and its id");
  EXPECT_EQ(
      refusal_of(R"({"type": "BertProcessing", "sep": ["a"], "cls": ["a", 2]})"),
      "'t.json' has a post-processor of type 'BertProcessing' whose sep is not a list of a token and its id");
  for (const char* id : {"-1", "0.5", "16777216", "null"})
    EXPECT_EQ(
        refusal_of(R"({"type": "BertProcessing", "cls": ["a", 2], "sep": ["a", )" + std::string(id) + "]}"),
        "'t.json' has a post-processor of type 'BertProcessing' with an id that is not a whole number "
        "from 0 to 16777215");
  const std::string pieces = R"({"type": "TemplateProcessing", "special_tokens": {}, "single": )";
  const std::string subject = "'t.json' has a post-processor of type 'TemplateProcessing' ";
  EXPECT_EQ(refusal_of(pieces + "3}"), subject + "whose single form is not a list");
  EXPECT_EQ(refusal_of(pieces + "[]}"), subject + "whose single form has the text 0 times; 1 is expected");
  EXPECT_EQ(refusal_of(pieces + R"([{"Sequence": {"id": "B"}}]})"),
            subject + "whose single form has a text other than A");
  EXPECT_EQ(refusal_of(pieces + R"([{"SpecialToken": {"id": "x"}}]})"),
            subject + "whose single form names a token that special_tokens lacks");
  EXPECT_EQ(refusal_of(R"({"type": "TemplateProcessing", "special_tokens": {"x": {"ids": 3}}, "single":
                           [{"SpecialToken": {"id": "x"}}]})"),
            "'t.json' has a template's special token whose ids is not a list");
}

TEST(PostProcessors, RefuseToAddWhatIsNoToken) {
  EXPECT_EQ(message_of([&] {
              (void)places(R"({"type": "BertProcessing", "sep": ["a", 77], "cls": ["<s>", 5]})", false, "a");
            }),
            "the tokenizer's post-processor adds 77, which is not a token");
}

TEST(Decoders, OfBytesGiveLettersAndMarkWhatIsNone) {
  EXPECT_EQ(decoded(R"({"type": "ByteLevel"})", {"Ġthe", "âĤ", "¬", "Ċ", "âĤ", "x €"}), " the€\n\uFFFDx €");
  EXPECT_EQ(decoded(R"({"type": "ByteLevel"})", {"ð", "Ł", "Ġ", "í", "ł", "Ģ"}), "\uFFFD \uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(decoded(R"({"type": "ByteLevel"})", {}), "");
  EXPECT_EQ(decoded(R"({"type": "ByteLevel"})", {"\u0300x漢"}), "\u0300x漢");
  // The first bytes E0 and F4 leave less room to the second.
  for (const auto& [bytes, text] : {std::pair<Tokens, std::string>{{"E0", "A0", "80"}, "\u0800"},
                                    {{"E0", "9F", "80"}, "\uFFFD\uFFFD\uFFFD"},
                                    {{"F4", "8F", "BF", "BF"}, "\U0010FFFF"},
                                    {{"F4", "90", "80", "80"}, "\uFFFD\uFFFD\uFFFD\uFFFD"},
                                    {{"F5", "80"}, "\uFFFD\uFFFD"}}) {
    Tokens spelled;
    std::string letters;
    for (const std::string& byte : bytes) {
      spelled.push_back("<0x" + byte + ">");
      const auto value = std::stoul(byte, nullptr, 16);  // GPT-2's letters of bytes from A1 on are Latin 1
      heed::detail::append_utf8(static_cast<std::uint32_t>(value < 0xA1 ? 0xA2 + value : value), letters);
    }
    EXPECT_EQ(decoded(R"({"type": "ByteFallback"})", spelled), text);
    EXPECT_EQ(decoded(R"({"type": "ByteLevel"})", {letters}), text) << letters;
  }
}

TEST(Decoders, OfWordPiecePutSpacesBetweenWordsAndNoneBeforePunctuation) {
  EXPECT_EQ(decoded(R"({"type": "WordPiece", "prefix": "##", "cleanup": true})",
                    {"un", "##able", ".", "do", "n't", "'", "##s", "a", " do not"}),
            "unable. don't 's a  don't");
  EXPECT_EQ(decoded(R"({"type": "WordPiece", "prefix": "++", "cleanup": false})",
                    {"++un", "++able", "##able", "."}),
            "++unable ##able .");
}

TEST(Decoders, OfMarksGiveSpaces) {
  EXPECT_EQ(decoded(R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"})",
                    {"▁the▁", "▁▁a", "b▁"}),
            "the  ab ");
  EXPECT_EQ(
      decoded(R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"})", {"▁the▁", "▁a"}),
      " the  a");
  EXPECT_EQ(decoded(R"({"type": "BPEDecoder", "suffix": "</w>"})", {"un", "able</w>", "a</w>b", "c</w>"}),
            "unable a bc");
}

TEST(Decoders, InARowDoWhatLlamaNeeds) {
  EXPECT_EQ(
      decoded(
          R"({"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})",
          {"▁▁the", "<0xE2>", "<0x82>", "<0xac>", "<0xE2>", "a", "<0xZZ>", "<0xE2>", "<0x82>"}),
      " the\uFFFD\uFFFD\uFFFD\uFFFDa<0xZZ>\uFFFD\uFFFD");
  EXPECT_EQ(decoded(R"({"type": "ByteFallback"})", {"<0xE2>", "<0x82>", "<0xAC>"}), "€");
  EXPECT_EQ(decoded(R"({"type": "ByteFallback"})", {"<1x41>", "<0x41)", "<0x4Z>", "<0xG1>", "<0xaf>",
                                                    "<0x4/>", "<0x:1>", "<0x4z>", "<0x41>"}),
            "<1x41><0x41)<0x4Z><0xG1>\uFFFD<0x4/><0x:1><0x4z>A");
}

TEST(Decoders, ReplaceWhatAPatternMatchesInEachToken) {
  const auto replaced = [](const std::string& pattern) {
    return decoded(R"({"type": "Replace", "content": "<>", "pattern": )" + pattern + "}",
                   {"xaab", "", "éb  ba", "abab"});
  };
  EXPECT_EQ(replaced(R"({"Regex": "a+"})"), "x<>béb  b<><>b<>b");
  EXPECT_EQ(replaced(R"({"Regex": "b$"})"), "xaa<>éb  baaba<>");
  EXPECT_EQ(replaced(R"({"Regex": "\\s+|é"})"), "xaab<>b<>baabab");
  EXPECT_EQ(replaced(R"({"Regex": "a|b*"})"), "<>x<><><><>é<> <> <><><><><><>");
  EXPECT_EQ(replaced(R"({"String": "ab"})"), "xa<>éb  ba<><>");
  EXPECT_EQ(replaced(R"({"String": ""})"), "<>x<>a<>a<>b<><>é<>b<> <> <>b<>a<><>a<>b<>a<>b<>");
}

TEST(Decoders, StripNoMoreThanThereIs) {
  const std::string strip = R"({"type": "Strip", "content": "x", "start": 2, "stop": 1})";
  EXPECT_EQ(decoded(strip, {"xxxaxx", "x", "xyx", ""}), "xaxy");
}

TEST(Decoders, RefuseWhatTheyDoNotKnow) {
  const auto refusal = [](const std::string& decoder) {
    return message_of([&] { (void)decoded(decoder, {}); });
  };
  EXPECT_EQ(refusal(R"({"type": "CTC"})"), "'t.json' has a decoder of type 'CTC', which heed does not know");
  EXPECT_EQ(refusal(R"({"type": "Replace", "content": "", "pattern": {"Regex": "(a"}})"),
            "'t.json' has a decoder of type 'Replace' with a pattern that is not a regular expression: '(a'");
  EXPECT_EQ(refusal(R"({"type": "Strip", "content": "", "start": 0, "stop": 0})"),
            "'t.json' has a decoder of type 'Strip' whose content is empty");
  EXPECT_EQ(refusal(R"({"type": "BPEDecoder", "suffix": ""})"),
            "'t.json' has a decoder of type 'BPEDecoder' whose suffix is empty");
  EXPECT_EQ(refusal(R"({"type": "Metaspace", "replacement": ""})"),
            "'t.json' has a decoder of type 'Metaspace' whose replacement is empty");
}

}  // namespace
