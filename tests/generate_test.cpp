// heed generate: the output of trained models, and untrusted model folders.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "command.hpp"
#include "heed/io/tensors.hpp"
#include "heed/nn/trained_model.hpp"
#include "model/sample.hpp"
#include "support.hpp"

namespace {

namespace fs = std::filesystem;
using heed::Generator;
using heed::detail::sample;
using heed::test::CommandResult;
using heed::test::message_of;
using heed::test::run_heed;
using heed::test::share_of;
using heed::test::TemporaryFolder;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Generate : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder = new TemporaryFolder;
    std::ofstream(*folder / "text.txt") << "abcdé abcdé abcdé abcdé abcdé abcdé\n";
    const CommandResult result = run_heed({"train",           *folder / "text.txt",
                                           "--out",           *folder / "model",
                                           "--layers",        "1",
                                           "--heads",         "2",
                                           "--model-dim",     "16",
                                           "--context",       "8",
                                           "--batch",         "4",
                                           "--steps",         "300",
                                           "--warmup",        "10",
                                           "--learning-rate", "0.02",
                                           "--threads",       "1"});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    const CommandResult symbols =
        run_heed({"train", "--task", "induction", "--out", *folder / "symbols", "--symbols", "4", "--layers",
                  "1", "--heads", "1", "--model-dim", "4", "--context", "8", "--batch", "2", "--steps", "2"});
    ASSERT_EQ(symbols.exit_code, 0) << symbols.errors;
  }
  static void TearDownTestSuite() {
    delete folder;
    folder = nullptr;
  }
  static CommandResult generate(const Words& more, const std::string& model = "model") {
    Words all = {"generate", *folder / model};
    all.insert(all.end(), more.begin(), more.end());
    return run_heed(all);
  }
  static void expect_refusal(int exit_code, const Words& more, const std::string& message,
                             const std::string& model = "model") {
    const CommandResult result = generate(more, model);
    EXPECT_EQ(result.exit_code, exit_code);
    EXPECT_EQ(result.errors, "heed: " + message + "\n");
  }

  static TemporaryFolder* folder;
};
TemporaryFolder* Generate::folder = nullptr;

TEST_F(Generate, WritesWhatItHasLearnt) {
  const CommandResult result = generate({"--prompt", "ab", "--tokens", "14", "--temperature", "0"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.output, "abcdé abcdé abcd\n");
}

TEST_F(Generate, GivesTheSameTextForTheSameSeed) {
  const auto text = [](const std::string& seed) {
    return generate({"--tokens", "40", "--temperature", "3", "--seed", seed}).output;
  };
  EXPECT_EQ(text("4"), text("4"));
  EXPECT_NE(text("4"), text("5"));
}

// More characters than the context of 8 holds.
TEST_F(Generate, TakesItsModelAsOtherCommandsDo) {
  const Words same = {"generate", "--model", *folder / "model", "--prompt", "ab",
                      "--tokens", "3",       "--temperature",   "0"};
  EXPECT_EQ(run_heed(same).output, "abcdé\n");
  EXPECT_EQ(generate({"--model", "stories"}).errors,
            "heed: DIR is given together with --model, which names the model too\n");
}

TEST_F(Generate, WritesOverCachesOfAnyFormat) {
  for (const char* format : {"f32", "bf16", "f16", "int8", "int4", "fp8"})
    EXPECT_EQ(generate({"--prompt", "ab", "--tokens", "14", "--temperature", "0", "--cache", format}).output,
              "abcdé abcdé abcd\n")
        << format;
}

// The first character has no weights to report. The second attends to the first, which is left out.
TEST_F(Generate, TellsWhatHeadsAttendedTo) {
  const CommandResult result =
      generate({"--prompt", "abcd", "--tokens", "2", "--temperature", "0", "--watch", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  const Json written = Json::parse(result.output, nullptr, false)["written"];
  ASSERT_EQ(written.size(), 2u);
  EXPECT_EQ(written[0]["text"], "é");
  EXPECT_GT(written[0]["probability"].get<double>(), 0.5);
  const Json attended = written[1]["attended"];
  ASSERT_EQ(attended.size(), 4u);  // b, c, d and é, each once
  for (std::size_t i = 0; i < attended.size(); ++i) {
    const auto place = attended[i]["place"].get<std::size_t>();
    EXPECT_EQ(attended[i]["token"], Words({"a", "b", "c", "d", "é"})[place]);
    EXPECT_TRUE(place > 0 && attended[i]["weight"].get<double>() <= attended[i > 0 ? i - 1 : 0]["weight"]);
  }
  const CommandResult one =
      generate({"--prompt", "abcd", "--tokens", "1", "--temperature", "0", "--watch", "--head", "0.1"});
  EXPECT_EQ(one.exit_code, 0) << one.errors;
  EXPECT_TRUE(one.output.starts_with("token           chance  what head 0.1 attended to: [place] weight\né "))
      << one.output;
  EXPECT_TRUE(one.output.ends_with(" %\n\nabcdé\n")) << one.output;
}

TEST_F(Generate, DrawsAmongTheLikeliest) {
  for (const Words& more : {Words{"--top-p", "0.01"}, Words{"--top-k", "1"}}) {
    Words all = {"--prompt", "ab", "--tokens", "14", "--temperature", "3"};
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_EQ(generate(all).output, "abcdé abcdé abcd\n");
  }
}

TEST_F(Generate, PrintsOneObject) {
  const CommandResult result = generate({"--prompt", "ab", "--tokens", "4", "--top-k", "1", "--json"});
  const Json json = Json::parse(result.output, nullptr, false);
  EXPECT_EQ(json["prompt"], "ab");
  EXPECT_EQ(json["text"], "cdé ");
  EXPECT_EQ(json["tokens"], 4);
}

TEST_F(Generate, NamesSymbolsByTheWordsThatTookThem) {
  const CommandResult result = generate({"--prompt", "to be or", "--tokens", "30", "--seed", "3"}, "symbols");
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_TRUE(result.output.starts_with("to be or ")) << result.output;
  EXPECT_NE(result.output.find(" #3"), std::string::npos) << result.output;
  EXPECT_EQ(result.output.find("#2"), std::string::npos) << result.output;
}

TEST_F(Generate, RefusesWhatItCannotDo) {
  const CommandResult nothing = run_heed({"generate"});
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_EQ(nothing.errors,
            "heed: DIR is missing: a model folder, or stories or induction, which come with heed (see "
            "heed generate --help)\n");
  expect_refusal(2, {"--tokens", "0"}, "--tokens is '0'; a whole number from 1 to 1000000 is expected");
  expect_refusal(2, {"--top-k", "0"}, "--top-k is '0'; a whole number of at least 1 is expected");
  expect_refusal(2, {"--seed", "-1"}, "--seed is '-1'; a whole number from 0 to 4294967295 is expected");
  expect_refusal(2, {"--temperature", "-1"}, "--temperature is -1.0; a number of at least 0 is expected");
  expect_refusal(2, {"--temperature", "inf"}, "--temperature is 'inf'; a finite number is expected");
  expect_refusal(2, {"--top-p", "0"}, "--top-p is 0.0; a number above 0, at most 1, is expected");
  expect_refusal(2, {"--top-p", "1.5"}, "--top-p is 1.5; a number above 0, at most 1, is expected");
  for (const std::string option : {"--top-k", "--top-p", "--seed"})
    expect_refusal(2, {"--temperature", "0", option, "1"},
                   option + " is given together with --temperature 0, which takes the likeliest token");
  expect_refusal(2, {"--head", "0.1"}, "--head is given without --watch, which shows what it attends to");
  expect_refusal(2, {"--watch", "--head", "1"},
                 "--head is '1'; a layer and a head, such as 1.3, is expected");
  expect_refusal(2, {"--watch", "--head", "1.0"},
                 "--head is '1.0'; layers 0 to 0 with heads 0 to 1 are expected");
  expect_refusal(2, {"--watch", "--head", "0.2"},
                 "--head is '0.2'; layers 0 to 0 with heads 0 to 1 are expected");
  expect_refusal(2, {"--cache", "f64"}, "--cache is 'f64'; f32, bf16, f16, int8, int4 or fp8 is expected");
  expect_refusal(2, {"--prompt", "xyz"}, "--prompt has the character 'x', which the model does not know");
  expect_refusal(2, {"--prompt", "\xff"}, "--prompt is not UTF-8 text");
  expect_refusal(2, {},
                 "--prompt has no words; at least one is expected because this model continues repetitions",
                 "symbols");
  expect_refusal(2, {"--prompt", "a b c d e"}, "--prompt has 5 different words; the model has symbols for 4",
                 "symbols");
  expect_refusal(1, {},
                 "'" + (*folder / "none") +
                     "' is not a folder; a model folder with config.json, or a GGUF file, is expected",
                 "none");
}

class StrangeModel : public Generate {
 protected:
  StrangeModel() {
    std::error_code error;
    fs::remove_all(*folder / "strange", error);
    fs::copy(*folder / "model", *folder / "strange");
  }
  static void put(const std::string& name, const std::string& text) {
    std::ofstream(*folder / "strange" + "/" + name, std::ios::binary) << text;
  }
  static std::string refusal() {
    return message_of([] { (void)heed::load_trained_model(*folder / "strange"); });
  }
  static void expect_fault(const std::string& name, const std::string& text, const std::string& message) {
    const std::string path = *folder / "strange" + "/" + name;
    const std::string kept = bytes_of(path);
    put(name, text);
    EXPECT_EQ(refusal(), path + message);
    put(name, kept);
  }
};

// Repeats `thing` separated by commas.
std::string many(const std::string& before, const std::string& thing, int count, const std::string& after) {
  std::string text = before + thing;
  for (int i = 1; i < count; ++i) text += "," + thing;
  return text + after;
}

TEST_F(StrangeModel, IsRefusedInOneSentence) {
  const std::string config = bytes_of(*folder / "model" + "/config.json");
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = config;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  expect_fault("config.json", "{", " is not JSON");
  const std::string none =
      " is not the configuration of a model from heed train: its format is not 'heed model 2'";
  expect_fault("config.json", "[]", none);
  expect_fault("config.json", changed("heed model 2", "heed model 3"), none);
  expect_fault("config.json", "{\"heed\":{\"format\":\"heed model 2\",\"settings\":[]}}",
               ": its settings are not a JSON object");
  expect_fault(
      "config.json", "{\"format\":\"heed model 1\",\"settings\":{}}",
      " was written by an earlier heed; heed train --resume rewrites the folder from its checkpoint");
  put("config.json", "{\"format\":\"heed model 1\",\"settings\":{}}");
  expect_refusal(1, {},
                 "'" + (*folder / "strange") +
                     "/config.json' was written by an earlier heed; heed train --resume rewrites the folder "
                     "from its checkpoint",
                 "strange");
  put("config.json", config);
  expect_fault("config.json", "{\"model_type\":\"bert\"}", " describes a model that heed train did not make");
  expect_fault("config.json", changed("\"n_layer\": 1", "\"n_layer\": 2"),
               " has n_layer 2; its settings and vocabulary.json give 1");
  expect_fault("config.json", changed("\"n_inner\"", "\"inner\""),
               " has n_inner missing; its settings and vocabulary.json give 64");
  expect_fault("config.json", changed("\"layers\"", "\"lairs\""), ": its settings have no 'layers'");
  expect_fault("config.json", changed("\"task\": \"text\"", "\"task\": 3"),
               ": its task is neither 'text' nor 'induction'");
  expect_fault("config.json", changed("\"attention_only\": false", "\"attention_only\": 0"),
               ": its 'attention_only' is neither true nor false");
  expect_fault("config.json", changed("\"layers\": 1", "\"layers\": 1e300"),
               ": its 'layers' is not a whole number from 1 to 1000");
  expect_fault("config.json", changed("\"clip\": 1.0", "\"clip\": \"1\""),
               ": its 'clip' is not a finite number above 0");
  expect_fault("config.json", changed("\"heads\": 2", "\"heads\": 3"),
               " has a model_dim that is not a multiple of its heads");
  expect_fault("config.json", changed("\"heads\": 2", "\"heads\": 5"),  // 16 = 3 * 5 + 1
               " has a model_dim that is not a multiple of its heads");
  expect_fault("vocabulary.json", "{\"words\":[]}",
               " is not a vocabulary: an object with 'characters' or 'symbols' is expected");
  expect_fault("vocabulary.json", "{\"symbols\":0}", " has symbols that are not a number from 1 to 1000000");
  expect_fault("vocabulary.json", "{\"characters\":[]}",
               " has characters that are not a list of 1 to 1000000");
  expect_fault("vocabulary.json", "{\"characters\":[\"ab\"]}", " has a character that is not one code point");
  expect_fault("vocabulary.json", "{\"characters\":[\"b\",\"a\"]}", " has characters that are not in order");
  fs::remove(*folder / "strange" + "/vocabulary.json");
  EXPECT_EQ(refusal(),
            (*folder / "strange") + "/vocabulary.json could not be opened: No such file or directory");
}

// Parsed values take many times the memory of their text, so their size, depth and number are limited.
TEST_F(StrangeModel, OfHugeOrDeepFilesIsRefused) {
  expect_fault("config.json", std::string(100'000, '['), " nests values more than 8 deep, the limit");
  expect_fault("vocabulary.json", "{\"characters\":[[[[[[[[[]]]]]]]]]}",
               " nests values more than 8 deep, the limit");
  expect_fault("config.json", std::string((1 << 20) + 1, ' '), " is larger than 1 MiB");
  expect_fault("vocabulary.json", std::string((16 << 20) + 1, ' '), " is larger than 16 MiB");
  expect_fault("config.json", many("[", "0", 10'001, "]"), " has more than 10000 values, the limit");
  expect_fault("config.json", many("{", "\"a\":0", 101, "}"),
               " has an object of more than 100 members, the limit");
  const std::string long_word(1'100'000, 'a');
  expect_fault("vocabulary.json", "{\"characters\":[\"" + long_word + "\"]}",
               " has a string, a number or a gap of more than 1048576 bytes, the limit");
}

// Some of these took minutes, others hundreds of megabytes, when all of a file was parsed into values.
TEST_F(StrangeModel, OfManySmallThingsIsRefusedAtTheFirstThatDoesNotFit) {
  const std::string form = " is not a vocabulary: an object with 'characters' or 'symbols' is expected";
  expect_fault("vocabulary.json", many("[", "{}", 500'000, "]"), form);
  expect_fault("vocabulary.json", many("[", "[]", 500'000, "]"), form);
  std::string keys = "{";
  for (int i = 0; i < 200'000; ++i) keys += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":0";
  expect_fault("vocabulary.json", keys + "}", form);
  expect_fault("vocabulary.json", "{\"symbols\":2,\"symbols\":2}", form);
  expect_fault("vocabulary.json", many("{\"characters\":[", "1", 500'000, "]}"),
               " has a character that is not one code point");
  expect_fault("vocabulary.json", "{\"characters\":[\"a\",[\"b\"]]}",
               " has a character that is not one code point");
  expect_fault("vocabulary.json", "{\"characters\":{\"a\":1}}",
               " has characters that are not a list of 1 to 1000000");
  expect_fault("vocabulary.json", "{\"symbols\":[2]}",
               " has symbols that are not a number from 1 to 1000000");
  expect_fault("vocabulary.json", "{}", form);
  expect_fault("vocabulary.json", "2", form);
  expect_fault("vocabulary.json", std::string("{\"symbols\":2}\0", 14), " is not JSON");
}

// Reading a pipe would block, and reading a device would never end.
TEST_F(StrangeModel, OfWhatIsNoFileIsRefused) {
  const std::string path = *folder / "strange" + "/vocabulary.json";
  fs::remove(path);
  fs::create_symlink("/dev/zero", path);
  EXPECT_EQ(refusal(), path + " is not a regular file");
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_EQ(refusal(), path + " is a folder; a file is expected");
}

// Sizes that exceed the file are refused before memory is allocated for them.
TEST_F(StrangeModel, ThatClaimsTerabytesIsRefusedAtOnce) {
  std::string config = bytes_of(*folder / "model" + "/config.json");
  for (const std::string name : {"model_dim", "n_embd", "n_inner"}) {
    const std::size_t value = config.find("\"" + name + "\": ") + name.size() + 4;
    const char* large = name == "n_inner" ? "400000" : "100000";
    config.replace(value, config.find_first_of(",\n", value) - value, large);
  }
  put("config.json", config);
  EXPECT_NE(refusal().find("/model.safetensors holds "), std::string::npos) << refusal();
}

TEST_F(StrangeModel, OfNumbersThatAreNoneIsRefused) {
  const std::string path = *folder / "strange" + "/model.safetensors";
  heed::io::TensorFile file = heed::io::read_safetensors(path);
  std::vector<std::pair<std::string, heed::TensorView>> tensors;
  for (auto& [name, tensor] : file.tensors) {
    if (name == "transformer.ln_f.bias") tensor.values<float>()[3] = std::numeric_limits<float>::quiet_NaN();
    tensors.emplace_back(name, tensor);
  }
  heed::io::write_safetensors(path, tensors);
  expect_refusal(1, {"--prompt", "a", "--json"}, "the model gives a logit that is not a number", "strange");
}

TEST_F(StrangeModel, NeverCrashes) {
  const std::uint32_t seed = 5;
  std::mt19937 random(seed);
  for (const char* name : {"config.json", "vocabulary.json", "model.safetensors"}) {
    const std::string good = bytes_of(*folder / "model" + "/" + name);
    for (std::uint64_t i = 0; i < share_of(25); ++i) {
      std::string bytes = good;
      const std::size_t at = random() % std::min<std::size_t>(bytes.size(), 1500);
      if (i % 5 == 0)
        bytes.resize(at);
      else
        bytes[at] = static_cast<char>(random());
      put(name, bytes);
      const CommandResult result = generate({"--tokens", "2"}, "strange");
      (void)refusal();
      EXPECT_TRUE(result.exit_code >= 0 && result.exit_code <= 2)
          << name << ", byte " << at << ", seed " << seed << ": " << result.errors;
    }
    put(name, good);
  }
}

TEST(Sampling, TakesTheLargestWhenCold) {
  Generator generator(1);
  const std::vector<float> logits = {0, 3, 3, -1};
  for (int i = 0; i < 20; ++i) EXPECT_EQ(sample(logits, {.temperature = 0}, generator), 1);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(sample(logits, {.top_k = 1}, generator), 1);
}

TEST(Sampling, LeavesTheFewestThatHaveTheShareOfTopP) {
  Generator generator(1);
  // Probabilities of 1/9, 2/9, 0 and 6/9.
  const std::vector<float> logits = {0, std::log(2.0f), -40, std::log(6.0f)};
  const auto drawn = [&](const heed::GenerateOptions& options) {
    std::vector<int> counts(4);
    for (int i = 0; i < 300; ++i) ++counts[static_cast<std::size_t>(sample(logits, options, generator))];
    return counts;
  };
  EXPECT_EQ(drawn({.top_p = 0.66})[3], 300);
  const std::vector<int> two = drawn({.top_p = 0.67});
  EXPECT_TRUE(two[0] == 0 && two[1] > 0 && two[3] > 0);
  // With top_k = 2 the probabilities are 2/8 and 6/8.
  EXPECT_EQ(drawn({.top_k = 2, .top_p = 0.74})[3], 300);
  EXPECT_GT(drawn({.top_k = 2, .top_p = 0.76})[1], 0);
}

TEST(Sampling, DrawsByTheSoftmaxOfWhatTheTopKLeaves) {
  Generator generator(1);
  const std::vector<float> logits = {0, std::log(2.0f), -40, std::log(6.0f)};
  std::vector<int> counts(4);
  constexpr int kDraws = 9000;
  for (int i = 0; i < kDraws; ++i) ++counts[static_cast<std::size_t>(sample(logits, {}, generator))];
  // The probabilities are 1/9, 2/9, 0 and 6/9. Five standard deviations of a binomial count are below 240.
  EXPECT_NEAR(counts[0], 1000, 240);
  EXPECT_NEAR(counts[1], 2000, 240);
  EXPECT_EQ(counts[2], 0);
  EXPECT_NEAR(counts[3], 6000, 240);
  counts.assign(4, 0);
  for (int i = 0; i < kDraws; ++i)
    ++counts[static_cast<std::size_t>(sample(logits, {.temperature = 2, .top_k = 2}, generator))];
  EXPECT_EQ(counts[0], 0);
  EXPECT_NEAR(counts[3], kDraws * std::sqrt(6.0) / (std::sqrt(6.0) + std::sqrt(2.0)), 240);
}

}  // namespace
