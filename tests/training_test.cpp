// heed/nn/train.hpp: training from C++, step by step and in a folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "heed/model/generate.hpp"
#include "heed/nn/layers.hpp"
#include "heed/nn/train.hpp"
#include "io_support.hpp"
#include "support.hpp"

namespace {

using heed::TrainData;
using heed::TrainedModel;
using heed::TrainOptions;
using heed::TrainSettings;
using heed::TrainState;
using heed::test::message_of;
using heed::test::TemporaryFolder;

constexpr TrainSettings kTiny = {.task = heed::Task::induction,
                                 .layers = 1,
                                 .heads = 2,
                                 .model_dim = 8,
                                 .context = 8,
                                 .symbols = 6,
                                 .batch = 3,
                                 .steps = 30,
                                 .warmup = 5};

class Training : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder / name; }
  void expect_same_files(const std::string& a, const std::string& b) const {
    for (const char* name : {"model.safetensors", "config.json", "vocabulary.json", "checkpoint.safetensors"})
      EXPECT_EQ(heed::test::read_file(path(a) + "/" + name), heed::test::read_file(path(b) + "/" + name))
          << name << " of " << b;
  }

  TemporaryFolder folder;
  TrainData data = heed::induction_data(kTiny);
};

TEST_F(Training, StepByStepIsTheSameAsInAFolder) {
  const TrainState whole = train(path("whole"), kTiny, data, {.threads = 1});
  heed::nn::set_blas_threads(1);
  TrainState state = begin_training(kTiny, data);
  while (state.step < kTiny.steps) train_step(state, data, 2);
  EXPECT_EQ(state.smooth_loss, whole.smooth_loss);
  EXPECT_EQ(state.marks, whole.marks);
  save_checkpoint(path("checkpoint.safetensors"), state);
  EXPECT_EQ(heed::test::read_file(path("checkpoint.safetensors")),
            heed::test::read_file(heed::checkpoint_in(path("whole"))));
}

TEST_F(Training, GoesOnWithTheSameBitsWhereverItStopped) {
  (void)train(path("whole"), kTiny, data);
  std::int64_t asked = 0;
  const TrainState stopped = train(path("parts"), kTiny, data, {.stop = [&] { return asked++ == 7; }});
  EXPECT_EQ(stopped.step, 7);
  EXPECT_EQ(heed::read_checkpoint_settings(heed::checkpoint_in(path("parts"))).steps, 30);
  EXPECT_EQ(resume_training(path("parts"), data, {.stop_at = 11}).step, 11);
  EXPECT_EQ(resume_training(path("parts"), data).step, 30);
  expect_same_files("whole", "parts");
}

TEST_F(Training, TellsItsProgressAndReturnsTheModelOfItsFolder) {
  std::vector<std::int64_t> steps;
  const auto progress = [&](const TrainState& state) { steps.push_back(state.step); };
  const TrainState state = train(path("out"), kTiny, data, {.stop_at = 3, .progress = progress});
  EXPECT_EQ(steps, (std::vector<std::int64_t>{0, 1, 2, 3}));
  const TrainedModel written = heed::load_trained_model(path("out"));
  const heed::Tensor ids = heed::Tensor::from<std::int64_t>({0, 1, 0}, {1, 3});
  const heed::Tensor a = state.trained.model.forward(ids).logits, b = written.model.forward(ids).logits;
  EXPECT_TRUE(std::equal(a.values<float>().begin(), a.values<float>().end(), b.values<float>().begin()));
}

TEST_F(Training, LearnsTheCharactersOfAText) {
  heed::test::write_file(path("text.txt"), "abcdefgh abcdefgh abcdefgh abcdefgh\n");
  const TrainData text = heed::read_train_text(path("text.txt"));
  EXPECT_EQ(text.tokens.count(), 36);
  EXPECT_EQ(text.tokenizer.size(), 10);  // eight letters, a space, a line break
  TrainSettings settings = kTiny;
  settings.task = heed::Task::text;
  settings.steps = 300;
  settings.learning_rate = 0.02;
  const TrainState state = train(path("out"), settings, text);
  EXPECT_LT(state.smooth_loss, 0.2);
  const heed::Model model = heed::load_model(path("out"));
  EXPECT_EQ(generate(model, "abc", {.tokens = 5, .temperature = 0}), "defgh");
}

TEST_F(Training, RefusesInOneSentence) {
  TrainSettings wrong = kTiny;
  wrong.batch = 0;
  EXPECT_EQ(message_of([&] { (void)train(path("out"), wrong, data); }),
            "batch is 0; a whole number from 1 to 1000000 is expected");
  EXPECT_EQ(message_of([&] { (void)train(path("out"), kTiny, data, {.checkpoint_every = 0}); }),
            "checkpoint_every is 0; 1 or more is expected");
  EXPECT_EQ(message_of([&] { (void)train(path("out"), kTiny, data, {.stop_at = 0}); }),
            "stop_at is 0; 1 or more is expected");
  EXPECT_EQ(message_of([&] { (void)train(path("out"), kTiny, data, {.threads = -5}); }),
            "threads is -5; 0 (all of the machine) or more is expected");
  wrong = kTiny;
  wrong.warmup = 31;
  EXPECT_EQ(message_of([&] { (void)begin_training(wrong, data); }),
            "warmup is 31; at most the 30 of steps is expected");
  for (const double rate : {0.0, HUGE_VAL}) {
    wrong = kTiny;
    wrong.learning_rate = rate;
    EXPECT_EQ(
        message_of([&] { (void)begin_training(wrong, data); }),
        "learning_rate is " + std::string(rate == 0 ? "0" : "inf") + "; a finite number above 0 is expected");
  }
  EXPECT_FALSE(std::filesystem::exists(path("out")));
  std::filesystem::create_directory(path("llama"));
  for (const char* file : {"model.safetensors", "config.json"}) {  // the first alone, then both
    heed::test::write_file(path("llama/" + std::string(file)), "{\"model_type\": \"llama\"}");
    EXPECT_EQ(message_of([&] { (void)train(path("llama"), kTiny, data); }),
              path("llama") + " holds a model that heed did not train; another folder is expected");
  }
  (void)train(path("out"), kTiny, data, {.stop_at = 1});
  EXPECT_EQ(message_of([&] { (void)train(path("out"), kTiny, data); }),
            path("out") + " already holds a training; resuming it, or another folder, is expected");
  heed::test::write_file(path("text.txt"), "short");
  const TrainData text = heed::read_train_text(path("text.txt"));
  TrainSettings settings = kTiny;
  settings.task = heed::Task::text;
  EXPECT_EQ(message_of([&] { (void)begin_training(settings, text); }),
            "the text has 5 characters; more than the 8 of context are expected");
  heed::test::write_file(path("one.txt"), "s");
  EXPECT_EQ(message_of([&] { (void)begin_training(settings, heed::read_train_text(path("one.txt"))); }),
            "the text has 1 character; more than the 8 of context are expected");
  EXPECT_EQ(message_of([&] { (void)resume_training(path("out"), text); }),
            "the text (" + text.fingerprint + ") is not the text that " + heed::checkpoint_in(path("out")) +
                " was made with ()");
  heed::test::write_file(path("bytes.txt"), "\xff");
  EXPECT_EQ(message_of([&] { (void)heed::read_train_text(path("bytes.txt")); }),
            path("bytes.txt") + " is not UTF-8 text");
  EXPECT_EQ(message_of([&] { (void)heed::read_train_text(path("none")); }),
            path("none") + " could not be opened: No such file or directory");
}

TEST_F(Training, LeavesTheLastCheckpointWhereItDiverges) {
  TrainSettings wild = kTiny;
  wild.learning_rate = 1e30;
  wild.warmup = 30;
  const std::string message =
      message_of([&] { (void)train(path("wild"), wild, data, {.checkpoint_every = 1}); });
  EXPECT_NE(message.find(": the training diverges; " + heed::checkpoint_in(path("wild")) +
                         " is kept as it was after step "),
            std::string::npos)
      << message;
  EXPECT_EQ(heed::read_checkpoint(heed::checkpoint_in(path("wild")), data).trained.settings.steps, 30);
}

}  // namespace
