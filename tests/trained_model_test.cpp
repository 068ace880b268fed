// The model that comes with heed, and heed explain and heed look with a trained model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "command.hpp"
#include "heed/io/tensors.hpp"
#include "support.hpp"

namespace {

namespace fs = std::filesystem;
using heed::Tensor;
using heed::test::CommandInput;
using heed::test::CommandResult;
using heed::test::run_heed;
using heed::test::share_of;
using heed::test::TemporaryFolder;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

const std::string kModel = std::string(HEED_SOURCE_DIR) + "/models/induction";
constexpr const char* kSentence = "Life is short, eat dessert first, Life is short, eat dessert first";

Json json_in(const std::string& path) {
  std::ifstream file(path);
  return Json::parse(std::string{std::istreambuf_iterator<char>(file), {}}, nullptr, false);
}

Json explained(const Words& words, const Words& more = {}) {
  Words all = {"explain", "--model", "induction", "--json"};
  all.insert(all.end(), more.begin(), more.end());
  all.insert(all.end(), words.begin(), words.end());
  const CommandResult result = run_heed(all);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  return Json::parse(result.output, nullptr, false);
}

double best_score(const Json& explanation, int layer, const std::string& pattern) {
  double best = 0;
  for (const Json& head : explanation["heads"])
    if (head["layer"] == layer && head["scores"][pattern].is_number())
      best = std::max(best, head["scores"][pattern].get<double>());
  return best;
}

void expect_refusal(int exit_code, const Words& arguments, const std::string& message) {
  const CommandResult result = run_heed(arguments);
  EXPECT_EQ(result.exit_code, exit_code);
  EXPECT_EQ(result.errors, "heed: " + message + "\n");
  EXPECT_EQ(result.output, "");
}

TEST(InductionModel, IsSmall) {
  EXPECT_LE(fs::file_size(kModel + "/model.safetensors"), 500'000u);
  const Json settings = json_in(kModel + "/config.json")["heed"]["settings"];
  EXPECT_EQ(settings["layers"], 2);
  EXPECT_EQ(settings["attention_only"], true);
}

// Names and thresholds are the same as in heed look: at least half of the weight. Any words will do.
TEST(InductionModel, HasAPreviousTokenHeadInLayer0AndAnInductionHeadInLayer1) {
  const std::uint32_t seed = 11;
  std::mt19937 random(seed);
  for (std::uint64_t i = 0; i < share_of(12); ++i) {
    Words half;
    const std::size_t length = 4 + random() % 20;
    for (std::size_t w = 0; w < length; ++w) half.push_back("w" + std::to_string(random() % 1000));
    Words words = half;
    words.insert(words.end(), half.begin(), half.end());
    const Json explanation = explained(words);
    EXPECT_TRUE(best_score(explanation, 0, "previous-token") >= 0.5) << length << " words, seed " << seed;
    EXPECT_TRUE(best_score(explanation, 1, "induction") >= 0.5) << length << " words, seed " << seed;
  }
}

TEST(InductionModel, SaysWhatFollowedTheLastTime) {
  const Json explanation = explained({kSentence});
  const Words words = explanation["tokens"];
  ASSERT_EQ(words.size(), 12u);
  for (std::size_t i = 6; i < 12; ++i) {
    EXPECT_EQ(explanation["next"][i]["token"], words[(i + 1) % 6]);
    EXPECT_TRUE(explanation["next"][i]["probability"].get<double>() >= 0.5) << words[i];
  }
  const CommandResult written = run_heed(
      {"generate", "induction", "--prompt", "to be or not to be", "--tokens", "3", "--temperature", "0"});
  EXPECT_EQ(written.output, "to be or not to be or not to\n") << written.errors;
}

// Repeats the first steps of the training. Another BLAS rounds differently, and each step magnifies that.
// After twenty steps the losses still agree to a hundredth.
TEST(InductionModel, IsLearntAgainAsItWasRecorded) {
  constexpr std::int64_t kSteps = 20;
  const TemporaryFolder folder;
  const Json config = json_in(kModel + "/config.json")["heed"];
  Words command = {"train", "--task",         "induction", "--attention-only",
                   "--out", folder / "again", "--stop-at", std::to_string(kSteps),
                   "--json"};
  for (const auto& [name, value] : config["settings"].items()) {
    if (name == "task" || name == "attention_only") continue;
    std::string option = "--" + name;
    std::replace(option.begin(), option.end(), '_', '-');
    command.insert(command.end(), {option, value.dump()});
  }
  const CommandResult result = run_heed(command);
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const Json losses = Json::parse(result.output)["losses"];
  ASSERT_EQ(losses.size(), 5u);  // steps 1, 2, 5, 10 and 20
  for (std::size_t i = 0; i < losses.size(); ++i) {
    EXPECT_EQ(losses[i]["step"], config["losses"][i]["step"]);
    EXPECT_NEAR(losses[i]["loss"].get<double>(), config["losses"][i]["loss"].get<double>(), 0.01);
  }
  EXPECT_LT(losses.back()["loss"].get<double>(), losses[0]["loss"].get<double>() - 0.005);
}

TEST(ExplainModel, ShowsItsTwoHeads) {
  const CommandResult result = run_heed({"explain", "--model", "induction", kSentence});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_TRUE(result.output.starts_with("induction: 2 layers of ")) << result.output;
  EXPECT_NE(result.output.find("It reads: Life is short eat dessert first Life is short eat dessert first\n"),
            std::string::npos);
  EXPECT_NE(result.output.find(", previous-token: each word looks at the one before it\n"),
            std::string::npos);
  EXPECT_NE(result.output.find(", induction: each word looks at what followed it the last time\n"),
            std::string::npos);
  EXPECT_NE(result.output.find("At the end it predicts Life "), std::string::npos);
}

TEST(ExplainModel, SaysWhatTheNamesOfHeadsMean) {
  const auto heads = [](const std::string& text) {
    return run_heed({"explain", "--model", "stories", text, "--layer", "0"}).output;
  };
  const std::string named = heads("Anna had a ball and a dog and Anna was happy");
  EXPECT_NE(named.find(", uniform: each word looks equally at all words before it\n"), std::string::npos)
      << named;
  EXPECT_NE(named.find(", local: each word looks at those nearby\n"), std::string::npos) << named;
  const std::string too_short = heads("A");
  EXPECT_NE(too_short.find(", too few rows: too few words to tell\n"), std::string::npos) << too_short;
}

TEST(ExplainModel, TakesItsWordsWithAndWithoutQuotesAndFromStandardInput) {
  const std::string quoted = run_heed({"explain", "--model", "induction", "to be to be"}).output;
  EXPECT_EQ(run_heed({"explain", "--model", "induction", "to", "be", "to", "be"}).output, quoted);
  CommandInput input;
  input.text = "to be to be\n";
  EXPECT_EQ(run_heed({"explain", "--model", "induction", "-"}, input).output, quoted);
}

TEST(ExplainModel, DrawsTheHeadsAskedFor) {
  const CommandResult result =
      run_heed({"explain", "--model", kModel, "to be to be", "--layer", "1", "--head", "0"});
  EXPECT_NE(result.output.find("\nLayer 1, head 0, "), std::string::npos) << result.output;
  EXPECT_EQ(result.output.find("\nLayer 0"), std::string::npos);
  EXPECT_EQ(explained({"to be to be"}, {"--layer", "1"})["heads"].size(), 4u);
  const Json one = explained({"to be to be"}, {"--head", "0.3"});
  ASSERT_EQ(one["heads"].size(), 1u);
  EXPECT_EQ(one["heads"][0]["layer"], 0);
  EXPECT_EQ(one["heads"][0]["head"], 3);
  EXPECT_EQ(one["heads"][0]["label"], "0.3");
  for (const Json& row : one["heads"][0]["weights"]) {
    double sum = 0;
    for (const Json& weight : row) sum += weight.get<double>();
    // With so few rows, the sum and the weights come from products that are added in different orders. Scores
    // reach about 30 (the model is confident), from 16 terms each. So the likely maximum is 30 * 4 * 2^-24.
    EXPECT_NEAR(sum, 1, 1e-5);
  }
}

TEST(ExplainModel, SaysWhenThereIsNoPattern) {
  const TemporaryFolder folder;
  std::ofstream(folder / "text.txt") << "a text that is too short to teach anything to anybody\n";
  ASSERT_EQ(run_heed({"train", folder / "text.txt", "--out", folder / "model", "--steps", "1", "--model-dim",
                      "4", "--heads", "1", "--layers", "2", "--context", "40"})
                .exit_code,
            0);
  const CommandResult result = run_heed({"explain", "--model", folder / "model", "a text", "that"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_NE(result.output.find("It reads: a text that\n"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("\nLayer 0, head 0, "), std::string::npos);
  EXPECT_NE(result.output.find("\nLayer 1, head 0, "), std::string::npos);
  CommandInput narrow;
  narrow.environment["COLUMNS"] = "60";
  const CommandResult many =
      run_heed({"explain", "--model", folder / "model", "a text that is too short to teach thing"}, narrow);
  EXPECT_EQ(many.exit_code, 0) << many.errors;
}

TEST(ExplainModel, RefusesWhatItCannotDo) {
  const Words base = {"explain", "--model", "induction"};
  const auto with = [&](const Words& more) {
    Words all = base;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  expect_refusal(2, base,
                 "SENTENCE is missing: the words to read, or - for standard input (see heed explain --help)");
  expect_refusal(2, with({"a b", "--layer", "2"}), "--layer is 2; the layers are 0 to 1");
  expect_refusal(2, with({"a b", "--head", "8"}), "--head is 8; there are 8 heads, counted from 0");
  expect_refusal(2, with({"a b", "--head", "1.4"}), "--head is '1.4'; layer 1 has the heads 0 to 3");
  expect_refusal(2, with({"a b", "--causal"}),
                 "--causal is given together with --model, whose layers are trained");
  expect_refusal(
      2, with({"a b", "--save", "x.safetensors"}),
      "--save is given together with --model, whose layers are trained; heed look --model has --save");
  expect_refusal(2, with({"--html", "x.html", "--head", "1"}),
                 "SENTENCE is missing: the words to read, or - for standard input (see heed explain --help)");
  expect_refusal(2, with({" , "}), "SENTENCE has no tokens; at least one is expected");
  std::string longest;
  for (int i = 0; i < 65; ++i) longest += "to ";
  expect_refusal(2, with({longest}),
                 "SENTENCE has 65 tokens; at most 64, the context of the model, are expected");
  expect_refusal(2, with({"to be", "--word", "or"}), "--word is 'or', which is not in the sentence");
  expect_refusal(2, with({"to be", "--word", "be", "--head", "1.3"}),
                 "--head is given together with --word, which follows one word through all heads");
  expect_refusal(2, with({"to be", "--word", "be", "--layer", "1"}),
                 "--layer is given together with --word, which follows one word through all heads");
  expect_refusal(2, with({"\xff"}), "SENTENCE is not UTF-8 text");
  expect_refusal(2, {"explain", "a b", "--layer", "1"}, "--layer is given without --model");
  expect_refusal(
      1, {"explain", "--model", "nowhere", "a b"},
      "'nowhere' is not a folder; these two lines fetch the model of that name, and ./nowhere is expected "
      "then:\n  pip install huggingface_hub\n  hf download nowhere --include '*.json' '*.safetensors' "
      "--local-dir nowhere");
}

TEST(ExplainModel, SaysOneLineIfItWritesAPage) {
  const TemporaryFolder folder;
  const std::string page = folder / "life.html";
  for (const Words& words : {Words{}, Words{"to", "be"}}) {
    Words all = {"explain", "--model", "induction", "--html", page};
    all.insert(all.end(), words.begin(), words.end());
    EXPECT_EQ(run_heed(all).output,
              "Wrote the model into a page, " + page + ": open it in a browser and type words.\n");
  }
  const CommandResult asked =
      run_heed({"explain", "--model", "induction", "to be to", "--html", page, "--head", "1.3"});
  EXPECT_NE(asked.output.find("Layer 1, head 3"), std::string::npos) << asked.output;
}

TEST(ExplainModel, FollowsOneWordThroughTheLayers) {
  const Words words = {"to", "be", "or", "not", "to", "be"};
  const Json walk = explained(words, {"--word", "be:2"});
  EXPECT_EQ(walk["row"], 5);
  ASSERT_EQ(walk["layers"].size(), 2u);
  // A head of layer 0 looks at the previous token. A head of layer 1 looks at the token that followed "be"
  // before.
  bool previous = false;
  for (const Json& one : walk["layers"][0]["attended"]) previous |= one["place"] == 4 && one["weight"] > 0.9;
  EXPECT_TRUE(previous) << walk["layers"][0];
  EXPECT_EQ(walk["layers"][1]["attended"][0]["token"], "or");
  EXPECT_EQ(walk["layers"][1]["predicted"][0]["token"], "or");
  EXPECT_LT(walk["layers"][1]["rest"].get<double>(), 1e-4);  // attention only: the rounding of 64 sums
  Words all = {"explain", "--model", "induction", "--word", "be:2"};
  all.insert(all.end(), words.begin(), words.end());
  const CommandResult text = run_heed(all);
  EXPECT_EQ(text.exit_code, 0) << text.errors;
  EXPECT_NE(text.output.find("\nbe [5] through the layers"), std::string::npos) << text.output;
  EXPECT_NE(text.output.find("\n  layer 1: |x| "), std::string::npos) << text.output;
  EXPECT_NE(text.output.find("    would predict or "), std::string::npos) << text.output;
}

// One table holds all layers, and explain prints the same lines.
TEST(LookModel, SummarisesEveryLayerInOneTable) {
  const Words words = {"to", "be", "or", "not", "to", "be", "or"};
  Words look = {"look", "--model", "induction", "--brief", "--sort", "name"};
  Words explain = {"explain", "--model", "induction"};
  look.insert(look.end(), words.begin(), words.end());
  explain.insert(explain.end(), words.begin(), words.end());
  const CommandResult table = run_heed(look);
  EXPECT_EQ(table.exit_code, 0) << table.errors;
  EXPECT_TRUE(table.output.starts_with("8 heads, 7 queries, 7 keys, D 16, f32")) << table.output;
  const std::string explained = run_heed(explain).output;
  std::istringstream lines(table.output);
  std::string line;
  for (std::getline(lines, line), std::getline(lines, line); std::getline(lines, line) && !line.empty();)
    EXPECT_NE(explained.find("\n" + line + "\n"), std::string::npos) << line;
  for (const char* label : {"0.0", "0.3", "1.0", "1.3"})
    EXPECT_NE(table.output.find("\n" + std::string(label) + "   "), std::string::npos) << label;
}

TEST(LookModel, TakesHeadsOfItsLayersAndWordsForRows) {
  const Words base = {"look", "--model", "induction", "to be or not to be or", "--json"};
  const auto rows = [&](const Words& more) {
    Words all = base;
    all.insert(all.end(), more.begin(), more.end());
    const CommandResult result = run_heed(all);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return Json::parse(result.output, nullptr, false)["rows"];
  };
  const Json two = rows({"--head", "1.3,0.2", "--row", "or"});
  ASSERT_EQ(two.size(), 4u);  // both rows of "or", in two heads
  EXPECT_EQ(two[0]["label"], "0.2");
  EXPECT_EQ(two[1]["label"], "1.3");
  EXPECT_EQ(two[1]["head"], 7);
  EXPECT_EQ(two[0]["row"], 2);
  EXPECT_EQ(two[2]["row"], 6);
  EXPECT_EQ(rows({"--head", "7", "--row", "or"})[1], two[3]);
  // With --layer, heads are counted within that layer.
  const Json layer = rows({"--layer", "1", "--head", "3", "--row", "or:2"});
  EXPECT_EQ(layer[0]["label"], "1.3");
  EXPECT_EQ(layer[0]["keys"][0]["token"], "not");
  // Scores of two calls are added in different orders.
  EXPECT_NEAR(layer[0]["keys"][0]["weight"].get<double>(), two[3]["keys"][0]["weight"].get<double>(), 1e-5);
  EXPECT_EQ(rows({"--layer", "1", "--head", "1.3", "--row", "6"})[0], layer[0]);
}

TEST(LookModel, ASavedModelIsAskedByItsLayers) {
  const TemporaryFolder folder;
  const std::string document = folder / "all.safetensors";
  ASSERT_EQ(run_heed({"look", "--model", "induction", "to be or not to be or", "--save", document}).exit_code,
            0);
  const auto rows = [&](const Words& more) {
    Words all = {"look", document, "--json", "--row", "6"};
    all.insert(all.end(), more.begin(), more.end());
    return Json::parse(run_heed(all).output, nullptr, false)["rows"];
  };
  EXPECT_EQ(rows({"--head", "1.3"}), rows({"--head", "7"}));
  EXPECT_EQ(rows({"--layer", "1", "--head", "3"}), rows({"--head", "7"}));
  EXPECT_EQ(rows({"--layer", "1"}), rows({"--head", "4,5,6,7"}));
  expect_refusal(2, {"look", document, "--layer", "2"}, "--layer is 2; the layers are 0 to 1");
  expect_refusal(2, {"look", document, "--head", "3.1"}, "--head is '3.1'; the layers are 0 to 1");
  expect_refusal(2, {"look", document, "--layer", "0", "--head", "1.3"},
                 "--head is '1.3', which is not in the layer of --layer");
}

TEST(LookModel, AnswersAllQuestionsOnALayer) {
  const TemporaryFolder folder;
  const Words base = {"look", "--model", "induction", "--layer", "1", "to be or not to be or"};
  const auto with = [&](const Words& more) {
    Words all = base;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const CommandResult row = run_heed(with({"--row", "6", "--head", "3", "--json"}));
  EXPECT_EQ(row.exit_code, 0) << row.errors;
  const Json top = Json::parse(row.output)["rows"][0];
  EXPECT_EQ(top["row"], 6);
  EXPECT_EQ(top["keys"][0]["token"], "not");
  const CommandResult page =
      run_heed(with({"--html", folder / "p.html", "--save", folder / "d.safetensors"}));
  EXPECT_EQ(page.exit_code, 0) << page.errors;
  EXPECT_TRUE(fs::exists(folder / "p.html"));
  const CommandResult later =
      run_heed({"look", folder / "d.safetensors", "--row", "6", "--head", "3", "--json"});
  EXPECT_EQ(Json::parse(later.output)["rows"][0]["keys"], top["keys"]);
  const CommandResult checked = run_heed(with({"--check"}));
  EXPECT_EQ(checked.exit_code, 0) << checked.output;
}

TEST(LookModel, TellsWhatTheConfigurationSaysAndHeedDoesNotKnow) {
  const TemporaryFolder folder;
  fs::copy(kModel, folder.path(), fs::copy_options::recursive);
  Json config = json_in(kModel + "/config.json");
  config["a\u001b key"] = 1;
  std::ofstream(folder / "config.json") << config.dump();
  const std::string told =
      "heed: '" + (folder / "config.json") + "' has 'a? key', which heed does not know and ignores\n";
  for (const Words& command : {Words{"look", "--model", folder.path(), "a", "b", "a"},
                               Words{"look", "--model", folder.path(), "--lens", "a", "b", "a"},
                               Words{"explain", "--model", folder.path(), "a", "b", "a"},
                               Words{"generate", folder.path(), "--prompt", "a b a", "--tokens", "2"}}) {
    const CommandResult result = run_heed(command);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(result.errors, told) << command[0];
  }
}

// The first attempts of a researcher: a model's name, its folder, its file.
TEST(LookModel, SaysWhatAFolderLacks) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "bert");
  std::ofstream(folder / "bert/config.json") << R"({"architectures": ["BertModel"], "model_type": "bert"})";
  const Tensor weight({2, 2});
  heed::io::write_safetensors(folder / "bert/model.safetensors", {{"embeddings.weight", weight}},
                              {{"format", "pt"}});
  const std::string instead = "; heed look --model FOLDER WORDS looks at a model";
  const auto hub = [](const std::string& name, const std::string& local) {
    return "'" + name + "' is not a folder; these two lines fetch the model of that name, and ./" + local +
           " is expected then:\n  pip install huggingface_hub\n  hf download " + name +
           " --include '*.json' '*.safetensors' --local-dir " + local;
  };
  expect_refusal(1, {"look", "--model", "gpt2", "a"}, hub("gpt2", "gpt2"));
  expect_refusal(1, {"look", "--model", "Qwen/Qwen2.5-0.5B", "a"}, hub("Qwen/Qwen2.5-0.5B", "Qwen2.5-0.5B"));
  for (const char* path : {"./gpt2", "/nowhere/gpt2", "a/b/c", "gpt2/", "a name"})
    expect_refusal(1, {"look", "--model", path, "a"},
                   "'" + std::string(path) +
                       "' is not a folder; a model folder with config.json, or a GGUF file, is expected");
  expect_refusal(
      1, {"look", "--model", folder / "bert", "a"},
      "'" + (folder / "bert") +
          "' has no tensor embeddings.word_embeddings.weight, which the model of its config.json needs");
  expect_refusal(1, {"look", folder / "bert/model.safetensors"},
                 (folder / "bert/model.safetensors") +
                     " holds the parameters of a model, not a call of attention" + instead);
  for (const std::string command : {"look", "who", "atlas"})
    for (const std::string& model : {folder / "bert", folder / "none.gguf"}) {
      std::vector<std::string> words = {command, model, "a"};
      if (command == "who") words = {command, "a", "b", model, "a"};
      if (command == "atlas") words.insert(words.end(), {"--out", folder / "a.png"});
      expect_refusal(
          2, words,
          "DOC is '" + model + "', which is a model; --model before it and words after it are expected");
    }
}

TEST(LookModel, NoResultIsWrittenOverAGgufFile) {
  const TemporaryFolder folder;
  std::ofstream(folder / "m.gguf") << "GGUF";
  expect_refusal(2, {"look", "--model", folder / "m.gguf", "a", "--csv", folder / "m.gguf"},
                 "--csv '" + (folder / "m.gguf") +
                     "' is the file that --model is read from; an input is never overwritten");
}

TEST(LookModel, RefusesWhatItCannotDo) {
  expect_refusal(2, {"look", "--model", "induction"},
                 "no text is given; WORDS or --text FILE is expected after --model DIR");
  expect_refusal(2, {"look", "--model", "induction", "--layer", "2", "a"},
                 "--layer is 2; the layers are 0 to 1");
  expect_refusal(2, {"look", "--model", "induction", "a", "--causal"},
                 "--causal is given together with --model, which contains the call");
  expect_refusal(2, {"look", "--query", "q.npy", "--key", "q.npy", "--value", "q.npy", "--layer", "1"},
                 "--layer is given without --model DIR or DOC, which have layers");
  expect_refusal(2, {"look", "x.safetensors", "y"}, "'y' is one argument too many (see heed look --help)");
}

// If a text is read twice, every mean stays the same, over twice the rows.
TEST(LookAtAModel, ATextThatIsReadTwiceHasTheScoresOfOne) {
  const TemporaryFolder folder;
  heed::io::write_text(folder / "text", "to be or not to be or not to be");
  const auto summary_of = [&](const Words& texts) {
    Words all = {"look", "--model", "induction"};
    for (const std::string& text : texts) all.insert(all.end(), {"--text", text});
    all.push_back("--json");
    const CommandResult result = run_heed(all);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return Json::parse(result.output).at("summary");
  };
  const Json once = summary_of({folder / "text"});
  const Json twice = summary_of({folder / "text", folder / "text"});
  ASSERT_EQ(once.size(), 8U);
  ASSERT_EQ(twice.size(), 8U);
  for (std::size_t h = 0; h < 8; ++h) {
    EXPECT_EQ(twice[h].at("rows").get<int>(), 2 * once[h].at("rows").get<int>());
    EXPECT_EQ(twice[h].at("name"), once[h].at("name"));
    EXPECT_NEAR(twice[h].at("entropy").get<double>(), once[h].at("entropy").get<double>(), 1e-12);
    for (const auto& [name, score] : once[h].at("scores").items())
      if (score.is_number()) {
        EXPECT_NEAR(twice[h].at("scores").at(name).get<double>(), score.get<double>(), 1e-12) << name;
      }
  }
}

}  // namespace
