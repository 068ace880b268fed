// heed heads: composition, examples and lost keys on the shipped models, files that it writes, wrong command
// lines.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"

namespace {

using heed::test::CommandResult;
using heed::test::run_heed;
using heed::test::TemporaryFolder;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

constexpr const char* kText = "to be or not to be or not to be or not";

CommandResult heads(const Words& words) {
  Words all = {"heads", "--model", "induction"};
  all.insert(all.end(), words.begin(), words.end());
  return run_heed(all);
}

Json answer(Words words) {
  words.push_back("--json");
  const CommandResult result = heads(words);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  return Json::parse(result.output, nullptr, false);
}

std::string written(const TemporaryFolder& folder, const std::string& text) {
  const std::string file = folder / "lines.txt";
  heed::test::write_file(file, text);
  return file;
}

// Layer 1 finds the word behind an earlier copy by what head 0.3 wrote into its keys.
TEST(Heads, ComposeAsTheInductionCircuitDoes) {
  const Json made = answer({"--compose", "--top", "4"});
  ASSERT_EQ(made.at("key").size(), 4U);
  for (const Json& pair : made.at("key")) {
    EXPECT_EQ(pair.at("writer"), "0.3");
    EXPECT_GT(pair.at("score"), 2 * made.at("random").get<double>());
  }
  const std::string text = heads({"--compose", "--top", "1"}).output;
  EXPECT_NE(text.find("Independent random weights score 0.125.\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\ninto the key\n  0.28"), std::string::npos) << text;
  EXPECT_NE(text.find("0.3 → 1."), std::string::npos) << text;
}

TEST(Heads, HaveExamplesInManyTexts) {
  const TemporaryFolder folder;
  const std::string file = written(folder, "the cat sat on the cat\r\n\n  \nto be or not to be\n");
  const Json made = answer({"--lines", file, "--head", "1.0"});
  EXPECT_EQ(made.at("texts"), 2);  // empty lines are none
  ASSERT_EQ(made.at("heads").size(), 1U);
  const Json& examples = made.at("heads").at(0).at("examples");
  ASSERT_EQ(examples.size(), 2U);
  EXPECT_EQ(made.at("heads").at(0).at("looks_like"), "induction");
  for (const Json& example : examples) {
    const bool cat = example.at("line") == 1;
    EXPECT_TRUE(cat || example.at("line") == 4);
    EXPECT_EQ(example.at("words"), cat ? "the cat «sat» on the [cat]" : "to be «or» not to [be]");
    EXPECT_EQ(example.at("row"), 5);
    EXPECT_EQ(example.at("key"), 2);
  }
  // A symbol means another word in each text.
  EXPECT_TRUE(made.at("heads").at(0).at("rows").empty());
  EXPECT_FALSE(made.at("heads").at(0).at("distances").empty());
  EXPECT_EQ(answer({"--lines", file}).at("heads").size(), 8U);
  const std::string all = heads({"--lines", file}).output;
  EXPECT_NE(all.find("\n1.0  "), std::string::npos) << all;
  const std::string one = heads({"--lines", file, "--head", "1.0"}).output;
  EXPECT_NE(one.find("the cat «sat» on the [cat]\n"), std::string::npos) << one;
  EXPECT_NE(one.find("\nhow far: "), std::string::npos) << one;
}

TEST(Heads, ShowWhereTheirWordsStandFarApart) {
  const TemporaryFolder folder;
  const std::string file =
      written(folder, "the cat sat on the mat with the dog and a fox while the cat slept");
  const Json made = answer({"--lines", file, "--head", "1.3"});
  EXPECT_EQ(made.at("heads").at(0).at("examples").at(0).at("words"),
            "the cat «sat» on the mat … fox while the [cat] slept");
  const CommandResult letters = run_heed(
      {"heads", "--model", "stories", "--lines", written(folder, "Anna had a ball."), "--head", "0.2"});
  EXPECT_NE(letters.output.find("«A»[n]na had a"), std::string::npos) << letters.output;
  EXPECT_NE(letters.output.find("\nlooks from: "), std::string::npos) << letters.output;
}

// The same numbers as heed look --evict says of a layer.
TEST(Heads, LoseWhatEvictionSays) {
  const Json kept = answer({"--keep", "1+3", kText});
  ASSERT_EQ(kept.at("heads").size(), 8U);
  for (const std::string layer : {"0", "1"}) {
    const CommandResult result = run_heed({"look", "--model", "induction", kText, "--layer", layer, "--evict",
                                           "streaming:1+3", "--prompt", "4", "--json"});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    const Json look = Json::parse(result.output, nullptr, false);
    for (const Json& head : look.at("evictions").at(0).at("heads")) {
      const std::string name = layer + "." + head.at("head").dump();
      for (const Json& one : kept.at("heads")) {
        if (one.at("head") == name) {
          EXPECT_NEAR(one.at("lost"), head.at("mean"), 1e-6) << name;
        }
      }
    }
  }
  for (const Json& one : kept.at("heads")) {
    EXPECT_EQ(one.at("kind"), one.at("lost") > 0.05 ? "retrieval" : "streaming");
    EXPECT_EQ(one.at("copies") > 0.9, one.at("head").get<std::string>()[0] == '1') << one;
  }
}

TEST(Heads, AreSavedForCachesAsJsonAndAsATable) {
  const TemporaryFolder folder;
  const std::string json = folder / "heads.json", table = folder / "heads.tsv";
  const Words words = {"--keep", "1+3", "--lost", "0.5", "--text", written(folder, kText)};
  for (const std::string& file : {json, table}) {
    Words more = words;
    more.insert(more.end(), {"--save", file});
    const CommandResult result = heads(more);
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_NE(result.output.find(" heads of 8 would lose more than 50.0 % of the weights"), std::string::npos)
        << result.output;
  }
  const Json saved = Json::parse(heed::test::read_file(json), nullptr, false);
  EXPECT_EQ(saved, answer({"--keep", "1+3", "--lost", "0.5", kText}));
  std::ifstream lines(table);
  for (const Json& one : saved.at("heads")) {  // as many key heads as heads
    double score = -1;
    lines >> score;
    EXPECT_NEAR(score, one.at("lost"), 1e-5);
  }
}

TEST(Heads, SaysWhatIsWrong) {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{}, "no question is given; one of --compose, --lines FILE and --keep SINKS+WINDOW is expected"},
      {{"--compose", "--keep", "4+64"}, "several questions are given; one of"},
      {{"--compose", kText}, "a text is given without --keep, which would read it"},
      {{"--compose", "--save", "a.json"}, "--save is given without --keep, which takes it"},
      {{"--compose", "--head", "1.0"}, "--head is given without --lines FILE"},
      {{"--keep", "4+64"}, "no text is given; WORDS or --text FILE is expected with --keep"},
      {{"--keep", "4+0", kText}, "--keep is '4+0'; a number of first keys and one of last keys"},
      {{"--keep", "1+3", "--lost", "2", kText}, "--lost is 2"},
      {{"--keep", "1+3", "--save", "a.txt", kText},
       "--save is 'a.txt'; a file whose name ends in .json or .tsv is expected"},
      {{"--keep", "4+64", kText},
       "--keep is '4+64', which keeps all of the 12 tokens of the text; a longer text is expected"},
      {{"--keep", "9223372036854775807+1", kText}, "which keeps all of the 12 tokens"},
      {{"--keep", "1+3", "--text", "x", kText}, "a text is given together with --text; one text is expected"},
      {{"--lines", "/dev/null", "--head", "2.0"}, "--head is '2.0'; layers 0 to 1 with heads 0 to 3 are"},
      {{"--lines", "x.txt", "--top", "3"},
       "--top is given without --head L.H or --json; the table has the best example of every head"},
      {{"--lines", "/dev/null"}, "--lines is '/dev/null', which has no text; one a line is expected"},
  };
  for (const auto& [words, message] : cases) {
    const CommandResult result = heads(words);
    EXPECT_EQ(result.exit_code, 2) << message;
    EXPECT_NE(result.errors.find(message), std::string::npos) << message << '\n' << result.errors;
  }
}

}  // namespace
