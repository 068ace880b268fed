// heed train: it learns, it can be killed at any moment, and it resumes with the same bits.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../cli/train/train_progress.hpp"
#include "command.hpp"
#include "heed/io/tensors.hpp"
#include "io_support.hpp"
#include "support.hpp"

namespace {

namespace fs = std::filesystem;
using heed::test::CommandResult;
using heed::test::run_heed;
using heed::test::share_of;
using heed::test::TemporaryFolder;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

constexpr const char* kText = "the cat sat on the mat. the dog sat on the log. the frog sat on the cog.\n";

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

class Train : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder / name; }

  Words command(const std::string& out, const Words& more = {}) const {
    return joined({"train", path("text.txt"), "--out", path(out)}, more);
  }
  // A training run of a tenth of a second. Options in `more` replace those here.
  Words tiny(const std::string& out, const Words& more = {}) const {
    const std::vector<std::pair<std::string, std::string>> usual = {
        {"--layers", "1"}, {"--heads", "2"},  {"--model-dim", "8"}, {"--context", "8"},
        {"--batch", "3"},  {"--steps", "60"}, {"--warmup", "5"},    {"--threads", "1"}};
    Words all = command(out, more);
    for (const auto& [option, value] : usual)
      if (std::find(more.begin(), more.end(), option) == more.end()) all.insert(all.end(), {option, value});
    return all;
  }
  static Json json_of(const CommandResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return Json::parse(result.output, nullptr, false);
  }
  void expect_same_files(const std::string& a, const std::string& b) const {
    for (const char* name :
         {"model.safetensors", "config.json", "vocabulary.json", "tokenizer.json", "checkpoint.safetensors"})
      EXPECT_TRUE(!bytes_of(path(a + "/" + name)).empty() &&
                  bytes_of(path(a + "/" + name)) == bytes_of(path(b + "/" + name)))
          << name << " of " << b;
  }
  static void expect_refusal(int exit_code, const Words& arguments, const std::string& message) {
    const CommandResult result = run_heed(arguments);
    EXPECT_EQ(result.exit_code, exit_code);
    EXPECT_EQ(result.errors, "heed: " + message + "\n");
    EXPECT_EQ(result.output, "");
  }

  TemporaryFolder folder;
  void SetUp() override { std::ofstream(path("text.txt")) << kText; }
};

// A command in the background that can receive signals. Its standard error goes to a file.
class Background {
 public:
  Background(Words arguments, const std::string& errors) : errors_(errors) {
    arguments.insert(arguments.begin(), HEED_COMMAND);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    // The same environment as run_heed(). Some variables make OpenBLAS choose other kernels, which give other
    // bits.
    std::string path = std::string("PATH=") + std::getenv("PATH");
    std::string language = "LANG=C.UTF-8";
    std::vector<char*> environment = {path.data(), language.data(), nullptr};
    child_ = fork();
    if (child_ != 0) return;
    if (std::freopen("/dev/null", "w", stdout) != nullptr &&
        std::freopen(errors.c_str(), "w", stderr) != nullptr)
      execve(argv[0], argv.data(), environment.data());
    _exit(127);
  }
  void send(int signal) const { kill(child_, signal); }
  // The exit code, or 128 + the number of the signal that ended it.
  int wait() const {
    int status = 0;
    while (waitpid(child_, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::string errors() const { return bytes_of(errors_); }

 private:
  std::string errors_;
  pid_t child_ = 0;
};

bool has_leftovers(const std::string& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().ends_with(".tmp")) return true;
  return false;
}

TEST_F(Train, LearnsATextThatRepeats) {
  const Json summary =
      json_of(run_heed(tiny("model", {"--steps", "300", "--learning-rate", "0.02", "--json"})));
  EXPECT_EQ(summary["step"], 300);
  const Json first = summary["losses"][0];
  EXPECT_EQ(first["step"], 1);
  EXPECT_GT(first["loss"].get<double>(), 2.5);  // 17 characters, equally likely at first: ln 17 = 2.83
  EXPECT_LT(summary["loss"].get<double>(), 1.2);
  EXPECT_GT(summary["tokens_per_second"].get<double>(), 0);
  EXPECT_GT(summary["seconds"].get<double>(), 0);
  EXPECT_EQ(summary["vocabulary"], 17);
  const Json config = Json::parse(bytes_of(path("model/config.json")));
  EXPECT_EQ(config["model_type"], "gpt2");
  EXPECT_EQ(config["n_layer"], 1);
  const Json own = config["heed"];
  EXPECT_EQ(own["format"], "heed model 2");
  EXPECT_EQ(own["parameters"], summary["parameters"]);
  EXPECT_EQ(own["settings"]["learning_rate"], 0.02);
  EXPECT_EQ(own["losses"], summary["losses"]);
  EXPECT_EQ(Json::parse(bytes_of(path("model/vocabulary.json")))["characters"][0], "\n");
}

TEST_F(Train, GivesTheSameFilesForAnyNumberOfThreads) {
  for (const std::string threads : {"1", "2", "7"})
    EXPECT_EQ(
        run_heed(tiny("t" + threads, {"--batch", "11", "--steps", "9", "--threads", threads})).exit_code, 0);
  expect_same_files("t1", "t2");
  expect_same_files("t1", "t7");
}

TEST_F(Train, SaysATenthOfTheWayAtATime) {
  const CommandResult result = run_heed(tiny("model", {"--steps", "20"}));
  EXPECT_TRUE(result.errors.starts_with("step 2 of 20 [##  ")) << result.errors;
  EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 10) << result.errors;
  EXPECT_TRUE(result.output.starts_with("Trained 1224 parameters for 20 of 20 steps; the loss is "))
      << result.output;
}

TEST_F(Train, DrawsABarOnATerminal) {
  if (!heed::test::has_terminals()) GTEST_SKIP() << "there is no /dev/ptmx here";
  heed::test::CommandInput input;
  input.terminal_columns = 80;
  input.errors_on_terminal = true;
  const CommandResult result = run_heed(tiny("model"), input);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.output.find("\rstep 60 of 60 [####"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find(" \rTrained 1224 parameters"), std::string::npos) << result.output;
}

TEST_F(Train, GoesOnBitForBitAfterItWasKilledFiftyTimes) {
  const Words more = {"--checkpoint-every", "2", "--steps", "20"};
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(run_heed(tiny("whole", more)).exit_code, 0);
  const auto taken = std::chrono::steady_clock::now() - begin;
  std::mt19937 random(50);
  std::uniform_int_distribution<long> moment(
      0, std::chrono::duration_cast<std::chrono::microseconds>(taken).count());
  const std::uint64_t kills_wanted = share_of(50);
  std::uint64_t killed = 0;
  for (int training = 0; killed < kills_wanted && training < 500; ++training) {
    const std::string out = "killed" + std::to_string(training);
    for (bool done = false; !done;) {
      const bool begun = fs::exists(path(out + "/checkpoint.safetensors"));
      const Background run(begun ? joined(tiny(out, more), {"--resume"}) : tiny(out, more), path("errors"));
      if (killed < kills_wanted) std::this_thread::sleep_for(std::chrono::microseconds(moment(random)));
      if (killed < kills_wanted) run.send(SIGKILL);
      const int ended = run.wait();
      ASSERT_TRUE(ended == 0 || ended == 128 + SIGKILL) << run.errors();
      if (ended == 0) done = true;
      if (ended != 0) ++killed;
    }
    expect_same_files("whole", out);
    EXPECT_FALSE(has_leftovers(path(out)));
    fs::remove_all(path(out));
  }
  EXPECT_EQ(killed, kills_wanted);
}

TEST_F(Train, SavesAtCtrlCAndSaysHowToGoOn) {
  const Words more = {"--steps", "1000000", "--checkpoint-every", "1000000"};
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string out = "stopped by " + std::to_string(signal);
    const Background run(tiny(out, more), path("errors"));
    for (int i = 0; i < 3000 && !fs::exists(path(out + "/checkpoint.safetensors")); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    run.send(signal);
    EXPECT_EQ(run.wait(), 130);
    const std::string errors = run.errors();
    EXPECT_NE(errors.find("heed: stopped after step "), std::string::npos) << errors;
    EXPECT_NE(errors.find(" of 1000000; everything is saved, continue with: heed train " + path("text.txt") +
                          " --out '" + path(out) + "' --resume\n"),
              std::string::npos)
        << errors;
    const Json config = Json::parse(bytes_of(path(out + "/config.json")));
    EXPECT_EQ(config["heed"]["settings"]["steps"], 1000000);
  }
}

TEST_F(Train, StopsWhereItIsToldAndGoesOnFromThere) {
  ASSERT_EQ(run_heed(tiny("whole")).exit_code, 0);
  const CommandResult first = run_heed(tiny("parts", {"--stop-at", "17"}));
  EXPECT_EQ(first.exit_code, 0) << first.errors;
  EXPECT_NE(first.output.find("for 17 of 60 steps"), std::string::npos) << first.output;
  EXPECT_NE(first.output.find("To continue: heed train " + path("text.txt") + " --out " + path("parts") +
                              " --resume"),
            std::string::npos)
      << first.output;
  // Settings need not be repeated.
  EXPECT_EQ(run_heed(command("parts", {"--resume"})).exit_code, 0);
  expect_same_files("whole", "parts");
  const CommandResult again = run_heed(command("parts", {"--resume"}));
  EXPECT_EQ(again.exit_code, 0) << again.errors;
  expect_same_files("whole", "parts");
}

TEST_F(Train, KeepsTheLastGoodCheckpointWhenItDiverges) {
  const CommandResult result =
      run_heed(tiny("wild", {"--learning-rate", "1e30", "--warmup", "30", "--checkpoint-every", "1"}));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.errors.find(": the training diverges; " + path("wild/checkpoint.safetensors") +
                               " is kept as it was after step "),
            std::string::npos)
      << result.errors;
  const heed::io::TensorFile kept = heed::io::read_safetensors(path("wild/checkpoint.safetensors"));
  for (const auto& [name, tensor] : kept.tensors)
    if (tensor.dtype() == heed::DType::f32) {
      for (const float value : tensor.values<float>()) ASSERT_TRUE(std::isfinite(value)) << name;
    }
}

TEST_F(Train, LearnsToRepeat) {
  const Json summary = json_of(run_heed({"train",         "--task",    "induction", "--out",
                                         path("repeats"), "--symbols", "5",         "--attention-only",
                                         "--layers",      "2",         "--heads",   "1",
                                         "--model-dim",   "8",         "--context", "9",
                                         "--batch",       "4",         "--steps",   "20",
                                         "--json"}));
  EXPECT_EQ(summary["vocabulary"], 5);
  EXPECT_EQ(bytes_of(path("repeats/vocabulary.json")), "{\"symbols\":5}\n");
  EXPECT_EQ(run_heed({"train", "--task", "induction", "--out", path("repeats"), "--resume"}).exit_code, 0);
  // The checkpoint tells the task.
  for (const Words& more : {Words{}, Words{"--symbols", "5"}}) {
    const CommandResult result = run_heed(joined({"train", "--out", path("repeats"), "--resume"}, more));
    EXPECT_EQ(result.exit_code, 0) << result.errors;
  }
  expect_refusal(2, command("repeats", {"--resume"}),
                 "'" + path("text.txt") + "' is given; the training in " + path("repeats") +
                     " was started with --task induction, and keeps it");
}

TEST_F(Train, GoesOnWhereSettingsOfTheCheckpointAreRepeated) {
  const Words sizes = {"--heads", "3", "--model-dim", "6"};
  ASSERT_EQ(run_heed(tiny("out", joined(sizes, {"--stop-at", "2"}))).exit_code, 0);
  for (const Words& again : {Words{"--heads", "3"}, Words{"--model-dim", "6"}, sizes}) {
    const CommandResult result = run_heed(command("out", joined({"--resume", "--stop-at", "2"}, again)));
    EXPECT_EQ(result.exit_code, 0) << result.errors;
  }
  expect_refusal(
      2, {"train", "--out", path("out"), "--resume"},
      "TEXT.txt is missing; the text that the training in " + path("out") + " was started with is expected");
}

// By default it rises over 100 steps, or over all of fewer.
TEST_F(Train, WarmsUpWithinItsSteps) {
  expect_refusal(2, tiny("out", {"--warmup", "61"}), "--warmup is 61; at most the 60 of --steps is expected");
  const Words few = {"train", path("text.txt"), "--out", path("few"), "--steps", "7", "--layers", "1"};
  ASSERT_EQ(run_heed(few).exit_code, 0);
  EXPECT_EQ(Json::parse(bytes_of(path("few/config.json")))["heed"]["settings"]["warmup"], 7);
  EXPECT_EQ(run_heed(command("few", {"--resume"})).exit_code, 0);
}

TEST_F(Train, RefusesWhatItCannotDo) {
  const std::string out = path("out");
  expect_refusal(2, {"train", path("text.txt")},
                 "--out is missing: the folder for the model (see heed train --help)");
  expect_refusal(2, {"train", "--out", out}, "no task is given; TEXT.txt or --task induction is expected");
  expect_refusal(
      2, command("out", {"--task", "induction"}),
      "'" + path("text.txt") + "' is given together with --task induction, which makes its own sequences");
  expect_refusal(2, command("out", {"--symbols", "5"}),
                 "--symbols is given without --task induction; a text uses its own characters");
  expect_refusal(2, command("out", {"--heads", "3"}),
                 "--model-dim is 64; a multiple of the 3 of --heads is expected");
  expect_refusal(2, command("out", {"--learning-rate", "0"}),
                 "--learning-rate is 0.0; a number above 0 is expected");
  expect_refusal(2, command("out", {"--clip", "-1"}), "--clip is -1.0; a number above 0 is expected");
  expect_refusal(2, command("out", {"--weight-decay", "-1"}),
                 "--weight-decay is -1.0; a number of at least 0 is expected");
  for (const char* option : {"--layers", "--heads", "--model-dim", "--batch", "--steps", "--checkpoint-every",
                             "--stop-at", "--threads", "--context", "--warmup", "--seed"}) {
    const CommandResult result = run_heed(command("out", {option, "-1"}));
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_TRUE(result.errors.starts_with("heed: " + std::string(option) + " is '-1'; a whole number"))
        << result.errors;
  }
  expect_refusal(2, command("out", {"--resume"}),
                 "--resume is given, but " + out + " has no checkpoint.safetensors to continue from");
  std::ofstream(path("empty.txt")) << "";
  expect_refusal(2, {"train", path("empty.txt"), "--out", out},
                 path("empty.txt") + " is empty; a text to learn from is expected");
  const CommandResult huge =
      run_heed({"train", "--task", "induction", "--out", out, "--layers", "1000", "--model-dim", "100000"});
  EXPECT_EQ(huge.exit_code, 2);
  EXPECT_TRUE(
      huge.errors.starts_with("heed: training with --layers 1000, --model-dim 100000, --batch 16 and "
                              "--context 64 would need 1.9 PB, more than half of this machine's"))
      << huge.errors;
  expect_refusal(2, command("out", {"--context", "73"}),
                 path("text.txt") + " has 73 characters; more than the 73 of --context are expected");
  std::ofstream(path("one.txt")) << "a";
  expect_refusal(2, {"train", path("one.txt"), "--out", out, "--context", "4"},
                 path("one.txt") + " has 1 character; more than the 4 of --context are expected");
  expect_refusal(1, {"train", path("none.txt"), "--out", out},
                 path("none.txt") + " could not be opened: No such file or directory");
  expect_refusal(1, {"train", folder.path(), "--out", out},
                 folder.path() + " is a folder; a text file is expected");
  const std::string many_letters(300, 'a');
  expect_refusal(1, {"train", many_letters, "--out", out},
                 many_letters + " could not be opened: File name too long");
  std::ofstream(path("bytes.txt")) << "\xff\xfe";
  expect_refusal(1, {"train", path("bytes.txt"), "--out", out}, path("bytes.txt") + " is not UTF-8 text");
  expect_refusal(1, {"train", path("text.txt"), "--out", path("text.txt") + "/in"},
                 "cannot make the folder " + path("text.txt") + "/in: Not a directory");
}

TEST_F(Train, RefusesToGoOnWithSomethingElse) {
  ASSERT_EQ(run_heed(tiny("out", {"--stop-at", "3"})).exit_code, 0);
  const std::string begun = "; the training in " + path("out") + " was started with ";
  expect_refusal(
      2, tiny("out"),
      path("out") + " already holds a training; add --resume to continue it, or name another folder");
  expect_refusal(2, command("out", {"--resume", "--layers", "2"}),
                 "--layers is 2" + begun + "1, and keeps it");
  expect_refusal(2, command("out", {"--resume", "--clip", "0.5"}),
                 "--clip is 0.5" + begun + "1.0, and keeps it");
  expect_refusal(2, command("out", {"--resume", "--attention-only"}),
                 "--attention-only is given; the training in " + path("out") + " was started without it");
  expect_refusal(2, {"train", "--task", "induction", "--out", path("out"), "--resume"},
                 "--task is induction" + begun + "text, and keeps it");
  std::ofstream(path("text.txt"), std::ios::app) << "more";
  const CommandResult result = run_heed(command("out", {"--resume"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_TRUE(result.errors.starts_with("heed: the text (77 bytes, ")) << result.errors;
  EXPECT_NE(result.errors.find(") is not the text that " + path("out/checkpoint.safetensors") +
                               " was made with (73 bytes, "),
            std::string::npos)
      << result.errors;
}

// Whatever a checkpoint contains, it is used as a whole or refused in one line.
TEST_F(Train, SurvivesEveryBrokenCheckpoint) {
  ASSERT_EQ(run_heed(tiny("out", {"--model-dim", "2", "--stop-at", "2", "--heads", "1"})).exit_code, 0);
  const std::string good = bytes_of(path("out/checkpoint.safetensors"));
  const std::uint32_t seed = 77;
  std::mt19937 random(seed);
  const auto resume = [&](const std::string& bytes, const std::string& what) {
    std::ofstream(path("out/checkpoint.safetensors"), std::ios::binary) << bytes;
    const CommandResult result = run_heed(command("out", {"--resume", "--stop-at", "2"}));
    EXPECT_TRUE(result.exit_code == 0 || result.exit_code == 1 || result.exit_code == 2)
        << what << ", seed " << seed << ": " << result.errors;
    if (result.exit_code != 0) {
      EXPECT_TRUE(result.errors.starts_with("heed: ") && result.errors.find('\n') + 1 == result.errors.size())
          << what << ", seed " << seed << ": " << result.errors;
    }
  };
  const std::uint64_t header = 2500;
  for (std::uint64_t i = 0; i < share_of(60); ++i) {
    std::string bytes = good;
    const std::size_t at = random() % std::min<std::size_t>(bytes.size(), header);
    bytes[at] = static_cast<char>(random());
    resume(bytes, "byte " + std::to_string(at));
  }
  for (std::uint64_t i = 0; i < share_of(10); ++i) {
    const std::size_t length = random() % good.size();
    resume(good.substr(0, length), "length " + std::to_string(length));
  }
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string bytes = good;
    const std::size_t at = bytes.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    bytes.replace(at, from.size(), to);
    resume(bytes, from + " by " + to);
  };
  replaced("heed checkpoint 1", "heed checkpoint 2");
  replaced("\\\"step\\\":2", "\\\"step\\\":9");
  replaced("\\\"steps\\\":60", "\\\"steps\\\":-1");
  replaced("\\\"context\\\":8", "\\\"context\\\":9");
  replaced("\\\"task\\\":\\\"text", "\\\"task\\\":\\\"taxt");
  replaced("attention_only\\\":false", "attention_only\\\":1    ");
}

TEST_F(Train, NamesTheCheckpointWhoseNumbersCannotGoOn) {
  ASSERT_EQ(run_heed(tiny("out", {"--stop-at", "2"})).exit_code, 0);
  const std::string checkpoint = path("out/checkpoint.safetensors");
  const heed::io::TensorFile file = heed::io::read_safetensors(checkpoint);
  const auto expect = [&](const std::string& changed, auto number, std::size_t at, const std::string& what) {
    std::vector<std::pair<std::string, heed::TensorView>> tensors;
    heed::Tensor copy;
    for (const auto& [name, tensor] : file.tensors) {
      tensors.emplace_back(name, tensor);
      if (name != changed) continue;
      copy = heed::Tensor::copy_of(tensor);
      copy.values<decltype(number)>()[at] = number;
      tensors.back().second = copy;
    }
    heed::io::write_safetensors(checkpoint, tensors, file.metadata);
    expect_refusal(1, command("out", {"--resume"}), checkpoint + " has " + what);
  };
  expect("generator", std::int64_t{-1}, 5,
         "an invalid generator: the generator's state holds -1; words of 32 bits are expected");
  const double infinite = HUGE_VAL;
  for (const double wrong : {std::nan(""), infinite, -infinite, -1.0}) {
    for (const std::size_t at : {0U, 1U})
      expect("progress", wrong, at, "progress that is not finite numbers of at least 0");
    expect("losses", wrong, 1, "losses that are not finite numbers of at least 0");
  }
  for (const float wrong : {std::nanf(""), HUGE_VALF})
    for (const std::string name : {"unembedding.weight", "adamw.unembedding.weight.v"})
      expect(name, wrong, 3, "a tensor " + name + " that is not of finite numbers");
  expect("adamw.unembedding.weight.v", -1e-30F, 3,
         "a tensor adamw.unembedding.weight.v with a number below 0; squares have a mean of at least 0");
}

TEST(TrainProgress, TellsTheTimeLeft) {
  using heed::cli::duration_text;
  using heed::cli::train_text;
  EXPECT_EQ(duration_text(41.2), "41 s");
  EXPECT_EQ(duration_text(725), "12 min 5 s");
  EXPECT_EQ(duration_text(12000), "3 h 20 min");
  EXPECT_EQ(train_text(2.3456, 51200, 17), ", loss 2.346, 51200 tokens/s, 17 s left");
}

}  // namespace
