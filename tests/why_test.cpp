// heed why: on the shipped induction model, whose circuit is known, and on a wrong command line.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"

namespace {

using heed::test::CommandResult;
using heed::test::run_heed;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

constexpr const char* kText = "to be or not to be or";

CommandResult why(const Words& words) {
  Words all = {"why"};
  all.insert(all.end(), words.begin(), words.end());
  return run_heed(all);
}

Json answer(Words words) {
  words.insert(words.end(), {"--model", "induction", "--json"});
  const CommandResult result = why(words);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  return Json::parse(result.output, nullptr, false);
}

// The part with the largest share.
Json largest(const Json& parts) {
  Json best = parts.at(0);
  for (const Json& part : parts)
    if (part.at("share") > best.at("share")) best = part;
  return best;
}

double sum_of(const Json& parts) {
  double sum = 0;
  for (const Json& part : parts) sum += part.at("share").get<double>();
  return sum;
}

TEST(Why, FindsTheHeadThatWroteTheKeysOfAnInductionHead) {
  const Json made = answer({"be:2", "or:1", kText});
  EXPECT_EQ(made.at("row"), 5);
  EXPECT_EQ(made.at("key"), 2);
  EXPECT_EQ(made.at("head").get<std::string>().substr(0, 2), "1.");
  EXPECT_GT(made.at("weight"), 0.9);
  const Json writer = largest(made.at("key_parts"));
  EXPECT_EQ(writer.at("part").get<std::string>().substr(0, 2), "0.");
  EXPECT_EQ(writer.at("read"), 1);  // the word before "or"
  EXPECT_GT(writer.at("weight"), 0.5);
  EXPECT_EQ(made.at("pairs").at(0).at("key"), writer.at("part"));
}

// The score that the softmax sees comes from the kernel, which knows no parts.
TEST(Why, SharesSumToTheScoreOfTheKernel) {
  for (const char* head : {"1.0", "1.3", "0.2"}) {
    const Json made = answer({"be:2", "or:1", kText, "--head", head});
    EXPECT_EQ(made.at("head"), head);
    const double score = made.at("score");
    EXPECT_NEAR(sum_of(made.at("query_parts")), score, 1e-9);
    EXPECT_NEAR(sum_of(made.at("key_parts")), score, 1e-9);
    EXPECT_NEAR(made.at("biased"), score, 2e-5 * std::max(1.0, std::abs(score)));  // f32 sums of 32 products
  }
}

TEST(Why, ComparesTwoKeysAndTwoTexts) {
  const Json keys = answer({"be:2", "or:1", "--than", "be:1", kText});
  const double more = keys.at("score").get<double>() - keys.at("than").at("score").get<double>();
  EXPECT_NEAR(keys.at("difference").at("score"), more, 1e-9);
  EXPECT_NEAR(sum_of(keys.at("difference").at("key_parts")), more, 1e-9);
  EXPECT_EQ(keys.at("than").at("key"), 1);
  EXPECT_EQ(keys.at("than").at("head"), keys.at("head"));

  const Json texts = answer({"be:2", "or", kText, "--against", "to or be not to be yes"});
  EXPECT_EQ(texts.at("against").at("head"), texts.at("head"));
  EXPECT_EQ(texts.at("against").at("key"), 1);
  EXPECT_LT(texts.at("against").at("weight"), 0.5);
}

TEST(Why, IsToldInSentences) {
  const std::string output = why({"be:2", "or:1", "--model", "induction", kText, "--top", "2"}).output;
  EXPECT_NE(output.find("head 1."), std::string::npos) << output;
  EXPECT_NE(output.find(" looks from be (5) to or (2) with weight "), std::string::npos) << output;
  EXPECT_NE(output.find("\nbecause of what 0."), std::string::npos) << output;
  EXPECT_NE(output.find(" wrote there from be (1) (+"), std::string::npos) << output;
  EXPECT_NE(output.find(" because 0.3 wrote there from be (1) and the token stands here\n"),
            std::string::npos)
      << output;
  EXPECT_NE(output.find(" other pairs\n"), std::string::npos) << output;
}

// Negative shares are the causes of a negative score.
TEST(Why, NamesTheCausesOfANegativeScore) {
  const Words question = {"or:2", "not:1", "--head", "0.0", kText};
  const Json made = answer(question);
  ASSERT_LT(made.at("score"), 0);
  Words words = question;
  words.insert(words.end(), {"--model", "induction"});
  const std::string output = why(words).output;
  for (const auto& [side, where] : {std::pair{"key_parts", "there"}, std::pair{"query_parts", "here"}}) {
    const Json& parts = made.at(side);
    const Json cause = *std::min_element(parts.begin(), parts.end(), [](const Json& a, const Json& b) {
      return a.at("share") < b.at("share");
    });
    char share[32];
    std::snprintf(share, sizeof share, "%.3f", cause.at("share").get<double>());
    const std::string told =
        "of the " + cause.at("part").get<std::string>() + " " + where + " (" + share + ")";
    EXPECT_NE(output.find(told), std::string::npos) << told << "\n" << output;
  }
  const double largest = made.at("pairs").at(0).at("share");
  ASSERT_LT(largest, 0);
  EXPECT_EQ(output.find("   although "), output.find("   although ", output.find("   because "))) << output;
}

TEST(Why, SaysWhatIsWrong) {
  std::string many = "a";
  for (int i = 1; i < 33; ++i) many += " a";
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"be", "or", kText}, "--model is missing: the model that reads the text"},
      {{"be", "or", "--model", "induction"}, "no text is given; WORDS are expected after --model DIR"},
      {{"be", "or", "--model", "induction", kText, "--head", "1"},
       "--head is '1'; a layer and a head, such as 1.3, is expected"},
      {{"be", "or", "--model", "induction", kText, "--than", "to", "--against", kText},
       "--than is given together with --against; one comparison is expected"},
      {{"be", "cat", "--model", "induction", kText}, "KEY is 'cat', which is not a word of the text"},
      {{"be:1", "not", "--model", "induction", kText},
       "heed: keys has 3, which row 1 may not see; a visible key is expected"},
      {{"be:1", "to", "--than", "not", "--model", "induction", kText},
       "heed: than has 3, which row 1 may not see; a visible key is expected"},
      {{"be:2", "or:1", "--than", "or:1", "--model", "induction", kText},
       "--than is 'or:1', the same token as KEY; another word is expected"},
      {{"be", "to:1", "--than", "not", "--head", "0.3", "--model", "induction", "to be not a b be"},
       "heed: than has 2, which row 1 may not see; a visible key is expected"},
      {{"a", "a", "--model", "induction", many}, "ROW is 'a', which is 33 tokens; at most 32 are expected"},
  };
  for (const auto& [words, message] : cases) {
    const CommandResult result = why(words);
    EXPECT_EQ(result.exit_code, 2) << message;
    EXPECT_NE(result.errors.find(message), std::string::npos) << result.errors;
  }
}

}  // namespace
