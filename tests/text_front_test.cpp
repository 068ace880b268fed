#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/utf8.hpp"
#include "heed/model/tokenizer.hpp"
#include "support.hpp"
#include "text/known_patterns.hpp"
#include "text/normalizer.hpp"
#include "text/pre_tokenizer.hpp"
#include "text/regex.hpp"
#include "text/shared/unicode.hpp"
#include "text_front_cases.hpp"

namespace heed::test {

void PrintTo(const TextPart& part, std::ostream* out) {
  *out << part.text << " [" << part.begin << ", " << part.end << ")";
}

namespace {

using detail::AlignedText;
using detail::JsonPart;
using detail::normalizer_from;
using detail::pre_tokenizer_from;
using detail::Regex;
using detail::TextRange;
using detail::Words;
using nlohmann::json;

AlignedText normalized(const std::string& part, const std::string& text) {
  const json value = json::parse(part);
  AlignedText result(text);
  normalizer_from(JsonPart(value, "'t.json'", "a normalizer"))(result);
  return result;
}

std::vector<TextPart> words_of(const std::string& part, AlignedText text) {
  const json value = json::parse(part);
  const std::size_t size = text.size();
  Words words{std::move(text), {{0, size}}};
  pre_tokenizer_from(JsonPart(value, "'t.json'", "a pre-tokenizer"))(words);
  std::vector<TextPart> parts;
  for (const auto& word : words.words) {
    const auto span = words.text.span(word.begin, word.end);
    parts.push_back({words.text.text().substr(word.begin, word.end - word.begin), span.begin, span.end});
  }
  return parts;
}

std::string refusal_of(const std::string& file) {
  return message_of([&] { (void)Tokenizer::from_json(file, "t.json"); });
}

// A tokenizer of whole words, with other parts added to its file.
std::string word_list(const std::string& parts) {
  return R"({"model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "?": 2, "▁a": 3}, "unk_token": "?"})" +
         parts + "}";
}

TEST(TextFront, NormalizersGiveWhatTokenizersGivesAndKeepThePlaces) {
  for (const FrontCase& one : normalizer_cases())
    EXPECT_EQ(words_of(R"({"type": "FixedLength", "length": 1})", normalized(one.part, one.text)),
              one.expected)
        << one.part;
}

using Ranges = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

// tokenizers 0.23.3 drops these code points, makes a space of them, or puts spaces around them. It keeps all
// others.
struct Changes {
  const char* part;
  Ranges dropped, blank, apart;
};

TEST(TextFront, NormalizersChangeTheSameCodePointsAsTokenizers) {
  const std::vector<Changes> all = {
      {R"({"type": "Nmt"})",
       {{0x1, 0x8}, {0xb, 0xb}, {0xe, 0x1f}, {0x7f, 0x7f}, {0x8f, 0x8f}, {0x9f, 0x9f}},
       {{0x9, 0xa},
        {0xc, 0xd},
        {0x1680, 0x1680},
        {0x200b, 0x200f},
        {0x2028, 0x2029},
        {0x2581, 0x2581},
        {0xfeff, 0xfeff},
        {0xfffd, 0xfffd}},
       {}},
      {R"({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": false, "lowercase": false})",
       {{0x0, 0x8},         {0xb, 0xc},         {0xe, 0x1f},        {0x7f, 0x9f},       {0xad, 0xad},
        {0x600, 0x605},     {0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x180e, 0x180e},
        {0x200b, 0x200f},   {0x202a, 0x202e},   {0x2060, 0x2064},   {0x2066, 0x206f},   {0xe000, 0xf8ff},
        {0xfeff, 0xfeff},   {0xfff9, 0xfffb},   {0xfffd, 0xfffd},   {0x110bd, 0x110bd}, {0x1bca0, 0x1bca3},
        {0x1d173, 0x1d17a}, {0xe0001, 0xe0001}, {0xe0020, 0xe007f}, {0xf0000, 0xffffd}, {0x100000, 0x10fffd}},
       {{0x9, 0xa},
        {0xd, 0xd},
        {0xa0, 0xa0},
        {0x1680, 0x1680},
        {0x2000, 0x200a},
        {0x2028, 0x2029},
        {0x202f, 0x202f},
        {0x205f, 0x205f},
        {0x3000, 0x3000}},
       {}},
      {R"({"type": "BertNormalizer", "clean_text": false, "handle_chinese_chars": true, "lowercase": false})",
       {},
       {},
       {{0x3400, 0x4dbf},
        {0x4e00, 0x9fff},
        {0xf900, 0xfaff},
        {0x20000, 0x2a6df},
        {0x2a700, 0x2b81f},
        {0x2b920, 0x2ceaf},
        {0x2f800, 0x2fa1f}}}};
  for (const Changes& one : all) {
    std::vector<char> signs(0x110000, '=');
    for (const auto& [ranges, sign] : {std::pair{&one.dropped, '-'}, {&one.blank, ' '}, {&one.apart, '|'}})
      for (const auto& [first, last] : *ranges)
        std::fill(signs.begin() + first, signs.begin() + last + 1, sign);
    std::string text, expected;
    for (std::uint32_t point = 0; point < 0x110000; point == 0xD7FF ? point = 0xE000 : ++point) {
      const char sign = signs[point];
      detail::append_utf8(point, text += 'a');
      expected += 'a';
      if (sign == '=') detail::append_utf8(point, expected);
      if (sign == ' ') expected += ' ';
      if (sign == '|') detail::append_utf8(point, expected += ' '), expected += ' ';
    }
    EXPECT_TRUE(normalized(one.part, text).text() == expected) << one.part;
  }
}

TEST(TextFront, PreTokenizersCutWhereTokenizersCuts) {
  for (const FrontCase& one : pre_tokenizer_cases())
    EXPECT_EQ(words_of(one.part, AlignedText(one.text)), one.expected) << one.part;
}

// Letters, digits, spaces, line breaks, contractions, and code points from all of Unicode.
std::string random_text(std::mt19937& random) {
  static const std::vector<std::string> pieces = {"a",   "Zz", "é",  "漢",   "1",  "22",     "٣",     "½",
                                                  " ",   "  ", "\n", "\r\n", "\t", "\u00a0", "'",     "'s",
                                                  "'LL", "'ſ", "!",  "-_",   "👍",  "\u0301", "\u2028"};
  std::string text;
  for (auto left = random() % 24; left > 0; --left) {
    const auto point = static_cast<std::uint32_t>(random() % 0x110000);
    const bool any = random() % 8 == 0 && (point < 0xD800 || point > 0xDFFF);
    if (any)
      detail::append_utf8(point, text);
    else
      text += pieces[random() % pieces.size()];
  }
  return text;
}

// The words of tokenizers 0.23.3.
TEST(TextFront, MarksAndSpacesStandBeforeWordsOnce) {
  using Parts = std::vector<TextPart>;
  EXPECT_EQ(words_of(R"({"type": "Metaspace", "replacement": "▁"})", AlignedText("▁a b")),
            (Parts{{"▁a", 0, 4}, {"▁b", 4, 6}}));
  EXPECT_EQ(words_of(R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never",
                         "add_prefix_space": false})",
                     AlignedText("a b")),
            (Parts{{"a", 0, 1}, {"▁b", 1, 3}}));
  EXPECT_EQ(words_of(R"({"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"String": "x"}, "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": true, "use_regex": false, "trim_offsets": true}]})",
                     AlignedText("a x b")),
            (Parts{{"ĠaĠ", 0, 2}, {"Ġx", 2, 3}, {"Ġb", 3, 5}}));
  EXPECT_EQ(
      words_of(
          R"({"type": "Split", "pattern": {"String": "x"}, "behavior": "MergedWithNext", "invert": false})",
          AlignedText("axxbxc")),
      (Parts{{"a", 0, 1}, {"x", 1, 2}, {"xb", 2, 4}, {"xc", 4, 6}}));
}

TEST(TextFront, WordsFoundByHandAreThoseOfTheRegularExpression) {
  const json none = json::object();
  std::mt19937 random(15);
  for (const std::string_view pattern :
       {detail::kWordsOfGpt2, detail::kWordsOfLlama3, detail::kWordsOfQwen2}) {
    const Regex regex(std::string(pattern), JsonPart(none, "'t.json'", "a pattern"));
    for (std::uint64_t left = share_of(20'000); left > 0; --left) {
      const std::string text = random_text(random);
      const auto by_hand = detail::known_pattern(pattern)(text);
      const auto by_regex = regex.find(text);
      ASSERT_TRUE(std::equal(
          by_hand.begin(), by_hand.end(), by_regex.begin(), by_regex.end(),
          [](const TextRange& a, const TextRange& b) { return a.begin == b.begin && a.end == b.end; }))
          << pattern << "\n"
          << json(text).dump(-1, ' ', true);
    }
  }
}

TEST(TextFront, ARegularExpressionThatGoesBackForEverIsStopped) {
  const json none = json::object();
  const Regex regex("(a|a)*[bc][de]", JsonPart(none, "'t.json'", "a pattern"));
  EXPECT_EQ(message_of([&] { (void)regex.find(std::string(100, 'a') + "bb"); }),
            "text needs too many steps of the tokenizer's regular expression at byte 0");
}

TEST(TextFront, TextThatIsNotUtf8IsRefusedByItsByte) {
  const auto tokenizer = Tokenizer::from_json(word_list(""));
  EXPECT_EQ(message_of([&] { (void)tokenizer.encode("aé\xff"); }), "text is not UTF-8 at byte 3");
  EXPECT_EQ(message_of([&] { (void)tokenizer.encode("\xed\xa0\x80"); }), "text is not UTF-8 at byte 0");
}

TEST(TextFront, AddedTokensAreFoundBeforeAndAfterNormalisation) {
  const auto tokenizer = Tokenizer::from_json(word_list(R"(,
    "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "WhitespaceSplit"},
    "added_tokens": [
      {"id": 4, "content": "<S>", "special": true, "lstrip": true, "rstrip": true, "normalized": false},
      {"id": 5, "content": "<S>x", "special": true, "normalized": false},
      {"id": 6, "content": "Day", "special": false, "normalized": true, "single_word": true}])"));
  // The longest added token at a position wins. The first one takes white space around it. The third matches
  // in any case, but not within a word.
  EXPECT_EQ(tokenizer.encode("a  <S> b<S>x dAY aday"), (std::vector<TextToken>{{0, 0, 1, false},
                                                                               {4, 1, 7, true},
                                                                               {1, 7, 8, false},
                                                                               {5, 8, 12, true},
                                                                               {6, 13, 16, false},
                                                                               {2, 17, 21, false}}));
  EXPECT_EQ(tokenizer.encode("<s>").front().id, 2);
  EXPECT_EQ(tokenizer.size(), 7);
  EXPECT_TRUE(tokenizer.is_special(5));
  EXPECT_FALSE(tokenizer.is_special(6));
  EXPECT_EQ(tokenizer.id("Day"), 6);
  EXPECT_EQ(tokenizer.token(5), "<S>x");
}

// The ids of tokenizers 0.23.3.
TEST(TextFront, AddedTokensTakeTheSpacesBesideThem) {
  const auto ids = [](const std::string& text, const std::string& space) {
    const auto tokenizer = Tokenizer::from_json(word_list(R"(, "added_tokens": [
        {"content": "<m>", "lstrip": true, "normalized": false}, {"content": "<r>", "rstrip": true, "normalized": false},
        {"content": "<w>", "single_word": true, "normalized": false}, {"content": " ", "normalized": false)" +
                                                          space + R"(},
        {"content": "<m>", "lstrip": true, "normalized": false}])"));
    std::vector<std::int64_t> all;
    for (const TextToken& one : tokenizer.encode(text)) all.push_back(one.id);
    return all;
  };
  using Ids = std::vector<std::int64_t>;
  EXPECT_EQ(ids("  <m>", ""), (Ids{7, 7, 4}));
  EXPECT_EQ(ids("<r>  ", ""), (Ids{5, 7, 7}));
  EXPECT_EQ(ids("<r>  <r>", ""), (Ids{5, 7, 7, 5}));
  EXPECT_EQ(ids("<w>", ""), Ids{6});
  EXPECT_EQ(ids("<w> a", ""), (Ids{6, 7, 0}));
  EXPECT_EQ(ids("<w><w>", ""), (Ids{6, 6}));
  for (const char* word : {"a<w>", "<w>a"}) EXPECT_EQ(ids(word, ""), Ids{2});
  const std::string takes = R"(, "lstrip": true)";
  EXPECT_EQ(ids("<r> ", takes), Ids{5});         // nothing is left of the space
  EXPECT_EQ(ids("<r>  a", takes), (Ids{5, 0}));  // tokenizers panics
}

TEST(TextFront, TheFirstWordAloneIsMarkedWhereTheSchemeSaysFirst) {
  const auto tokenizer = Tokenizer::from_json(word_list(R"(,
    "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": true},
    "added_tokens": [{"id": 4, "content": "<s>", "special": true, "normalized": false}])"));
  EXPECT_EQ(tokenizer.encode("a<s>a"),
            (std::vector<TextToken>{{3, 0, 1, false}, {4, 1, 4, true}, {0, 4, 5, false}}));
}

TEST(TextFront, FilesWithPartsThatAreNotKnownAreRefused) {
  EXPECT_EQ(refusal_of(word_list(R"(, "version": "2.0")")), "'t.json' has a value whose version is not 1.0");
  EXPECT_EQ(refusal_of(word_list(R"(, "version": 1.0)")),
            "'t.json' has a value whose version is not a string");
  EXPECT_EQ(refusal_of(word_list(R"(, "truncate": null)")),
            "'t.json' has a value with a member 'truncate', which heed does not know");
  EXPECT_EQ(refusal_of(word_list(R"(, "truncation": 5)")),
            "'t.json' has a truncation that is not a JSON object");
  EXPECT_EQ(refusal_of(word_list(R"(, "truncation": {"max_length": 4, "stride": 0, "strategy": "First"})")),
            "'t.json' has a truncation whose strategy is not LongestFirst, OnlyFirst or OnlySecond");
  EXPECT_EQ(refusal_of(word_list(R"(, "padding": {"pad_id": -1})")),
            "'t.json' has a padding whose pad_id is not a whole number from 0 to 4294967295");
  EXPECT_EQ(refusal_of(word_list(R"(, "normalizer": {"type": "Foo"})")),
            "'t.json' has a normalizer of type 'Foo', which heed does not know");
  EXPECT_EQ(refusal_of(word_list(R"(, "pre_tokenizer": {"type": "UnicodeScripts"})")),
            "'t.json' has a pre-tokenizer of type 'UnicodeScripts', which heed does not know");
  EXPECT_EQ(
      refusal_of(word_list(R"(, "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a"},
                                     "behavior": "Isolated", "invert": false})")),
      "'t.json' has a pre-tokenizer of type 'Split' with a pattern that is not a regular expression: '(a'");
  EXPECT_EQ(refusal_of(word_list(R"(, "pre_tokenizer": {"type": "Punctuation", "behavior": "Kept"})")),
            "'t.json' has a pre-tokenizer of type 'Punctuation' whose behavior is not Removed, Isolated, "
            "MergedWithPrevious, MergedWithNext or Contiguous");
  const auto mark = [](const std::string& members) {
    return refusal_of(word_list(R"(, "pre_tokenizer": {"type": "Metaspace", )" + members + "}"));
  };
  const std::string metaspace = "'t.json' has a pre-tokenizer of type 'Metaspace' ";
  for (const char* odd : {"", "▁▁"}) {
    EXPECT_EQ(mark(R"("replacement": ")" + std::string(odd) + "\""),
              metaspace + "whose replacement is not a single code point");
    EXPECT_EQ(refusal_of(word_list(R"(, "pre_tokenizer": {"type": "CharDelimiterSplit", "delimiter": ")" +
                                   std::string(odd) + "\"}")),
              "'t.json' has a pre-tokenizer of type 'CharDelimiterSplit' whose delimiter is not a single "
              "code point");
  }
  EXPECT_EQ(mark(R"("replacement": "▁", "prepend_scheme": "maybe")"),
            metaspace + "whose prepend_scheme is not always, first or never");
  EXPECT_EQ(refusal_of(word_list(
                R"(, "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "maybe"})")),
            "'t.json' has a decoder of type 'Metaspace' whose prepend_scheme is not always, first or never");
  EXPECT_EQ(mark(R"("replacement": "▁", "prepend_scheme": "first", "add_prefix_space": false)"),
            metaspace + "whose add_prefix_space is false, but prepend_scheme is first");
  EXPECT_EQ(
      refusal_of(word_list(R"(, "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAA"})")),
      "'t.json' has a normalizer of type 'Precompiled' whose precompiled_charsmap is not in base 64");
  EXPECT_EQ(
      refusal_of(word_list(R"(, "normalizer": {"type": "Precompiled", "precompiled_charsmap": "////fw=="})")),
      "'t.json' has a normalizer of type 'Precompiled' whose precompiled_charsmap is cut off");
  EXPECT_EQ(refusal_of(word_list(R"(, "added_tokens": [{"content": ""}])")), "no error");  // none
  EXPECT_EQ(refusal_of(word_list(R"(, "added_tokens": {})")),
            "'t.json' has a value whose added_tokens is not a list");
  EXPECT_EQ(refusal_of(word_list(
                R"(, "normalizer": {"type": "Strip", "strip_left": true, "strip_right": true},
                     "added_tokens": [{"content": " "}])")),
            "'t.json' has an added token ' ' that is, normalised, 0 bytes long; 1 to 1024 is expected");
  for (const char* id : {"-1", "0.5", "\"4\"", "true", "18446744073709551615", "9223372036854775808"})
    EXPECT_EQ(
        refusal_of(word_list(R"(, "added_tokens": [{"content": "<s>", "id": )" + std::string(id) + "}]")),
        "'t.json' has an added token whose id is not a whole number from 0 to 16777216");
  EXPECT_EQ(refusal_of(word_list(R"(, "added_tokens": [{"id": 9, "content": "<s>"}])")),
            "'t.json' has an added token '<s>' with id 9, but the vocabulary gives 4");
  // tokenizers 0.23.3 takes one of them at random.
  EXPECT_EQ(
      refusal_of(word_list(R"(, "normalizer": {"type": "Lowercase"}, "added_tokens": [
                {"id": 4, "content": "Day"}, {"id": 5, "content": "day", "normalized": false},
                {"id": 6, "content": "DAY"}])")),
      "'t.json' has an added token 'DAY' that is, normalised, also the added token with id 4; tokenizers "
      "takes either");
  EXPECT_EQ(refusal_of("{\"model\": "), "'t.json' is not JSON");
}

}  // namespace
}  // namespace heed::test
