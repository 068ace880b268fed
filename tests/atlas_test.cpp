// Tests of heed atlas and heed look --png: output and errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "command.hpp"
#include "heed/model/look.hpp"
#include "support.hpp"

namespace {

namespace fs = std::filesystem;
using heed::test::CommandInput;
using heed::test::CommandResult;
using heed::test::read_file;
using heed::test::run_heed;
using heed::test::TemporaryFolder;
using heed::test::write_file;
using Words = std::vector<std::string>;

constexpr const char* kText = "to be or not to be or";
const Words kModel = {"--model", "induction"};

class Atlas : public ::testing::Test {
 protected:
  [[nodiscard]] CommandResult run(Words words, const Words& more = {}) const {
    words.insert(words.end(), more.begin(), more.end());
    CommandInput input;
    input.directory = folder.path();
    return run_heed(words, input);
  }
  void expect_refusal(const Words& words, const std::string& message, int exit_code = 2) const {
    const CommandResult result = run(words);
    EXPECT_EQ(result.exit_code, exit_code);
    EXPECT_EQ(result.errors, "heed: " + message + "\n");
    EXPECT_EQ(result.output, "");
  }
  // Writes a picture and returns the file's bytes; the command must succeed.
  [[nodiscard]] std::string drawn(const Words& words, const std::string& file) const {
    const CommandResult result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return read_file(folder / file);
  }

  TemporaryFolder folder;
};

TEST_F(Atlas, AllHeadsOfAModelAreOnAPageInTheFormatOfItsEnding) {
  for (const auto& [ending, begins] : std::vector<std::pair<std::string, std::string>>{
           {"png", "\x89PNG"}, {"svg", "<?xml"}, {"pdf", "%PDF-"}}) {
    const CommandResult result = run({"atlas", "--model", "induction", kText, "--out", "a." + ending});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(result.output, "Drew 8 heads on A3, a." + ending + ".\n");
    EXPECT_EQ(read_file(folder / ("a." + ending)).substr(0, begins.size()), begins);
  }
}

TEST_F(Atlas, TheSameCommandWritesTheSameBytes) {
  for (const std::string file : {"a.svg", "a.pdf", "a.png"}) {
    const Words words = {"atlas", "--model", "induction", kText, "--out", file};
    const std::string once = drawn(words, file);
    EXPECT_TRUE(once == drawn(words, file)) << file;
  }
}

TEST_F(Atlas, ASavedDocumentHasTheSamePosterAsTheModel) {
  const heed::Model model = heed::load_model(HEED_SOURCE_DIR "/models/induction");
  heed::Document document = document_of_text(model, model.tokenize(kText));
  fill_report(document);
  save_document(folder / "doc.safetensors", document);
  EXPECT_TRUE(drawn({"atlas", "doc.safetensors", "--title", "x", "--out", "d.svg"}, "d.svg") ==
              drawn({"atlas", "--model", "induction", kText, "--title", "x", "--out", "m.svg"}, "m.svg"));
}

// Both sentences have the same tokens.
TEST_F(Atlas, ThePosterSaysTheSentenceAsTyped) {
  EXPECT_NE(drawn({"atlas", "--model", "induction", "to be, or not", "--out", "a.svg"}, "a.svg"),
            drawn({"atlas", "--model", "induction", "to be or not", "--out", "b.svg"}, "b.svg"));
}

// The row's word, three times one letter, begins the line that says what the head does: "ששש → ב 1.00".
TEST_F(Atlas, RightToLeftWordsKeepTheirSidesOfTheArrow) {
  heed::Tensor query({1, 1, 2, 1}, heed::DType::f32), key({1, 1, 2, 1}, heed::DType::f32);
  query.at<float>(0, 0, 1, 0) = 10;
  key.at<float>(0, 0, 0, 0) = 10;
  heed::Document document;
  document.query = query;
  document.key = document.value = key;
  document.options.causal = true;
  document.report.query_tokens = document.report.key_tokens = {"ב", "ששש"};
  fill_report(document);
  save_document(folder / "doc.safetensors", document);
  const std::string svg = drawn({"atlas", "doc.safetensors", "--out", "a.svg"}, "a.svg");
  std::map<std::string, std::map<double, std::string>> lines;  // by y: the letters from left to right
  const std::regex letter("<use xlink:href=\"#(\\S+)\" x=\"([0-9.]+)\" y=\"([0-9.]+)\"/>");
  for (std::sregex_iterator one(svg.begin(), svg.end(), letter); one != std::sregex_iterator(); ++one)
    lines[(*one)[3]][std::stod((*one)[2])] = (*one)[1];
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const auto& line) {
    auto at = line.second.begin();
    return line.second.size() > 4 && at->second == std::next(at)->second &&
           at->second == std::next(at, 2)->second;
  }));
}

TEST_F(Atlas, SeveralTextsAreReadTogether) {
  write_file(folder / "one.txt", "a b c a b c\n");
  write_file(folder / "two.txt", "x y z w x y z w\n");
  EXPECT_NE(
      drawn({"atlas", "--model", "induction", "--text", "one.txt", "--text", "two.txt", "--out", "t.svg"},
            "t.svg"),
      drawn({"atlas", "--model", "induction", "--text", "one.txt", "--out", "o.svg"}, "o.svg"));
  expect_refusal({"atlas", "--model", "induction", "--text", "none.txt", "--out", "n.svg"},
                 "none.txt could not be read: No such file or directory", 1);
  const std::string many_letters(300, 'a');  // no file's name
  expect_refusal({"atlas", "--model", "induction", "--text", many_letters, "--out", "n.svg"},
                 many_letters + " could not be read: File name too long", 1);
}

TEST_F(Atlas, TwoModelsStandBesideOneAnotherTheLargestChangeFirst) {
  const CommandResult trained =
      run({"train", "--task", "induction", "--attention-only", "--steps", "2", "--out", "young"});
  ASSERT_EQ(trained.exit_code, 0) << trained.errors;
  EXPECT_NE(
      drawn({"atlas", "--model", "induction", "--difference", "young", kText, "--out", "d.svg"}, "d.svg"),
      "");
  const CommandResult small =
      run({"train", "--task", "induction", "--heads", "2", "--steps", "2", "--out", "small"});
  ASSERT_EQ(small.exit_code, 0) << small.errors;
  expect_refusal(
      {"atlas", "--model", "induction", "--difference", "small", kText, "--out", "s.svg"},
      "--difference has 2 layers, 4 heads; 2 layers, 8 heads, as in the other model, are expected");
  EXPECT_FALSE(fs::exists(folder / "s.svg"));
}

TEST_F(Atlas, WhatCannotBeDrawnIsRefusedBeforeAnythingIsWritten) {
  expect_refusal({"atlas", "--model", "induction", kText, "--out", "a.gif"},
                 "--out is 'a.gif'; a file whose name ends in .png, .svg or .pdf is expected");
  expect_refusal({"atlas", "--model", "induction", "--out", "a.png"},
                 "no text is given; WORDS or --text FILE is expected after --model DIR");
  expect_refusal({"atlas", "--out", "a.png"},
                 "no input is given; DOC.safetensors, or --model DIR and WORDS, is expected");
  expect_refusal({"atlas", "doc.safetensors", "--text", "a.txt", "--out", "a.png"},
                 "--text is given without --model, which would read it");
  expect_refusal({"look", "--model", "induction", "--layer", "1", kText, "--row", "1", "--png", "a.png"},
                 "--row and --png are both given; one question at a time is expected");
  expect_refusal({"look", "--model", "induction", "--layer", "1", kText, "--png", "a.jpg"},
                 "--png is 'a.jpg'; a file whose name ends in .png, .svg or .pdf is expected");
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST_F(Atlas, LookDrawsTheHeadsThatAreAskedFor) {
  const std::string one = drawn(
      {"look", "--model", "induction", "--layer", "1", kText, "--head", "3", "--png", "one.svg"}, "one.svg");
  const std::string all =
      drawn({"look", "--model", "induction", "--layer", "1", kText, "--png", "all.svg"}, "all.svg");
  EXPECT_GT(all.size(), one.size());
}

}  // namespace
