// heed/model.hpp: what a trained model's folder gives, from C++.
#include "heed/model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io_support.hpp"
#include "model/decode.hpp"
#include "model/generate.hpp"
#include "support.hpp"

namespace {

using heed::CacheFormat;
using heed::Document;
using heed::GenerateOptions;
using heed::HeadSummary;
using heed::Reading;
using heed::Tensor;
using heed::TensorView;
using heed::Tokenizer;
using heed::TrainedModel;
using heed::Vocabulary;
using heed::test::message_of;
using heed::test::TemporaryFolder;
using Words = std::vector<std::string>;

const std::string kFolder = std::string(HEED_SOURCE_DIR) + "/models/induction";
constexpr const char* kText = "one two three four five one two three four five";

TEST(Tokenizer, NumbersTheCharactersOfATextByTheirBytes) {
  const Tokenizer tokenizer = Tokenizer::of_characters("caf\u00e9 face");
  EXPECT_FALSE(tokenizer.is_symbols());
  EXPECT_EQ(tokenizer.characters().words(), (Words{" ", "a", "c", "e", "f", "\u00e9"}));
  EXPECT_EQ(tokenizer.tokens_of("\u00e9 f"), (Words{"\u00e9", " ", "f"}));
  const heed::Tensor ids = tokenizer.encode({"\u00e9", " ", "f"});
  EXPECT_EQ(ids.at<std::int64_t>(0), 5);
  EXPECT_EQ(ids.at<std::int64_t>(1), 0);
  EXPECT_EQ(ids.at<std::int64_t>(2), 4);
  EXPECT_EQ(tokenizer.text_of(5, {}), "\u00e9");
}

TEST(Tokenizer, NumbersWordsOntoSymbolsAsTheyFirstAppear) {
  const Tokenizer tokenizer = Tokenizer::of_symbols(3);
  EXPECT_TRUE(tokenizer.is_symbols());
  const Words words = tokenizer.tokens_of("b, a b");
  EXPECT_EQ(words, (Words{"b", "a", "b"}));
  const heed::Tensor ids = tokenizer.encode(words);
  EXPECT_EQ(ids.at<std::int64_t>(0), 0);
  EXPECT_EQ(ids.at<std::int64_t>(1), 1);
  EXPECT_EQ(ids.at<std::int64_t>(2), 0);
  EXPECT_EQ(tokenizer.text_of(1, words), "a");
  EXPECT_EQ(tokenizer.text_of(2, words), "#2");
}

TEST(Tokenizer, SaysWhatItDoesNotKnow) {
  const Tokenizer letters = Tokenizer::of_characters("ab");
  const Tokenizer symbols = Tokenizer::of_symbols(2);
  EXPECT_EQ(message_of([] { (void)Tokenizer::of_characters("\xff", "the file"); }),
            "the file is not UTF-8 text");
  EXPECT_EQ(message_of([] { (void)Tokenizer::of_symbols(0); }),
            "count is 0; 1 to 1000000 symbols are expected");
  EXPECT_EQ(message_of([&] { (void)letters.tokens_of("\xc3"); }), "the text is not UTF-8 text");
  EXPECT_EQ(message_of([&] { (void)letters.encode({"c"}, "it"); }),
            "it has the character 'c', which the model does not know");
  EXPECT_EQ(message_of([&] {
              (void)symbols.encode({"x", "y", "z"});
            }),
            "the text has 3 different words; the model has symbols for 2");
  EXPECT_EQ(message_of([&] { (void)letters.text_of(2, {}); }), "id is 2; 0 to 1 is expected");
}

TEST(TrainedModel, SaysWhatFollowedTheLastTime) {
  const TrainedModel trained = heed::load_model(kFolder);
  const Reading reading = trained.read(kText);
  ASSERT_EQ(reading.tokens.size(), 10u);
  for (std::int64_t place = 5; place < 10; ++place) {
    const auto expected = trained.expected_after(reading, place, 3);
    ASSERT_EQ(expected.size(), 3u);
    EXPECT_EQ(expected[0].token, reading.tokens[static_cast<std::size_t>((place + 1) % 5)]);
    EXPECT_TRUE(expected[0].probability >= 0.5);
    EXPECT_TRUE(expected[0].probability >= expected[1].probability);
  }
  double sum = 0;
  for (const auto& one : trained.expected_after(reading, 9, 1000)) sum += one.probability;
  EXPECT_NEAR(sum, 1, 1e-12);  // all of them: roundings of a sum of 64 numbers in f64
}

TEST(TrainedModel, WritesOnTokenByToken) {
  const TrainedModel trained = heed::load_model(kFolder);
  Words added;
  const std::string text = trained.generate("to be or not to be", {.tokens = 3, .temperature = 0},
                                            [&](const std::string& token) { added.push_back(token); });
  EXPECT_EQ(text, "or not to");  // as heed generate prints it
  EXPECT_EQ(added, (Words{"or", "not", "to"}));
  const GenerateOptions wild{.tokens = 20, .temperature = 3, .seed = 4};
  EXPECT_EQ(trained.generate("to be", wild), trained.generate("to be", wild));
}

// The text that whole forward passes give, one for each token over as many of the last ones as the context
// holds.
std::string text_without_cache(const TrainedModel& trained, const std::string& prompt,
                               const GenerateOptions& options) {
  const Words words = trained.tokenizer.tokens_of(prompt, "the prompt");
  const Tensor given = trained.tokenizer.encode(words, "the prompt");
  std::vector<std::int64_t> ids(given.values<std::int64_t>().begin(), given.values<std::int64_t>().end());
  heed::Generator generator(options.seed);
  std::string text;
  for (std::int64_t n = 0; n < options.tokens; ++n) {
    const auto seen =
        std::min<std::int64_t>(static_cast<std::int64_t>(ids.size()), trained.model.config.context);
    const Tensor logits =
        trained.model.forward(TensorView(ids.data() + ids.size() - seen, {seen}), {.threads = 1}).logits;
    const auto last = logits.values<float>().last(static_cast<std::size_t>(trained.model.config.vocabulary));
    ids.push_back(heed::detail::sample(last, options, generator));
    text += (n > 0 ? " " : "") + trained.tokenizer.text_of(ids.back(), words);
  }
  return text;
}

// Logits differ by their rounding; it would take a draw within that of a boundary to show.
TEST(TrainedModel, WritesOverACacheWhatWholePassesDo) {
  heed::nn::set_blas_threads(1);  // as the command does
  const TrainedModel trained = heed::load_model(kFolder);
  std::string longer;
  for (int i = 0; i < 70; ++i) longer += "w" + std::to_string(i % 23) + " ";
  // Within the context, across its end, and beyond it.
  const std::pair<std::string, std::int64_t> cases[] = {{"to be or not to be", 20}, {"a", 70}, {longer, 8}};
  for (const auto& [prompt, tokens] : cases)
    for (const GenerateOptions& options :
         {GenerateOptions{.tokens = tokens, .temperature = 0}, GenerateOptions{.tokens = tokens, .seed = 3},
          GenerateOptions{.tokens = tokens, .temperature = 2, .top_k = 7, .seed = 4}})
      EXPECT_EQ(trained.generate(prompt, options), text_without_cache(trained, prompt, options)) << prompt;
}

// Twenty symbols three times: the rows of the first 32 tokens are codes by then.
TEST(TrainedModel, WritesOverCachesOfEveryFormat) {
  heed::nn::set_blas_threads(1);
  const TrainedModel trained = heed::load_model(kFolder);
  std::string prompt;
  std::vector<std::int64_t> ids;
  for (int i = 0; i < 60; ++i) {
    prompt += "w" + std::to_string(i % 20) + " ";
    ids.push_back(i % 20 * 3);
  }
  GenerateOptions options{.tokens = 4, .temperature = 0};
  const Tensor whole = trained.model.forward(TensorView(ids.data(), {60})).logits;
  // Keys and values are each rounded once, by at most this share of the largest of their group.
  for (const auto& [format, rounding] :
       {std::pair(CacheFormat::f32, 0x1p-20), std::pair(CacheFormat::bf16, 0x1p-9),
        std::pair(CacheFormat::f16, 0x1p-12), std::pair(CacheFormat::int8, 1.0 / 254),
        std::pair(CacheFormat::int4, 1.0 / 30), std::pair(CacheFormat::fp8, 0x1p-4)}) {
    options.cache = format;
    EXPECT_EQ(trained.generate(prompt, options), "w0 w1 w2 w3") << name_of(format);
    heed::detail::Decoder decoder(trained.model, format);
    double largest = 0, size = 0;
    for (const std::size_t count : {40u, 41u, 55u, 60u}) {
      const Tensor logits = decoder.next(std::span(ids).first(count));
      for (std::int64_t v = 0; v < trained.model.config.vocabulary; ++v) {
        const double exact = static_cast<double>(whole.at<float>(static_cast<std::int64_t>(count) - 1, v));
        largest = std::max(largest, std::abs(static_cast<double>(logits.at<float>(v)) - exact));
        size = std::max(size, std::abs(exact));
      }
    }
    EXPECT_LE(largest, 2 * rounding * size) << name_of(format);
    EXPECT_EQ(largest > 1e-4, format != CacheFormat::f32) << name_of(format);  // it is the format asked for
  }
}

TEST(TrainedModel, GivesTheCallOfEachLayer) {
  const TrainedModel trained = heed::load_model(kFolder);
  const Reading reading = trained.read(kText);
  std::vector<std::vector<std::string>> names;
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    Document call = document_of_layer(reading, layer);
    EXPECT_FALSE(call.has_report);
    fill_report(call);
    EXPECT_TRUE(check_document(call, 4).holds());
    EXPECT_EQ(call.report.query_tokens, reading.tokens);
    names.emplace_back();
    for (const HeadSummary& head : call.report.summaries) names.back().emplace_back(head.name());
  }
  const auto has = [](const Words& all, const char* name) {
    return std::find(all.begin(), all.end(), name) != all.end();
  };
  EXPECT_TRUE(has(names[0], "previous-token"));
  EXPECT_TRUE(has(names[1], "induction"));
}

TEST(TrainedModel, IsTheSameAfterItWasSaved) {
  TrainedModel trained = heed::load_model(kFolder);
  const TemporaryFolder folder;
  save_model(folder.path(), trained, {{1, 4.5}});
  EXPECT_EQ(folder.names(), (Words{"config.json", "model.safetensors", "vocabulary.json"}));
  const TrainedModel again = heed::load_model(folder.path());
  EXPECT_EQ(again.settings.seed, trained.settings.seed);
  EXPECT_EQ(again.tokenizer.size(), trained.tokenizer.size());
  const heed::Tensor before = trained.read(kText).logits, after = again.read(kText).logits;
  for (std::size_t i = 0; i < before.values<float>().size(); ++i)
    ASSERT_EQ(before.values<float>()[i], after.values<float>()[i]) << i;
}

TEST(TrainedModel, RefusesInOneSentence) {
  const TrainedModel trained = heed::load_model(kFolder);
  const Reading reading = trained.read(kText);
  EXPECT_EQ(
      message_of([] { (void)heed::load_model("nowhere"); }),
      "nowhere is no folder; that of a model trained by heed train is expected; a model of transformers "
      "is looked at from Python, by heed.transformers.look(model, tokenizer, text)");
  EXPECT_EQ(message_of([&] { (void)trained.read(" ", "it"); }),
            "it has 0 words; 1 to 64 are expected, as the model reads them");
  EXPECT_EQ(message_of([&] { (void)trained.expected_after(reading, 10, 1); }),
            "place is 10; 0 to 9 is expected");
  EXPECT_EQ(message_of([&] { (void)document_of_layer(reading, 2); }), "layer is 2; 0 to 1 is expected");
  const auto refusal = [&](const GenerateOptions& options, const char* prompt = "to") {
    return message_of([&] { (void)trained.generate(prompt, options); });
  };
  EXPECT_EQ(refusal({}, ""), "the prompt has no words; this model goes on with what is repeated in it");
  EXPECT_EQ(refusal({.tokens = 0}), "tokens is 0; 1 or more is expected");
  EXPECT_EQ(refusal({.temperature = -1}), "temperature is -1; a number of at least 0 is expected");
  EXPECT_EQ(refusal({.temperature = std::nan("")}), "temperature is nan; a number of at least 0 is expected");
  EXPECT_EQ(refusal({.top_k = -1}), "top_k is -1; 0 (all) or more is expected");
  heed::Generator generator(1);
  const heed::nn::LanguageModel odd({.vocabulary = 2, .heads = 2, .model_dim = 6}, generator);
  EXPECT_EQ(message_of([&] { (void)heed::detail::Decoder(odd, CacheFormat::int4); }),
            "head_dim is 3; an even number is expected for int4");
}

TEST(TrainSettings, AreCheckedByName) {
  const auto refusal = [](const heed::TrainSettings& settings) {
    return message_of([&] { check(settings); });
  };
  EXPECT_EQ(refusal({}), "no error");
  EXPECT_EQ(refusal({.layers = 0}), "layers is 0; a whole number from 1 to 1000 is expected");
  EXPECT_EQ(refusal({.heads = 3}), "model_dim is 64; a multiple of the 3 heads is expected");
  EXPECT_EQ(refusal({.learning_rate = 0}), "learning_rate is 0; a number above 0 is expected");
  EXPECT_EQ(refusal({.weight_decay = -0.5}), "weight_decay is -0.5; a number of at least 0 is expected");
}

}  // namespace
