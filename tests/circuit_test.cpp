// heed circuit: the induction circuit of the shipped model, as text, JSON and DOT, and wrong command lines.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"
#include "support.hpp"

namespace {

using heed::test::CommandResult;
using heed::test::run_heed;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

constexpr const char* kText = "to be or not to be or";

CommandResult circuit(const Words& words) {
  Words all = {"circuit"};
  all.insert(all.end(), words.begin(), words.end());
  return run_heed(all);
}

Json answer(Words words) {
  words.insert(words.end(), {"--model", "induction", kText, "--json"});
  const CommandResult result = circuit(words);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  return Json::parse(result.output, nullptr, false);
}

const Json* find(const Json& edges, const std::string& writer, int place, const std::string& into) {
  for (const Json& edge : edges)
    if (edge.at("writer") == writer && edge.at("place") == place && edge.at("into") == into) return &edge;
  return nullptr;
}

TEST(Circuit, ReadsTheWordsAsTheyStand) {
  for (const char* command : {"circuit", "why"}) {
    Words words = {command, "--model", "stories", "--json", "Anna had a red ball."};
    if (std::string(command) == "why") words.insert(words.begin() + 1, {"#3", "#1"});
    const CommandResult result = run_heed(words);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(Json::parse(result.output, nullptr, false).at("tokens").at(0), "A");
  }
}

// "or" (6) asks for the word behind an earlier "or"; head 0.3 wrote at "not" (3) that "or" stood before it.
TEST(Circuit, OfTheInductionModelGoesThroughTheHeadThatLooksOneBack) {
  const Json made = answer({});
  EXPECT_EQ(made.at("token"), "not");
  EXPECT_EQ(made.at("row"), 6);
  EXPECT_LE(made.at("edges").size(), 30U);
  const Json* key = find(made.at("edges"), "0.3", 3, "key");
  ASSERT_NE(key, nullptr) << made;
  EXPECT_EQ(key->at("read"), 2);
  EXPECT_EQ(key->at("reader_row"), 6);
  EXPECT_NE(find(made.at("edges"), "token", 3, "value"), nullptr);
  EXPECT_NE(find(made.at("edges"), "token", 6, "query"), nullptr);
  EXPECT_NE(find(made.at("edges"), "token", 2, "value"), nullptr);  // what 0.3 read
}

TEST(Circuit, KeepsWhatPatchingConfirmsAndTellsWhatItDenies) {
  const Json made = answer({});
  const double threshold = made.at("threshold");
  EXPECT_GT(threshold, 0);
  EXPECT_FALSE(made.at("denied").empty());
  const auto size = [](const Json& edge, const char* name) { return std::abs(edge.at(name).get<double>()); };
  for (const Json& edge : made.at("edges")) {
    EXPECT_GE(size(edge, "share"), threshold);
    EXPECT_GE(size(edge, "patched"), threshold / 2);
  }
  for (const Json& edge : made.at("denied")) {
    EXPECT_GE(size(edge, "share"), threshold);
    EXPECT_LT(size(edge, "patched"), threshold / 2);
  }
  const Json unpatched = answer({"--no-patch"});
  EXPECT_TRUE(unpatched.at("denied").empty());
  for (const Json& edge : unpatched.at("edges")) EXPECT_TRUE(edge.at("patched").is_null());
}

TEST(Circuit, HasAsManyReadsAsAsked) {
  EXPECT_LE(answer({"--edges", "5"}).at("edges").size(), 5U);
  EXPECT_GT(answer({"--edges", "200"}).at("edges").size(), 30U);
}

TEST(Circuit, TracesTheDifferenceOfTwoTokensAtAnyRow) {
  const Json one = answer({"--row", "be:2", "--token", "or", "--no-patch"});
  const Json other = answer({"--row", "be:2", "--token", "to", "--no-patch"});
  const Json both = answer({"--row", "#5", "--token", "or", "--than", "to", "--no-patch"});
  EXPECT_EQ(one.at("row"), 5);
  EXPECT_NEAR(both.at("logit"), one.at("logit").get<double>() - other.at("logit").get<double>(), 1e-9);
  EXPECT_EQ(both.at("than").at("token"), "to");
}

TEST(Circuit, IsPrintedForPeopleAndForGraphviz) {
  const std::string text = circuit({"--model", "induction", kText}).output;
  EXPECT_NE(text.find("“not” after or (6): logit "), std::string::npos) << text;
  EXPECT_NE(text.find("0.3 at not (3)       the key for 1.0 at or (6)"), std::string::npos) << text;
  EXPECT_NE(text.find("Patching denies "), std::string::npos) << text;
  const std::string dot = circuit({"--model", "induction", kText, "--dot"}).output;
  EXPECT_EQ(dot.substr(0, 18), "digraph circuit {\n");
  EXPECT_NE(dot.find("  \"0.3 @ 3\" [label=\"0.3\\nnot (3)\", shape=ellipse];\n"), std::string::npos) << dot;
  EXPECT_NE(dot.find("  \"0.3 @ 3\" -> \"1.0 @ 6\" [label=\"key +"), std::string::npos) << dot;
}

TEST(Circuit, QuotesWordsForGraphviz) {
  const std::string dot = circuit({"--model", "induction", "--dot", "\" \\ \" \\"}).output;
  EXPECT_NE(dot.find("\\\" (0)"), std::string::npos) << dot;
  EXPECT_NE(dot.find("\\\\ (1)"), std::string::npos) << dot;
}

TEST(Circuit, IsDrawnOverTheWordsOnAPage) {
  const heed::test::TemporaryFolder folder;
  const std::string file = folder / "be.html";
  const CommandResult result = circuit({"--model", "induction", kText, "--html", file});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_NE(result.output.find("the key for 1.0 at or (6)"), std::string::npos);  // as without a page
  const std::string page = heed::test::read_file(file);
  EXPECT_NE(page.find("<title>“not” after or (6): logit "), std::string::npos);
  EXPECT_NE(page.find("data-from=\"0.3@3\" data-to=\"1.0@6\""), std::string::npos);
  EXPECT_NE(page.find("<title>0.3 at not (3) → the key for 1.0 at or (6): share +"), std::string::npos);
  EXPECT_EQ(page.find("http"), std::string::npos);  // it loads nothing
  (void)circuit({"--model", "induction", kText, "--html", file, "--title", "A <circuit>"});
  EXPECT_NE(heed::test::read_file(file).find("<title>A &lt;circuit&gt;</title>"), std::string::npos);
}

TEST(Circuit, EscapesWordsOnItsPage) {
  const heed::test::TemporaryFolder folder;
  const std::string file = folder / "page.html";
  EXPECT_EQ(circuit({"--model", "induction", "<b> & \"x\" <b> &", "--html", file}).exit_code, 0);
  const std::string page = heed::test::read_file(file);
  EXPECT_EQ(page.find("<b> "), std::string::npos);
  EXPECT_NE(page.find("&lt;b&gt; (0)"), std::string::npos) << page;
}

// A word may look like a special token, but it belongs to the text.
TEST(Circuit, QuotesWordsInAngles) {
  const heed::test::TemporaryFolder folder;
  const std::string file = folder / "page.html";
  EXPECT_EQ(circuit({"--model", "induction", "<div> hello world <div> hello world </div>", "--html", file})
                .exit_code,
            0);
  EXPECT_NE(
      heed::test::read_file(file).find("“&lt;div&gt; hello world &lt;div&gt; hello world &lt;/div&gt;”"),
      std::string::npos);
}

TEST(Circuit, KeepsTheOrderOfRightToLeftWordsOnItsPage) {
  const heed::test::TemporaryFolder folder;
  const std::string file = folder / "page.html", text = "שלום עולם אחד שלום עולם אחד שלום";
  const CommandResult result = circuit({"--model", "induction", text, "--html", file});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.output.find("\u2068"), std::string::npos);
  const std::string page = heed::test::read_file(file), hello = "\u2068שלום\u2069",
                    world = "\u2068עולם\u2069";
  EXPECT_NE(page.find("<h1>“" + world + "” after " + hello + " (6): logit "), std::string::npos);
  EXPECT_NE(page.find(">" + world + " (4)</text>"), std::string::npos);
  EXPECT_NE(page.find("<td>0.3 at " + world + " (4)</td>"), std::string::npos);
}

TEST(Circuit, ShowsWhiteSpaceTokens) {
  const heed::test::TemporaryFolder folder;
  const std::string file = folder / "page.html";
  const std::string told = circuit({"--model", "stories", "Anna had a", "--html", file}).output;
  EXPECT_TRUE(told.starts_with("\"␣\" after a (9): logit ")) << told;
  const std::string page = heed::test::read_file(file);
  EXPECT_NE(page.find("<h1>&quot;␣&quot; after a (9): logit "), std::string::npos);
  EXPECT_NE(page.find(">&quot;␣&quot;</text>"), std::string::npos);
  const std::string dot = circuit({"--model", "stories", "Anna had a", "--dot"}).output;
  EXPECT_NE(dot.find("\"logit\" [label=\"\\\"␣\\\"\", shape=box]"), std::string::npos) << dot;
}

TEST(Circuit, ShowsWhatPassesThroughOneHead) {
  const Json paths = answer({"--through", "0.3"});
  EXPECT_EQ(paths.at("head"), "0.3");
  EXPECT_EQ(paths.at("token"), "not");
  double sum = 0;
  for (const Json& key : paths.at("keys")) sum += key.at("share").get<double>();
  EXPECT_NEAR(paths.at("share"), sum, 1e-9);
  EXPECT_EQ(paths.at("later").size(), 12U);  // three for each head of layer 1
  EXPECT_EQ(paths.at("later").at(0).at("into"), "key");
  const std::string text = circuit({"--model", "induction", kText, "--through", "1.0", "--top", "1"}).output;
  EXPECT_NE(text.find("\nhead 1.0 at or (6) adds +"), std::string::npos) << text;
  EXPECT_NE(text.find("0.980  not (3)\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("be (1)"), std::string::npos) << text;
  EXPECT_EQ(text.find("through a later head"), std::string::npos) << text;  // layer 1 is the last
}

TEST(Circuit, LeavesNoSpacesAtLineEnds) {
  for (const Words& more : {Words{}, Words{"--through", "0.3"}}) {
    Words words = {"--model", "induction", kText};
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(circuit(words).output.find(" \n"), std::string::npos);
  }
}

TEST(Circuit, SaysWhatIsWrong) {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{kText}, "--model is missing: the model that reads the text"},
      {{"--model", "induction"}, "no text is given; WORDS are expected after --model DIR"},
      {{"--model", "induction", kText, "--json", "--dot"},
       "--json is given together with --dot; one is expected"},
      {{"--model", "induction", kText, "--row", "be"}, "--row is 'be', which is 2 tokens; one is expected"},
      {{"--model", "induction", kText, "--token", "cat"},
       "--token is 'cat', which is not a token of the model"},
      {{"--model", "induction", kText, "--token", "be", "--than", "be"},
       "heed: --than is 'be', the token that is traced; another one is expected"},
      {{"--model", "induction", kText, "--than", "not", "--through", "1.0"},
       "heed: --than is 'not', the token that is traced; another one is expected"},
      {{"--model", "induction", kText, "--edges", "0"}, "--edges is '0'"},
      {{"--model", "induction", kText, "--through", "1"},
       "--through is '1'; a layer and a head, such as 1.3, is expected"},
      {{"--model", "induction", kText, "--through", "1.4"},
       "--through is '1.4'; layers 0 to 1 with heads 0 to 3 are expected"},
      {{"--model", "induction", kText, "--through", "1.0", "--dot"},
       "--dot is given together with --through, which traces one head"},
      {{"--model", "induction", kText, "--top", "3"}, "--top is given without --through, which takes it"},
      {{"--model", "induction", kText, "--html", "be.txt"}, "--html is 'be.txt'"},
  };
  for (const auto& [words, message] : cases) {
    const CommandResult result = circuit(words);
    EXPECT_EQ(result.exit_code, 2) << message;
    EXPECT_NE(result.errors.find(message), std::string::npos) << result.errors;
  }
}

}  // namespace
