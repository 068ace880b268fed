// --ids, --chat and --protocol: token ids in place of a text, compared with the same text.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.hpp"
#include "heed/model/look.hpp"
#include "support.hpp"

namespace {

using heed::Model;
using heed::test::CommandResult;
using heed::test::run_heed;
using heed::test::TemporaryFolder;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

const std::string kText = "to be or not to be or not";

std::string ids_of_text(const std::string& separator) {
  const Model model = heed::load_model("induction");
  std::string ids;
  for (const std::int64_t id : model.tokenize(kText).ids)
    ids += (ids.empty() ? "" : separator) + std::to_string(id);
  return ids;
}

// Without the texts of tokens: the symbols of this model have the words of the text, which ids lack.
Json without_tokens(Json json) {
  if (json.is_object()) {
    json.erase("token");
    json.erase("tokens");
  }
  if (json.is_structured())
    for (Json& one : json) one = without_tokens(one);
  return json;
}

Json answer(Words words) {
  words.emplace_back("--json");
  const CommandResult result = run_heed(words);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  return without_tokens(Json::parse(result.output, nullptr, false));
}

std::string refusal(const Words& words, int exit_code) {
  const CommandResult result = run_heed(words);
  EXPECT_EQ(result.exit_code, exit_code) << result.output;
  return result.errors;
}

TEST(TokenIds, GiveTheSummaryOfTheirText) {
  const Json expected = answer({"look", "--model", "induction", kText})["summary"];
  EXPECT_TRUE(answer({"look", "--model", "induction", "--ids", ids_of_text(",")})["summary"] == expected);
  const TemporaryFolder folder;
  heed::test::write_file(folder / "ids.txt", "[" + ids_of_text(", ") + "]\n");
  EXPECT_TRUE(answer({"look", "--model", "induction", "--ids", folder / "ids.txt"})["summary"] == expected);
}

TEST(TokenIds, AreReadByOtherQuestionsAndCommands) {
  const std::string ids = ids_of_text(" ");
  const auto same = [&](const Words& words, const char* of) {
    Words by_text = words, by_ids = words;
    by_text.push_back(kText);
    by_ids.insert(by_ids.end(), {"--ids", ids});
    const Json text = answer(by_text), from_ids = answer(by_ids);
    EXPECT_FALSE(text[of].is_null()) << words[0];
    EXPECT_TRUE(from_ids[of] == text[of]) << words[0];
  };
  same({"look", "--model", "induction", "--lens"}, "lens");
  same({"look", "--model", "induction", "--row", "5"}, "rows");
  same({"who", "#7", "#5", "--model", "induction"}, "heads");
  same({"explain", "--model", "induction"}, "heads");
  const Words generate = {"generate", "induction", "--tokens", "3", "--temperature", "0"};
  Words by_text = generate, by_ids = generate;
  by_text.insert(by_text.end(), {"--prompt", kText, "--watch"});
  by_ids.insert(by_ids.end(), {"--ids", ids, "--watch"});
  const Json text = answer(by_text)["written"], from_ids = answer(by_ids)["written"];
  ASSERT_EQ(from_ids.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(from_ids[i]["id"], text[i]["id"]) << i;
}

TEST(TokenIds, AreRefusedInOneSentence) {
  const auto look = [&](const Words& more, int exit_code) {
    Words words = {"look", "--model", "induction"};
    words.insert(words.end(), more.begin(), more.end());
    return refusal(words, exit_code);
  };
  for (const std::string ids : {"5,x", "1e3"})
    EXPECT_EQ(look({"--ids", ids}, 2), "heed: --ids is '" + ids +
                                           "', and no file has this name; ids such as 5,9,5, or a file with "
                                           "them, are expected\n");
  EXPECT_EQ(look({"--ids", ","}, 2), "heed: --ids has no ids; at least one is expected\n");
  EXPECT_EQ(look({"--ids", "5 -1"}, 2),
            "heed: --ids has '-1'; whole numbers of at least 0, separated by spaces or "
            "commas, are expected\n");
  EXPECT_EQ(look({"--ids", "5,99999999999999999999"}, 2).substr(0, 40),
            "heed: --ids has '99999999999999999999'; ");
  EXPECT_NE(look({"--ids", "5,100000"}, 2).find("--ids: "), std::string::npos);
  const TemporaryFolder folder;
  heed::test::write_file(folder / "ids.txt", "1 2\nthree");
  EXPECT_EQ(look({"--ids", folder / "ids.txt"}, 2),
            "heed: " + (folder / "ids.txt") +
                " has 'three'; whole numbers of at least 0, separated by spaces or "
                "commas, are expected\n");
  EXPECT_EQ(look({"--ids", "5", kText}, 2).substr(0, 55),
            "heed: --ids and WORDS are both given; one of the two is");
  EXPECT_EQ(look({"--ids", "5", "--needle", "be"}, 2).substr(0, 75),
            "heed: --needle is given together with --ids, whose tokens have no text\n");
  EXPECT_EQ(refusal({"look", "doc.safetensors", "--ids", "5"}, 2).substr(0, 43),
            "heed: --ids is given without --model DIR, w");
  EXPECT_EQ(look({"--protocol", "induction", "words"}, 2).substr(0, 51),
            "heed: --protocol is given together with a text; it ");
}

// products_test.cpp compares the products, python/tests/test_gguf_models.py the logits of real models.
TEST(Fast, IsAnOptionOfEveryCommandThatRunsAModel) {
  const TemporaryFolder folder;
  for (const Words& words :
       {Words{"look", "--model", "induction", "--fast", kText},
        Words{"atlas", "--model", "induction", "--fast", "--out", folder / "atlas.svg", kText},
        Words{"who", "be", "or", "--model", "induction", "--fast", kText},
        Words{"why", "be", "or", "--model", "induction", "--fast", kText},
        Words{"circuit", "--model", "induction", "--fast", kText},
        Words{"heads", "--model", "induction", "--fast", "--compose"},
        Words{"explain", "--model", "induction", "--fast", kText},
        Words{"generate", "induction", "--fast", "--tokens", "2", "--prompt", kText}})
    EXPECT_EQ(run_heed(words).exit_code, 0) << words[0];
  for (const Words& words : {Words{"look", "doc.safetensors", "--fast"},
                             Words{"atlas", "doc.safetensors", "--fast", "--out", folder / "atlas.svg"},
                             Words{"who", "a", "b", "doc.safetensors", "--fast"}})
    EXPECT_EQ(refusal(words, 2), "heed: --fast is given without --model DIR, which would run with it\n");
  EXPECT_EQ(refusal({"explain", kText, "--fast"}, 2), "heed: --fast is given without --model\n");
  // A page to type into takes none of these.
  for (const Words& unread : {Words{"--fast"}, Words{"--ids", "5"}, Words{"--chat", "hi"}}) {
    Words words = {"explain", "--model", "induction", "--html", folder / "page.html"};
    words.insert(words.end(), unread.begin(), unread.end());
    EXPECT_EQ(refusal(words, 2), "heed: " + unread[0] +
                                     " is given together with --html, whose page reads words alone and "
                                     "computes exactly\n");
  }
}

// python/tests/test_chat.py runs models that have a template.
TEST(Chat, IsRefusedInOneSentence) {
  const auto look = [&](const Words& more, int exit_code) {
    Words words = {"look", "--model", "induction"};
    words.insert(words.end(), more.begin(), more.end());
    return refusal(words, exit_code);
  };
  const std::string no_template =
      "heed: --chat: the model has no chat template, by which it would read messages; a plain text is "
      "expected\n";
  EXPECT_EQ(look({"--chat", "Hello!"}, 2), no_template);
  EXPECT_EQ(look({"--chat", R"([{"role": "user", "content": "Hello!", "name": null}])"}, 2), no_template);
  const TemporaryFolder folder;
  heed::test::write_file(folder / "chat.json", R"([{"role": "user", "content": "Hello!"}])");
  EXPECT_EQ(look({"--chat", folder / "chat.json"}, 2),
            "heed: " + (folder / "chat.json") + no_template.substr(no_template.find(": the model")));
  EXPECT_EQ(look({"--chat", R"([{"role": "user")"}, 1).substr(0, 13), "heed: --chat ");
  EXPECT_EQ(look({"--chat", R"([3])"}, 2),
            "heed: --chat has a message that is no object of role and content\n");
  EXPECT_EQ(look({"--chat", R"([{"role": 3}])"}, 2), "heed: --chat has a message whose role is no text\n");
  EXPECT_EQ(look({"--chat", R"([{"content": "x"}])"}, 2), "heed: --chat has a message without a role\n");
  for (const char* more : {"", R"(, "content": null)"})
    EXPECT_EQ(
        look({"--chat", R"([{"role": "user", "content": "x"}, {"role": "user")" + std::string(more) + "}]"},
             2),
        "heed: --chat has no content in message 2, counted from 1; a text is expected\n");
  EXPECT_EQ(look({"--chat", "[]"}, 2), "heed: --chat has no message; at least one is expected\n");
  EXPECT_EQ(look({"--chat", R"([{"role": "user", "tool_calls": []}])"}, 2),
            "heed: --chat has a message with 'tool_calls'; role and content are expected\n");
  EXPECT_EQ(look({"--chat", "none.json"}, 1),
            "heed: none.json could not be read: No such file or directory\n");
  EXPECT_EQ(look({"--chat", "x", "--ids", "5"}, 2),
            "heed: --ids and --chat are both given; one of the two is expected\n");
  EXPECT_EQ(look({"--chat", "x", kText}, 2),
            "heed: --chat and WORDS are both given; one of the two is expected\n");
  EXPECT_EQ(look({"--chat", "x", "--needle", "be"}, 2).substr(0, 52),
            "heed: --needle is given together with --chat; it loo");
  EXPECT_EQ(refusal({"generate", "induction", "--chat", "x", "--prompt", "y"}, 2).substr(0, 47),
            "heed: --chat and --prompt are both given; one o");
}

// The shipped model was trained on repetitions: its induction heads are in layer 1.
TEST(Protocol, NamesInductionHeads) {
  const Json heads = answer({"look", "--model", "induction", "--protocol", "induction"})["summary"];
  ASSERT_GE(heads.size(), 1u);
  EXPECT_EQ(heads[0]["name"], "induction");
  EXPECT_EQ(heads[0]["label"].get<std::string>().substr(0, 2), "1.");
  EXPECT_GT(heads[0]["induction"].get<double>(), 0.5);
}

TEST(Protocol, ReadsDifferentTokensTwice) {
  const Model model = heed::load_model("induction");
  const std::vector<std::int64_t> ids = repeated_random_tokens(model, 20).ids;
  const bool begins = model.info().begin_token.has_value();
  ASSERT_EQ(ids.size(), begins ? 41u : 40u);
  const auto first = ids.begin() + (begins ? 1 : 0);
  EXPECT_TRUE(std::equal(first, first + 20, first + 20));
  std::vector<std::int64_t> sorted(first, first + 20);
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end());
  EXPECT_NE(repeated_random_tokens(model, 20, 2).ids, ids);
  EXPECT_EQ(heed::test::message_of([&] { (void)repeated_random_tokens(model, 0); }),
            "count is 0; at least 1 is expected");
}

}  // namespace
