// heed/nn/trained_model.hpp: reading a trained model's folder from C++.
#include "heed/nn/trained_model.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "io_support.hpp"
#include "support.hpp"

namespace {

using heed::TrainedModel;
using heed::TrainedTokenizer;
using heed::Vocabulary;
using heed::test::message_of;
using heed::test::TemporaryFolder;
using Words = std::vector<std::string>;

const std::string kFolder = std::string(HEED_SOURCE_DIR) + "/models/induction";
constexpr const char* kText = "one two three four five one two three four five";

TEST(TrainedTokenizer, NumbersTheCharactersOfATextByTheirBytes) {
  const TrainedTokenizer tokenizer = TrainedTokenizer::of_characters("caf\u00e9 face");
  EXPECT_FALSE(tokenizer.is_symbols());
  EXPECT_EQ(tokenizer.characters().words(), (Words{" ", "a", "c", "e", "f", "\u00e9"}));
  EXPECT_EQ(tokenizer.tokens_of("\u00e9 f"), (Words{"\u00e9", " ", "f"}));
  const heed::Tensor ids = tokenizer.encode({"\u00e9", " ", "f"});
  EXPECT_EQ(ids.at<std::int64_t>(0), 5);
  EXPECT_EQ(ids.at<std::int64_t>(1), 0);
  EXPECT_EQ(ids.at<std::int64_t>(2), 4);
  EXPECT_EQ(tokenizer.text_of(5, {}), "\u00e9");
}

TEST(TrainedTokenizer, NumbersWordsOntoSymbolsAsTheyFirstAppear) {
  const TrainedTokenizer tokenizer = TrainedTokenizer::of_symbols(3);
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

TEST(TrainedTokenizer, SaysWhatItDoesNotKnow) {
  const TrainedTokenizer letters = TrainedTokenizer::of_characters("ab");
  const TrainedTokenizer symbols = TrainedTokenizer::of_symbols(2);
  EXPECT_EQ(message_of([] { (void)TrainedTokenizer::of_characters("\xff", "the file"); }),
            "the file is not UTF-8 text");
  EXPECT_EQ(message_of([] { (void)TrainedTokenizer::of_symbols(0); }),
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

TEST(TrainedModel, IsTheSameAfterItWasSaved) {
  TrainedModel trained = heed::load_trained_model(kFolder);
  const TemporaryFolder folder;
  save_model(folder.path(), trained, {{1, 4.5}});
  EXPECT_EQ(folder.names(), (Words{"config.json", "model.safetensors", "vocabulary.json"}));
  const TrainedModel again = heed::load_trained_model(folder.path());
  EXPECT_EQ(again.settings.seed, trained.settings.seed);
  EXPECT_EQ(again.tokenizer.size(), trained.tokenizer.size());
  const heed::Tensor ids = trained.tokenizer.encode(trained.tokenizer.tokens_of(kText));
  const heed::Tensor before = trained.model.forward(ids).logits, after = again.model.forward(ids).logits;
  for (std::size_t i = 0; i < before.values<float>().size(); ++i)
    ASSERT_EQ(before.values<float>()[i], after.values<float>()[i]) << i;
}

TEST(TrainedModel, RefusesAFolderThatThereIsNot) {
  EXPECT_EQ(message_of([] { (void)heed::load_trained_model("nowhere"); }),
            "nowhere is not a folder; the folder of a model from heed train is expected");
}

TEST(TrainSettings, AreCheckedByName) {
  const auto refusal = [](const heed::TrainSettings& settings) {
    return message_of([&] { check(settings); });
  };
  EXPECT_EQ(refusal({}), "no error");
  EXPECT_EQ(refusal({.task = static_cast<heed::Task>(2)}), "task is 2; 0 to 1 is expected");
  EXPECT_EQ(refusal({.layers = 0}), "layers is 0; a whole number from 1 to 1000 is expected");
  EXPECT_EQ(refusal({.heads = 3}), "model_dim is 64; a multiple of the 3 heads is expected");
  EXPECT_EQ(refusal({.heads = 4, .model_dim = 9}), "model_dim is 9; a multiple of the 4 heads is expected");
  EXPECT_EQ(refusal({.learning_rate = 0}), "learning_rate is 0; a finite number above 0 is expected");
  EXPECT_EQ(refusal({.weight_decay = -0.5}),
            "weight_decay is -0.5; a finite number of at least 0 is expected");
  EXPECT_EQ(refusal({.weight_decay = 0}), "no error");
  EXPECT_EQ(refusal({.steps = 99}), "warmup is 100; at most the 99 of steps is expected");
  EXPECT_EQ(refusal({.steps = 100}), "no error");
  EXPECT_EQ(refusal({.clip = 0}), "clip is 0; a finite number above 0 is expected");
}

// The documented ranges, just inside and outside both ends.
TEST(TrainSettings, HaveTheirRangesToTheLastNumber) {
  using Settings = heed::TrainSettings;
  struct Range {
    const char* name;
    std::int64_t Settings::*value;
    std::int64_t least, most;
  };
  const auto refusal = [](const Range& range, std::int64_t value) {
    Settings settings;
    settings.heads = 1;
    settings.warmup = 0;
    settings.steps = 1'000'000'000;
    settings.*range.value = value;
    if (range.value == &Settings::heads) settings.model_dim = value;
    return message_of([&] { check(settings); });
  };
  for (const Range& range :
       {Range{"layers", &Settings::layers, 1, 1000}, Range{"heads", &Settings::heads, 1, 100'000},
        Range{"model_dim", &Settings::model_dim, 1, 100'000},
        Range{"context", &Settings::context, 2, 1'000'000},
        Range{"symbols", &Settings::symbols, 2, 1'000'000}, Range{"batch", &Settings::batch, 1, 1'000'000},
        Range{"steps", &Settings::steps, 1, 1'000'000'000},
        Range{"warmup", &Settings::warmup, 0, 1'000'000'000},
        Range{"seed", &Settings::seed, 0, 0xffffffff}}) {
    const std::string expected = "; a whole number from " + std::to_string(range.least) + " to " +
                                 std::to_string(range.most) + " is expected";
    for (const std::int64_t inside : {range.least, range.most})
      EXPECT_EQ(refusal(range, inside), "no error") << range.name;
    for (const std::int64_t outside : {range.least - 1, range.most + 1})
      EXPECT_EQ(refusal(range, outside),
                std::string(range.name) + " is " + std::to_string(outside) + expected);
  }
}

}  // namespace
