// heed who: heads ranked by the weight of one word on another, compared with softmax in f64 of the model's
// own queries and keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.hpp"
#include "heed/io/tensors.hpp"
#include "heed/model/look.hpp"
#include "support.hpp"

namespace {

using heed::test::CommandInput;
using heed::test::CommandResult;
using heed::test::run_heed;
using heed::test::TemporaryFolder;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

constexpr const char* kText = "to be or not to be or";
constexpr const char* kOther = "to be or yes to be or";
constexpr double kRounding = 1e-5;  // of an lse in f32, from sums of about ten terms

CommandResult who(const Words& words) {
  Words all = {"who"};
  all.insert(all.end(), words.begin(), words.end());
  return run_heed(all);
}

Json answer(Words words) {
  words.push_back("--json");
  const CommandResult result = who(words);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  return Json::parse(result.output, nullptr, false);
}

// Causal weights of row i in a head of a layer.
std::vector<double> weights_of(const heed::Document& calls, std::int64_t layer, std::int64_t head,
                               std::int64_t i) {
  const std::int64_t at = 4 * layer + head;
  const heed::TensorView query = calls.query.select(0, 0).select(0, at);
  const heed::TensorView key = calls.key.select(0, 0).select(0, at);
  std::vector<double> weights;
  double sum = 0;
  for (std::int64_t j = 0; j <= i; ++j) {
    double dot = 0;
    for (std::int64_t d = 0; d < query.size(1); ++d)
      dot += static_cast<double>(query.at<float>(i, d)) * static_cast<double>(key.at<float>(j, d));
    weights.push_back(std::exp(dot / std::sqrt(static_cast<double>(query.size(1)))));
    sum += weights.back();
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

// The calls of the model's two layers of four heads.
heed::Document calls_of(const char* text) {
  const heed::Model model = heed::load_model(std::string(HEED_SOURCE_DIR) + "/models/induction");
  return document_of_text(model, model.tokenize(text));
}

void expect_weights_of(const Json& heads, const char* text) {
  const heed::Document calls = calls_of(text);
  ASSERT_EQ(heads.size(), 8U);
  double before = 2;
  for (const Json& head : heads) {
    const std::vector<double> row =
        weights_of(calls, head["layer"], head["head"], head["row"].get<std::int64_t>());
    const double own = row[head["key"].get<std::size_t>()];
    EXPECT_NEAR(head["weight"].get<double>(), own, kRounding);
    EXPECT_EQ(head["rank"], 1 + std::count_if(row.begin(), row.end(), [&](double w) { return w > own; }));
    EXPECT_EQ(head["label"],
              std::to_string(head["layer"].get<int>()) + "." + std::to_string(head["head"].get<int>()));
    EXPECT_NEAR(head["top"][0]["weight"].get<double>(), *std::max_element(row.begin(), row.end()), kRounding);
    EXPECT_LE(head["weight"].get<double>(), before);
    before = head["weight"];
  }
}

TEST(Who, HeadsAreRankedByTheWeightOfTheRowOnTheKey) {
  const Json json = answer({"be:2", "or:1", "--model", "induction", kText});
  EXPECT_EQ(json["rows"], Json({5}));
  EXPECT_EQ(json["keys"], Json({2}));
  expect_weights_of(json["heads"], kText);
  EXPECT_EQ(json["heads"][0]["looks_like"], "induction");
}

TEST(Who, EveryOccurrenceIsTakenAndTheHeaviestPairSaid) {
  const Json json = answer({"be", "or", "--model", "induction", "to", "be", "or", "not", "to", "be", "or"});
  EXPECT_EQ(json["rows"], Json({1, 5}));
  EXPECT_EQ(json["keys"], Json({2, 6}));
  EXPECT_EQ(json["heads"][0]["row"], 5);
  EXPECT_EQ(json["heads"][0]["key"], 2);
  expect_weights_of(json["heads"], kText);
  const CommandResult printed = who({"be", "or", "--model", "induction", kText});
  EXPECT_NE(printed.output.find("be (1, 5) → or (2, 6) in “to be or not to be or”"), std::string::npos)
      << printed.output;
  EXPECT_NE(printed.output.find("; each head with its heaviest\n  pair of these places"), std::string::npos);
}

TEST(Who, TheTextIsShownAsTyped) {
  const CommandResult result = who({"eat", "is", "--model", "induction", "Life is short, eat dessert"});
  EXPECT_NE(result.output.find("eat (3) → is (1) in “Life is short, eat dessert”\n"), std::string::npos)
      << result.output;
}

// A model of characters has a token for each letter. "hat" is no part of "that".
TEST(Who, AWordInSeveralTokensIsAllOfThem) {
  const Words model = {"--model", "stories", "Anna had a hat. That red hat"};
  const auto asked = [&](Words words) {
    words.insert(words.end(), model.begin(), model.end());
    return answer(words);
  };
  const Json json = asked({"hat:2", "hat:1"});
  EXPECT_EQ(json["rows"], Json({25, 26, 27}));
  EXPECT_EQ(json["keys"], Json({11, 12, 13}));
  EXPECT_EQ(asked({"hat", "red"})["rows"], Json({11, 12, 13, 25, 26, 27}));
  const CommandResult printed = who({"hat:2", "red", "--model", "stories", "Anna had a hat. That red hat"});
  EXPECT_TRUE(printed.output.starts_with("hat (25, 26, 27) → red (21, 22, 23) in “Anna had a hat."))
      << printed.output;
}

TEST(Who, AnotherTextIsAskedTheSame) {
  const Json json = answer({"#6", "#3", "--model", "induction", kText, "--against", kOther});
  expect_weights_of(json["heads"], kText);
  expect_weights_of(json["against"]["heads"], kOther);
  const CommandResult printed = who({"#6", "#3", "--model", "induction", kText, "--against", kOther});
  EXPECT_NE(printed.output.find("change"), std::string::npos) << printed.output;
  EXPECT_NE(printed.output.find("not (3)"), std::string::npos);
  EXPECT_NE(printed.output.find("yes (3)"), std::string::npos);
}

TEST(Who, TheRowOfTheBestHeadIsDrawnWithTheKeyMarked) {
  const CommandResult result = who({"be:2", "or:1", "--model", "induction", kText});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_NE(result.output.find("what be (5) attends to\n"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("\n> or (2)"), std::string::npos);
  EXPECT_NE(result.output.find("█████"), std::string::npos);
  EXPECT_EQ(result.output.find("\n  or (6)"), std::string::npos);  // a later word, which the row cannot see
}

TEST(Who, ASavedDocumentAnswersAndWordsAreFoundWithoutTheirMarks) {
  const TemporaryFolder folder;
  heed::Document document = calls_of(kText);
  document.report.query_tokens = document.report.key_tokens = {"\xC4\xA0To",
                                                               "\xC4\xA0"
                                                               "be",
                                                               "\xE2\x96\x81or",
                                                               " not",
                                                               "\xC4\xA0to",
                                                               "\xC4\xA0"
                                                               "be",
                                                               "\xE2\x96\x81or"};
  fill_report(document);
  save_document(folder / "doc.safetensors", document);
  const Json json = answer({"be:2", "or:1", folder / "doc.safetensors"});
  expect_weights_of(json["heads"], kText);
  EXPECT_EQ(answer({"to", "not", folder / "doc.safetensors"})["rows"], Json({0, 4}));
}

TEST(Who, ANumberedPlaceIsThatPlaceEvenIfATokenIsSpelledSo) {
  const Json json = answer({"#2", "#1", "--model", "induction", "--ids", "1,2,0,3"});
  EXPECT_EQ(json["rows"], Json({2}));
  EXPECT_EQ(json["keys"], Json({1}));
  EXPECT_EQ(answer({"#2:1", "#0", "--model", "induction", "--ids", "1,2,0,3"})["rows"], Json({1}));
}

TEST(Who, AWeightOfNaNIsPrinted) {
  const TemporaryFolder folder;
  heed::Document document = calls_of(kText);
  heed::Tensor query = heed::Tensor::copy_of(document.query);
  query.mutable_view().at<float>(0, 6, 5, 0) = NAN;
  document.query = query;
  fill_report(document);
  save_document(folder / "doc.safetensors", document);
  const Json last = answer({"#5", "#2", folder / "doc.safetensors"})["heads"].back();
  EXPECT_EQ(last["label"], "1.2");
  EXPECT_TRUE(last["weight"].is_null() && last["rank"].is_null()) << last;
  const CommandResult printed = who({"#5", "#2", folder / "doc.safetensors"});
  EXPECT_NE(printed.output.find("\n1.2         nan      -        5 → 2  "), std::string::npos)
      << printed.output;
}

// Tokens as a tokenizer of bytes shows them: two spell the face.
TEST(Who, AWordSpelledByTokensOfBytesIsAllOfThem) {
  const TemporaryFolder folder;
  heed::Document document = calls_of("to be or not to be or not to be or");
  document.report.query_tokens = document.report.key_tokens = {
      "to", "😀 1/2", "😀 2/2", "é 1/2", "é 2/2", "·t", "be", "Vi", "·ệ 1/2", "ệ 2/2", "·t"};
  fill_report(document);
  save_document(folder / "doc.safetensors", document);
  const Json json = answer({"😀", "to", folder / "doc.safetensors"});
  EXPECT_EQ(json["rows"], Json({1, 2}));
  EXPECT_EQ(answer({"ét", "to", folder / "doc.safetensors"})["rows"], Json({3, 4, 5}));
  EXPECT_EQ(answer({"Việt", "to", folder / "doc.safetensors"})["rows"], Json({7, 8, 9, 10}));
  const CommandResult printed = who({"😀", "to", folder / "doc.safetensors"});
  EXPECT_TRUE(printed.output.starts_with("😀 (1, 2) → to (0) in “to 😀 ét be Việt”")) << printed.output;
  EXPECT_EQ(who({"x", "to", folder / "doc.safetensors"}).errors,
            "heed: ROW is 'x', which is not a word of the text, “to 😀 ét be Việt”\n");
}

// A folder of captured weights, with one file per layer.
void capture(const std::string& folder, const char* text, const std::string& rows = "null") {
  const heed::Document calls = calls_of(text);
  const std::int64_t length = calls.query.size(2);
  for (std::int64_t call = 0; call < 4; ++call) {  // the second forward pass has other weights
    heed::Tensor weights({1, 4, length, length}, heed::DType::f32);
    for (std::int64_t head = 0; head < 4; ++head)
      for (std::int64_t i = 0; i < length; ++i) {
        const std::vector<double> row = weights_of(calls, call % 2, call < 2 ? head : 3 - head, i);
        for (std::size_t j = 0; j < row.size(); ++j)
          weights.mutable_view().at<float>(0, head, i, static_cast<std::int64_t>(j)) =
              static_cast<float>(row[j]);
      }
    const std::string number = std::to_string(call % 2);
    heed::io::write_safetensors(folder + "/000" + std::to_string(call) + "-layer-0" + number + ".safetensors",
                                {{"weights", weights}},
                                {{"format", "heed-run-1"},
                                 {"layer", number},
                                 {"module", "\"A\""},
                                 {"rows", rows},
                                 {"kind", "\"encoder\""},
                                 {"kind_layer", number}});
  }
}

TEST(Who, AFolderOfCapturedWeightsAnswers) {
  const TemporaryFolder folder;
  capture(folder.path(), kText);
  const Json json = answer({"#5", "#2", folder.path()});
  expect_weights_of(json["heads"], kText);
  heed::test::write_file(folder / "words.txt", "to\nbe\nor\nnot\nto\nbe\nor\n");
  EXPECT_EQ(answer({"be:2", "or:1", folder.path(), "--tokens", folder / "words.txt"})["heads"][0]["row"], 5);
}

TEST(Who, AFolderThatHoldsNotAllWeightsIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.path();
  EXPECT_EQ(who({"#1", "#0", path}).errors,
            "heed: " + path + " has no captured calls; files NNNN-layer-LL.safetensors are expected\n");
  capture(path, kText, "[[0, 2]]");
  EXPECT_EQ(
      who({"#1", "#0", path}).errors,
      "heed: " + path +
          "/0000-layer-00.safetensors has only some of the rows; a capture of all of them is expected\n");
}

void expect_refusal(const Words& words, const std::string& message) {
  const CommandResult result = who(words);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.errors, "heed: " + message + "\n");
  EXPECT_EQ(result.output, "");
}

// "-" reads the text from standard input in every command that reads words with a model.
TEST(Who, AndTheOthersReadStandardInput) {
  const std::vector<Words> commands = {{"who", "or:2", "not"},
                                       {"why", "or:2", "not"},
                                       {"circuit"},
                                       {"look"},
                                       {"look", "--row", "or"},
                                       {"explain"},
                                       {"heads", "--keep", "1+2"}};
  for (Words words : commands) {
    words.insert(words.end(), {"--json", "--model", "induction"});
    const auto with = [&](const char* text, const std::string& input) {
      Words all = words;
      all.emplace_back(text);
      CommandInput given;
      given.text = input;
      return run_heed(all, given);
    };
    const CommandResult read = with("-", std::string(kText) + "\n"), typed = with(kText, "");
    EXPECT_EQ(read.exit_code, 0) << words[0] << ": " << read.errors;
    EXPECT_EQ(read.output, typed.output) << words[0];
  }
  expect_refusal({"or", "not", "--model", "induction", "-"}, "WORDS has no tokens; at least one is expected");
}

TEST(Who, AndTheOthersReadAnotherTextFromStandardInput) {
  const std::string text = kText, ends[] = {"-", kOther};
  const std::vector<Words> commands = {
      {"who", "or:2", "be:1", "--model", "induction", text, "--json", "--against"},
      {"why", "or:2", "be:1", "--model", "induction", text, "--json", "--against"},
      {"look", "--model", "induction", text, "--json", "--patch"},
      {"generate", "induction", "--tokens", "3", "--temperature", "0", "--json", "--prompt"}};
  CommandInput given;
  given.text = kOther;
  for (const Words& words : commands) {
    std::vector<std::string> outputs;
    for (const std::string& end : ends) {
      Words all = words;
      all.push_back(words.back() == "--patch" ? end + ":1.2" : end);
      const CommandResult result = run_heed(all, given);
      EXPECT_EQ(result.exit_code, 0) << words[0] << ": " << result.errors;
      outputs.push_back(result.output);
    }
    EXPECT_EQ(outputs[0], outputs[1]) << words[0];
    if (words[0] == "generate") continue;
    Words both = words;
    std::replace(both.begin(), both.end(), text, std::string("-"));
    const std::string option = words.back();
    both.push_back(option == "--patch" ? "-:1.2" : "-");
    EXPECT_EQ(run_heed(both, given).errors,
              "heed: the text and " + option + " are both '-'; only one can be standard input\n");
  }
}

TEST(Who, WrongQuestionsAreRefusedInASentence) {
  expect_refusal(
      {"cat", "--model", "induction", "the", "cat", "sat"},
      "KEY is 'the', which is not a word of the text, “cat sat”; two words, ROW and KEY, are expected "
      "before it");
  expect_refusal({"bee", "or", "--model", "induction", kText},
                 "ROW is 'bee', which is not a word of the text; did you mean 'be'?");
  expect_refusal({"zebra", "x", "--model", "induction", "<div> hello world </div>"},
                 "ROW is 'zebra', which is not a word of the text, “<div> hello world </div>”");
  expect_refusal({"be", "#7", "--model", "induction", kText},
                 "KEY is '#7'; #0 to #6, the places of the text, are expected");
  expect_refusal({"be", "or:3", "--model", "induction", kText},
                 "KEY is 'or:3', but the text has 'or' 2 times");
  expect_refusal({"be", "or", "--model", "induction"},
                 "no text is given; WORDS are expected after --model DIR");
  EXPECT_EQ(run_heed({"look", "--model", "induction", "--text", "-"}).errors,
            "heed: standard input has no tokens; at least one is expected\n");
  expect_refusal(
      {"hat", "The cat lost a hat.", "--model", "stories"},
      "KEY is 'The cat lost a hat.', which is a text; two words, ROW and KEY, are expected before it");
  expect_refusal({"hta", "cat", "--model", "stories", "The cat lost a hat."},
                 "ROW is 'hta', which is not a word of the text; did you mean 'hat'?");
  expect_refusal({"be", "or"}, "no input is given; DOC.safetensors, or --model DIR and WORDS, is expected");
  expect_refusal({"be", "or", "doc.safetensors", "--against", "x"},
                 "--against is given without --model, which would read the other text");
  expect_refusal({"be", "or", "--model", "induction", kText, "--heads", "3", "--json"},
                 "--heads is given together with --json, which has all heads");
  expect_refusal({"be", "or", "--model", "induction", kText, "--against", "no such word"},
                 "ROW for --against is 'be', which is not a word of the text, “no such word”");
}

}  // namespace
