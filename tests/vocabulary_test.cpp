#include "heed/io/vocabulary.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support.hpp"

namespace {

using heed::split_words;
using heed::Vocabulary;
using heed::test::message_of;
using Words = std::vector<std::string>;

TEST(SplitWords, SplitsAtCommasAndAnyWhiteSpace) {
  EXPECT_EQ(split_words("Life is short, eat dessert first"),
            (Words{"Life", "is", "short", "eat", "dessert", "first"}));
  EXPECT_EQ(split_words("\tone\n two\r\nthree\v\ffour  "), (Words{"one", "two", "three", "four"}));
  EXPECT_EQ(split_words("a,b , c,"), (Words{"a", "b", "c"}));
  EXPECT_EQ(split_words(",a,b,,c"), (Words{"a", "b", "c"}));
  EXPECT_EQ(split_words(" , \n"), Words{});
}

TEST(SplitWords, KeepsTheBytesOfUtf8) {
  // U+00A0 (C2 A0) and U+0085 (C2 85) have bytes that some locales treat as white space.
  EXPECT_EQ(split_words("na\u00efve \u4f60\u597d a\u00a0b \u0085"),
            (Words{"na\u00efve", "\u4f60\u597d", "a\u00a0b", "\u0085"}));
  EXPECT_EQ(split_words(std::string_view("a\0b", 3)), (Words{std::string("a\0b", 3)}));
}

TEST(Vocabulary, SortsWordsByTheirBytesAndNumbersThemFromZero) {
  const Vocabulary vocabulary("Life is short, eat dessert first");
  EXPECT_EQ(vocabulary.words(), (Words{"Life", "dessert", "eat", "first", "is", "short"}));
  EXPECT_EQ(vocabulary.id("short"), 5);
  EXPECT_EQ(vocabulary.word(0), "Life");
  EXPECT_EQ(Vocabulary("\u00e9 z Z").words(), (Words{"Z", "z", "\u00e9"}));
}

TEST(Vocabulary, GivesRepeatedWordsOneNumberAndLeavesNoGaps) {
  const Vocabulary vocabulary("the dog and the cat and the fox");
  EXPECT_EQ(vocabulary.words(), (Words{"and", "cat", "dog", "fox", "the"}));
  for (std::int64_t id = 0; id < vocabulary.size(); ++id) EXPECT_EQ(vocabulary.id(vocabulary.word(id)), id);
}

TEST(Vocabulary, EncodesWordsAsInt64) {
  const std::string sentence = "the quick brown fox jumps over a lazy dog";
  const heed::Tensor ids = Vocabulary(sentence).encode(split_words(sentence));
  const std::int64_t expected[] = {8, 7, 1, 3, 4, 6, 0, 5, 2};  // printed by the notebook
  ASSERT_EQ(ids.shape(), heed::Dims{9});
  for (int i = 0; i < 9; ++i) EXPECT_EQ(ids.at<std::int64_t>(i), expected[i]) << i;
}

TEST(Vocabulary, OfAnEmptySentenceIsEmpty) {
  const Vocabulary vocabulary("");
  EXPECT_EQ(vocabulary.size(), 0);
  EXPECT_EQ(vocabulary.encode({}).shape(), heed::Dims{0});
}

TEST(Vocabulary, SaysWhichWordOrNumberItLacks) {
  const Vocabulary vocabulary("a b");
  EXPECT_EQ(message_of([&] { (void)vocabulary.id("c"); }),
            "the word 'c' is not in the vocabulary, which has 2 words");
  EXPECT_EQ(message_of([&] {
              (void)vocabulary.encode({"a", "c"});
            }),
            "the word 'c' is not in the vocabulary, which has 2 words");
  for (const std::int64_t id : {-1, 2})
    EXPECT_EQ(
        message_of([&] { (void)vocabulary.word(id); }),
        "word number " + std::to_string(id) + " is not in the vocabulary, which has 2 words numbered from 0");
}

}  // namespace
