// heed/model/generate.hpp: generating text with models.
#include "heed/model/generate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpt2_oracle.hpp"
#include "heed/nn/trained_model.hpp"
#include "io_support.hpp"
#include "model/sample.hpp"
#include "model/watched.hpp"
#include "support.hpp"

namespace {

using heed::CacheFormat;
using heed::GeneratedToken;
using heed::GenerateOptions;
using heed::Model;
using heed::ModelTokens;
using heed::Tensor;
using heed::TensorView;
using heed::test::Gpt2;
using heed::test::message_of;
using heed::test::TemporaryFolder;
using heed::test::write_file;
using Words = std::vector<std::string>;

const std::string kFolder = std::string(HEED_SOURCE_DIR) + "/models/induction";

TEST(Generation, WritesOnTokenByToken) {
  const Model model = heed::load_model(kFolder);
  Words added;
  const std::string text = generate(model, "to be or not to be", {.tokens = 3, .temperature = 0},
                                    [&](const GeneratedToken& token) { added.push_back(token.text); });
  EXPECT_EQ(text, " or not to");  // as heed generate prints it after the prompt
  EXPECT_EQ(added, (Words{" or", " not", " to"}));
  const GenerateOptions wild{.tokens = 20, .temperature = 3, .seed = 4};
  EXPECT_EQ(generate(model, "to be", wild), generate(model, "to be", wild));
}

// The ids that the trained model generates without a cache. Each token takes a whole pass over as many of the
// last tokens as the context holds.
std::vector<std::int64_t> ids_without_cache(const heed::nn::LanguageModel& model,
                                            std::vector<std::int64_t> ids, const GenerateOptions& options) {
  const std::size_t given = ids.size();
  heed::Generator generator(options.seed);
  for (std::int64_t n = 0; n < options.tokens; ++n) {
    const auto seen = std::min<std::int64_t>(static_cast<std::int64_t>(ids.size()), model.config.context);
    const Tensor logits =
        model.forward(TensorView(ids.data() + ids.size() - seen, {seen}), {.threads = 1}).logits;
    const auto last = logits.values<float>().last(static_cast<std::size_t>(model.config.vocabulary));
    ids.push_back(heed::detail::sample(last, options, generator));
  }
  return {ids.begin() + static_cast<std::ptrdiff_t>(given), ids.end()};
}

std::vector<std::int64_t> ids_of(const std::vector<GeneratedToken>& tokens) {
  std::vector<std::int64_t> ids;
  for (const GeneratedToken& token : tokens) ids.push_back(token.id);
  return ids;
}

// The definition of sample(), by sorting the whole vocabulary.
std::int64_t sampled_by_a_sort(const std::vector<float>& logits, const GenerateOptions& options,
                               double uniform) {
  std::vector<std::pair<double, std::int64_t>> order;
  for (std::size_t i = 0; i < logits.size(); ++i)
    order.emplace_back(-static_cast<double>(logits[i]), static_cast<std::int64_t>(i));
  std::sort(order.begin(), order.end());
  if (options.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(options.top_k)));
  std::vector<double> upto;
  for (const auto& [logit, id] : order)
    upto.push_back((upto.empty() ? 0 : upto.back()) +
                   std::exp((order.front().first - logit) / options.temperature));
  const auto last = std::lower_bound(upto.begin(), upto.end() - 1, options.top_p * upto.back());
  const auto found = std::upper_bound(upto.begin(), last, uniform * *last);
  return order[static_cast<std::size_t>(found - upto.begin())].second;
}

// Some logits are equal. Sums are added in another order, but none of the thousand draws is within 1e-12 of a
// boundary.
TEST(Generation, DrawsWhatASortOfTheVocabularyWould) {
  heed::Generator numbers(7), generator(8), same(8);
  for (int n = 0; n < 1000; ++n) {
    std::vector<float> logits(static_cast<std::size_t>(1 + n * 7 % 1200));
    const Tensor drawn = heed::randn(numbers, {std::ssize(logits)});
    for (std::size_t i = 0; i < logits.size(); ++i)
      logits[i] = std::round(drawn.values<float>()[i] * 30) / 10;
    const GenerateOptions options{.temperature = n % 3 == 0 ? 5.0 : 0.7,
                                  .top_k = n % 4 == 0 ? 100 : 0,
                                  .top_p = n % 5 == 0   ? 1.0
                                           : n % 5 == 1 ? 0.3
                                                        : 0.95};
    const double uniform = heed::rand(same, {1}, heed::DType::f64).at<double>(0);
    EXPECT_EQ(heed::detail::sample(logits, options, generator), sampled_by_a_sort(logits, options, uniform))
        << n;
  }
}

// Logits differ by rounding. A test would only notice if a draw were that close to a boundary.
TEST(Generation, WritesOverACacheWhatWholePassesDo) {
  const Model model = heed::load_model(kFolder);
  const heed::TrainedModel trained = heed::load_trained_model(kFolder);
  std::string longer;
  for (int i = 0; i < 70; ++i) longer += "w" + std::to_string(i % 23) + " ";
  // Within the context, across its end, and beyond it.
  const std::pair<std::string, std::int64_t> cases[] = {{"to be or not to be", 20}, {"a", 70}, {longer, 8}};
  for (const auto& [text, tokens] : cases)
    for (const GenerateOptions& options :
         {GenerateOptions{.tokens = tokens, .temperature = 0}, GenerateOptions{.tokens = tokens, .seed = 3},
          GenerateOptions{.tokens = tokens, .temperature = 2, .top_k = 7, .top_p = 0.8, .seed = 4}}) {
      const ModelTokens prompt = model.tokenize(text);
      EXPECT_EQ(ids_of(generate(model, prompt, options)),
                ids_without_cache(trained.model, prompt.ids, options))
          << text;
    }
}

// Twenty symbols three times. The rows of the first 32 tokens are then quantised.
TEST(Generation, WritesOverCachesOfEveryFormat) {
  const Model model = heed::load_model(kFolder);
  std::string prompt;
  for (int i = 0; i < 60; ++i) prompt += "w" + std::to_string(i % 20) + " ";
  const std::vector<std::int64_t> ids = model.tokenize(prompt).ids;
  const Tensor whole = model.logits(model.hidden_states(TensorView(ids.data(), {60})));
  // Keys and values are each rounded once, by at most this share of the largest number in their group.
  for (const auto& [format, rounding] :
       {std::pair(CacheFormat::f32, 0x1p-20), std::pair(CacheFormat::bf16, 0x1p-9),
        std::pair(CacheFormat::f16, 0x1p-12), std::pair(CacheFormat::int8, 1.0 / 254),
        std::pair(CacheFormat::int4, 1.0 / 30), std::pair(CacheFormat::fp8, 0x1p-4)}) {
    const GenerateOptions options{.tokens = 4, .temperature = 0, .cache = format};
    EXPECT_EQ(generate(model, prompt, options), " w0 w1 w2 w3") << name_of(format);
    heed::ModelCache cache(model.info(), format);
    double largest = 0, size = 0;
    for (const std::int64_t count : {40, 41, 55, 60}) {
      const std::int64_t read = cache.length();
      const Tensor hidden = model.hidden_states(TensorView(ids.data() + read, {count - read}), cache);
      const Tensor logits = model.logits(hidden.view().narrow(0, count - read - 1, 1));
      for (std::int64_t v = 0; v < model.info().vocabulary; ++v) {
        const double exact = static_cast<double>(whole.at<float>(count - 1, v));
        largest = std::max(largest, std::abs(static_cast<double>(logits.at<float>(0, v)) - exact));
        size = std::max(size, std::abs(exact));
      }
    }
    EXPECT_LE(largest, 2 * rounding * size) << name_of(format);
    EXPECT_EQ(largest > 1e-4, format != CacheFormat::f32) << name_of(format);  // it is the format requested
  }
}

class RandomGpt2 : public testing::Test {
 protected:
  RandomGpt2() {
    oracle.fill(5);
    oracle.write(folder.path());
  }
  // The end-of-text tokens, as a generation configuration gives them.
  void write_generation_config(const std::string& json) const {
    write_file(folder / "generation_config.json", json);
  }

  TemporaryFolder folder;
  Gpt2 oracle;
};

// If weights are equal, the first head's counts, and tokens keep the order of their heads.
TEST(Watched, EqualWeightsKeepTheOrderOfTheHeads) {
  const std::vector<heed::WatchedPair> pairs = {
      {{0, 0}, 0, "", 0.9},  {{0, 0}, 5, "", 0.25}, {{0, 1}, 7, "", 0.5}, {{0, 1}, 6, "", 0.25},
      {{1, 0}, 5, "", 0.25}, {{1, 0}, 6, "", 0.5},  {{1, 1}, 8, "", 0.25}};
  const auto told = [](const std::vector<heed::WatchedPair>& found) {
    std::vector<std::pair<std::int64_t, std::int64_t>> all;  // place, layer * 2 + head
    for (const heed::WatchedPair& pair : found)
      all.emplace_back(pair.place, pair.head.layer * 2 + pair.head.head);
    return all;
  };
  using Told = std::vector<std::pair<std::int64_t, std::int64_t>>;
  EXPECT_EQ(told(heed::detail::heaviest(pairs, std::nullopt, 4)), (Told{{7, 1}, {6, 2}, {5, 0}, {8, 3}}));
  EXPECT_EQ(told(heed::detail::heaviest(pairs, std::nullopt, 3)), (Told{{7, 1}, {6, 2}, {5, 0}}));
  EXPECT_EQ(told(heed::detail::heaviest(pairs, heed::ModelHead{0, 0}, 3)), (Told{{0, 0}, {5, 0}}));
  EXPECT_TRUE(heed::detail::heaviest(pairs, std::nullopt, 0).empty());
}

// Weights and probabilities must agree with the formulas in f64.
TEST_F(RandomGpt2, TellsWhatItAttendedTo) {
  const Model model = heed::load_model(folder.path());
  ModelTokens prompt;
  prompt.ids = {3, 1, 4, 1, 5, 9};
  const GenerateOptions options{.tokens = 5, .temperature = 0, .watch = 3};
  const std::vector<GeneratedToken> any = generate(model, prompt, options);
  GenerateOptions of_one = options;
  of_one.head = heed::ModelHead{1, 2};
  const std::vector<GeneratedToken> one = generate(model, prompt, of_one);
  ASSERT_EQ(any.size(), 5u);
  std::vector<std::int64_t> ids = prompt.ids;
  for (std::size_t n = 0; n < any.size(); ++n) {
    const heed::test::Gpt2Run run = run_of(oracle, ids);
    const auto last = static_cast<std::int64_t>(ids.size()) - 1;
    // For each position except the first: the largest weight of any head, and the weight of head 1.2.
    std::vector<std::pair<double, std::int64_t>> best, own;
    double sum = 0;
    for (std::int64_t v = 0; v < oracle.vocabulary; ++v) sum += std::exp(run.logits(last, v));
    for (std::int64_t place = 0; place <= last; ++place) {
      double most = 0;
      for (const auto& layer : run.layers)
        for (const auto& weights : layer.weights) most = std::max(most, weights(last, place));
      if (place > 0) best.emplace_back(-most, place);
      own.emplace_back(-run.layers[1].weights[2](last, place), place);
    }
    std::sort(best.begin(), best.end());
    std::sort(own.begin(), own.end());
    EXPECT_NEAR(any[n].probability, std::exp(run.logits(last, any[n].id)) / sum, 1e-5);
    ASSERT_EQ(any[n].watched.size(), 3u);
    ASSERT_EQ(one[n].watched.size(), 3u);
    for (std::size_t k = 0; k < 3; ++k) {
      const heed::WatchedPair& pair = any[n].watched[k];
      EXPECT_EQ(pair.place, best[k].second);
      // f32 rounding of scores of size 10 or less, through two layers.
      EXPECT_NEAR(pair.weight, -best[k].first, 1e-5);
      EXPECT_NEAR(pair.weight,
                  run.layers[static_cast<std::size_t>(pair.head.layer)]
                      .weights[static_cast<std::size_t>(pair.head.head)](last, pair.place),
                  1e-5);
      EXPECT_EQ(one[n].watched[k].place, own[k].second);
      EXPECT_EQ(one[n].watched[k].head, (heed::ModelHead{1, 2}));
      EXPECT_NEAR(one[n].watched[k].weight, -own[k].first, 1e-5);
      EXPECT_EQ(pair.token, "#" + std::to_string(ids[static_cast<std::size_t>(pair.place)]));
    }
    ids.push_back(any[n].id);
  }
  // Watching heads does not change the output.
  EXPECT_EQ(ids_of(any), ids_of(generate(model, prompt, {.tokens = 5, .temperature = 0})));
}

TEST_F(RandomGpt2, StopsAtATokenThatEndsTexts) {
  ModelTokens prompt;
  prompt.ids = {3, 1, 4};
  const GenerateOptions wild{.tokens = 60, .temperature = 4};
  const std::vector<std::int64_t> all = ids_of(generate(heed::load_model(folder.path()), prompt, wild));
  ASSERT_EQ(all.size(), 60u);  // beyond the context of 32
  const std::int64_t end = all[20];
  const auto first = std::find(all.begin(), all.end(), end);
  std::string ends = "[";
  ends += std::to_string(end);
  write_generation_config("{\"eos_token_id\": " + ends + ", 50256], \"bos_token_id\": 7}");
  const Model model = heed::load_model(folder.path());
  EXPECT_EQ(model.info().end_tokens, std::vector<std::int64_t>{end});
  EXPECT_EQ(ids_of(generate(model, prompt, wild)), std::vector<std::int64_t>(all.begin(), first + 1));
  EXPECT_EQ(generate(model, ModelTokens{}, {.tokens = 1}).front().id, 7);
}

TEST_F(RandomGpt2, ReadsNoTokenThatItHasNoEmbeddingFor) {
  write_file(folder / "tokenizer.json", R"({"pre_tokenizer": {"type": "Whitespace"},
      "model": {"type": "WordLevel", "vocab": {"a": 0, "last": 28, "beyond": 29}, "unk_token": "a"}})");
  const Model model = heed::load_model(folder.path());
  EXPECT_EQ(model.tokenize("a last").ids, (std::vector<std::int64_t>{0, 28}));
  EXPECT_EQ(message_of([&] { (void)model.tokenize("a beyond", "it"); }),
            "it has the token 'beyond' with id 29; the model has 29 tokens");
}

TEST_F(RandomGpt2, ReadsATextByItsVocabularyFilesOrSaysWhichItLacks) {
  EXPECT_EQ(message_of([&] { (void)heed::load_model(folder.path()).tokenize("ab", "it"); }),
            "the model has no tokenizer.json, so it cannot be split into tokens");
  write_file(folder / "vocab.json", R"({"a": 0, "b": 1, "ab": 2})");
  EXPECT_EQ(
      message_of([&] { (void)heed::load_model(folder.path()).tokenize("ab", "it"); }),
      "the model has vocab.json and no tokenizer.json, which heed builds for 'gpt2' from vocab.json and "
      "merges.txt, so it cannot be split into tokens");
  write_file(folder / "merges.txt", "a b\n");
  EXPECT_EQ(heed::load_model(folder.path()).tokenize("aba").ids, (std::vector<std::int64_t>{2, 0}));
}

TEST_F(RandomGpt2, RefusesWhatItsConfigurationSaysOfEnds) {
  write_generation_config("{\"eos_token_id\": \"end\"}");
  EXPECT_EQ(message_of([&] { (void)heed::load_model(folder.path()); }),
            "'" + (folder / "generation_config.json") +
                "' has eos_token_id that is neither a whole number nor a list of whole numbers");
  write_generation_config("[");
  EXPECT_EQ(message_of([&] { (void)heed::load_model(folder.path()); }),
            (folder / "generation_config.json") + " is not JSON");
}

// transformers applies them if it samples.
TEST_F(RandomGpt2, SamplesByNoSettingThatItDoesNotHave) {
  ModelTokens prompt;
  prompt.ids = {3, 1, 4};
  const auto error = [&](const std::string& json, double temperature) {
    write_generation_config(json);
    const Model model = heed::load_model(folder.path());
    return message_of([&] { (void)generate(model, prompt, {.tokens = 1, .temperature = temperature}); });
  };
  const std::string file = "'" + (folder / "generation_config.json") + "' has ";
  EXPECT_EQ(error(R"({"min_p": 0.05})", 1),
            file + "min_p 0.05, which heed cannot apply; 0, or temperature 0, is expected");
  EXPECT_EQ(error(R"({"typical_p": 0.9})", 0.5),
            file + "typical_p 0.9, which heed cannot apply; 1.0, or temperature 0, is expected");
  EXPECT_EQ(error(R"({"top_h": 1})", 1),
            file + "top_h 1, which heed cannot apply; null, or temperature 0, is expected");
  for (const char* name : {"epsilon_cutoff", "eta_cutoff", "xtc_probability", "mirostat"})
    EXPECT_EQ(error(R"({")" + std::string(name) + R"(": 1e-3})", 1),
              file + name + " 0.001, which heed cannot apply; 0, or temperature 0, is expected");
  for (const char* same :
       {R"({"min_p": 0.05, "typical_p": 0.9, "epsilon_cutoff": 1e-3, "eta_cutoff": 1e-3, "top_h": 1})",
        R"({"do_sample": true, "temperature": 0.7, "top_k": 5, "top_p": 0.5})"})
    EXPECT_EQ(error(same, 0), "no error") << same;
  EXPECT_EQ(error(R"({"min_p": 0.0, "typical_p": 1, "epsilon_cutoff": 0, "eta_cutoff": null})", 1),
            "no error");
}

TEST(Generation, NamesWhatMayComeNext) {
  const Model model = heed::load_model(kFolder);
  const ModelTokens text = model.tokenize("one two three four five one two three four five");
  const Tensor logits = model.logits(model.hidden_states(TensorView(text.ids.data(), {10})));
  for (std::int64_t place = 5; place < 10; ++place) {
    const auto some = expected(model, logits.view().select(0, place), text, 3);
    ASSERT_EQ(some.size(), 3u);
    EXPECT_EQ(some[0].token, text.shown[static_cast<std::size_t>((place + 1) % 5)]);
    EXPECT_TRUE(some[0].probability >= 0.5);
    EXPECT_TRUE(some[0].probability >= some[1].probability);
  }
  double sum = 0;
  for (const auto& one : expected(model, logits.view().select(0, 9), text, 1000)) sum += one.probability;
  EXPECT_NEAR(sum, 1, 1e-12);  // all probabilities: roundings of a sum of 64 numbers in f64
  EXPECT_EQ(message_of([&] { (void)expected(model, logits.view().select(0, 9), text, -1); }),
            "count is -1; 0 or more is expected");
}

TEST(Generation, RefusesInOneSentence) {
  const Model model = heed::load_model(kFolder);
  const auto refusal = [&](const GenerateOptions& options, const char* prompt = "to") {
    return message_of([&] { (void)generate(model, prompt, options); });
  };
  EXPECT_EQ(refusal({}, ""),
            "the prompt has no words; at least one is expected because this model continues repetitions");
  EXPECT_EQ(refusal({.tokens = 0}), "tokens is 0; 1 or more is expected");
  EXPECT_EQ(refusal({.temperature = std::numeric_limits<double>::infinity()}),
            "temperature is inf; a finite number of at least 0 is expected");
  EXPECT_EQ(refusal({.temperature = -1}), "temperature is -1; a finite number of at least 0 is expected");
  EXPECT_EQ(refusal({.temperature = std::nan("")}),
            "temperature is nan; a finite number of at least 0 is expected");
  EXPECT_EQ(refusal({.top_k = -1}), "top_k is -1; 0 (all) or more is expected");
  EXPECT_EQ(refusal({.top_p = 0}), "top_p is 0; a number above 0, at most 1, is expected");
  EXPECT_EQ(refusal({.watch = -1}), "watch is -1; 0 (nothing) or more is expected");
  EXPECT_EQ(refusal({.head = heed::ModelHead{2, 0}}),
            "head is 2.0; layers 0 to 1 with heads 0 to 3 are expected");
  EXPECT_EQ(refusal({.head = heed::ModelHead{1, 4}}),
            "head is 1.4; layers 0 to 1 with heads 0 to 3 are expected");
  EXPECT_EQ(message_of([&] { (void)generate(model, ModelTokens{}); }),
            "the prompt has no tokens; at least one is expected because the model has no BOS token");
  heed::ModelInfo odd = model.info();
  odd.head_dim = 3;
  EXPECT_EQ(message_of([&] { (void)heed::ModelCache(odd, CacheFormat::int4); }),
            "head_dim is 3; an even number is expected for int4");
}

}  // namespace
