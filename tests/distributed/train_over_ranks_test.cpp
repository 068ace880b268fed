// mpirun -n … heed train: writes the same folder as one process; also tests stopped and killed ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "io_support.hpp"
#include "over_ranks.hpp"
#include "support.hpp"

namespace {

namespace fs = std::filesystem;
using heed::test::CommandInput;
using heed::test::CommandResult;
using heed::test::read_file;
using heed::test::run_heed;
using heed::test::run_over_ranks;
using heed::test::said;
using heed::test::Words;
using Json = nlohmann::json;

constexpr const char* kText = "the cat sat on the mat. the dog sat on the log. the frog sat on the cog.\n";

class TrainOverRanks : public heed::test::RunsOverRanks {
 protected:
  TrainOverRanks() { heed::test::write_file(folder / "text.txt", kText); }

  // A training run with odd lengths; names are relative to the folder.
  static Words tiny(const std::string& out, const Words& more = {}) {
    Words all = {"train",   "text.txt", "--out",       out, "--layers",  "1",
                 "--heads", "2",        "--model-dim", "8", "--context", "13",
                 "--batch", "11",       "--warmup",    "5", "--threads", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  void expect_same_files(const std::string& a, const std::string& b) const {
    for (const char* name : {"model.safetensors", "config.json", "vocabulary.json", "tokenizer.json",
                             "checkpoint.safetensors"}) {
      const std::string wanted = read_file(folder / (a + "/" + name));
      EXPECT_TRUE(!wanted.empty() && wanted == read_file(folder / (b + "/" + name))) << name << " of " << b;
    }
  }
  [[nodiscard]] std::vector<pid_t> ranks() const { return heed::test::ranks_in(folder.path()); }
  void wait_for_checkpoint(const std::string& out) const {
    for (int i = 0; i < 3000 && !fs::exists(folder / (out + "/checkpoint.safetensors")); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
};

TEST_F(TrainOverRanks, WritesTheFolderOfOneProcess) {
  const Words steps = {"--steps", "20", "--json"};
  const CommandResult one = alone(tiny("one", steps));
  ASSERT_EQ(one.exit_code, 0) << one.errors;
  const CommandResult two = run(2, tiny("two", steps));
  ASSERT_EQ(two.exit_code, 0) << two.errors;
  expect_same_files("one", "two");
  const Json json = Json::parse(two.output);
  EXPECT_EQ(json["ranks"], 2);
  EXPECT_EQ(json["over"], "batch");
  EXPECT_EQ(json["loss"], Json::parse(one.output)["loss"]);
  const CommandResult three = run(3, tiny("three", {"--steps", "20", "--json", "--over", "sequence"}));
  ASSERT_EQ(three.exit_code, 0) << three.errors;
  EXPECT_EQ(Json::parse(three.output)["over"], "sequence");
  // Twenty steps in f32, as in distributed_train_test: a few ulps.
  EXPECT_NEAR(Json::parse(three.output)["loss"].get<double>(), json["loss"].get<double>(), 1e-6);
}

// With srun and PMIx, no environment variable tells the number of ranks.
TEST_F(TrainOverRanks, KnowsItsRanksWhereHeedMpiIsCalledByName) {
  Words words = {"-n", "2", "--oversubscribe", "env", "-u", "OMPI_COMM_WORLD_SIZE", HEED_COMMAND "-mpi"};
  const Words training = tiny("out", {"--steps", "5", "--json", "--over", "sequence"});
  words.insert(words.end(), training.begin(), training.end());
  const CommandResult result = run_heed(words, input());
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(Json::parse(result.output)["ranks"], 2);
}

TEST_F(TrainOverRanks, GoesOnBitForBitAfterARankWasKilled) {
  std::mt19937 random(16);
  for (const char* over : {"batch", "sequence"}) {
    const Words more = {"--steps", "40", "--checkpoint-every", "2", "--over", over};
    const std::string whole = std::string("whole-") + over;
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_EQ(run(3, tiny(whole, more)).exit_code, 0);
    const auto taken = std::chrono::steady_clock::now() - begin;
    std::uniform_int_distribution<long> moment(
        0, std::chrono::duration_cast<std::chrono::microseconds>(taken).count());
    const std::string out = std::string("killed-") + over;
    std::uint64_t killed = 0;
    for (int tries = 0; killed < heed::test::share_of(3) && tries < 50; ++tries) {
      CommandInput input = this->input();
      input.meanwhile = [&](pid_t) {
        std::this_thread::sleep_for(std::chrono::microseconds(moment(random)));
        const std::vector<pid_t> found = ranks();
        // Kills any rank, possibly the one that writes.
        if (!found.empty()) kill(found[random() % found.size()], SIGKILL);
      };
      Words words = tiny(out, more);
      if (fs::exists(folder / (out + "/checkpoint.safetensors"))) words.push_back("--resume");
      const CommandResult result = run_over_ranks(3, words, input);
      if (result.exit_code != 0)
        ++killed;
      else
        fs::remove_all(folder / out);
    }
    EXPECT_EQ(killed, heed::test::share_of(3));
    Words words = tiny(out, more);
    if (fs::exists(folder / (out + "/checkpoint.safetensors"))) words.push_back("--resume");
    const CommandResult result = run(3, words);
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    expect_same_files(whole, out);
    for (const fs::directory_entry& entry : fs::directory_iterator(folder / out))
      EXPECT_FALSE(entry.path().filename().string().ends_with(".tmp")) << entry.path();
  }
}

TEST_F(TrainOverRanks, SavesWhereOneRankIsToldToStopAndSaysHowToGoOn) {
  CommandInput input = this->input();
  input.meanwhile = [&](pid_t) {
    wait_for_checkpoint("out");
    const std::vector<pid_t> found = ranks();
    ASSERT_EQ(found.size(), 3u);
    kill(found.back(), SIGTERM);
  };
  const Words more = {"--steps", "1000000", "--checkpoint-every", "1000000", "--over", "sequence"};
  const CommandResult result = run_over_ranks(3, tiny("out", more), input);
  EXPECT_EQ(result.exit_code, 130);
  const std::string sentence = said(result);
  EXPECT_TRUE(sentence.starts_with("heed: stopped after step ")) << result.errors;
  EXPECT_TRUE(
      sentence.ends_with(" of 1000000; everything is saved, continue with: mpirun -n 3 heed train text.txt "
                         "--out out --resume --over sequence\n"))
      << result.errors;
  EXPECT_EQ(Json::parse(read_file(folder / "out/config.json"))["heed"]["settings"]["steps"], 1000000);
}

TEST_F(TrainOverRanks, RefusesOnceInOneSentence) {
  const CommandResult one = alone(tiny("out", {"--over", "batch"}));
  EXPECT_EQ(one.exit_code, 2);
  EXPECT_EQ(one.errors,
            "heed: --over is given to a single process; several ranks are expected, as started by mpirun -n "
            "4 heed …\n");
  ASSERT_EQ(run(2, tiny("out", {"--steps", "20", "--stop-at", "3"})).exit_code, 0);
  const CommandResult again = run(2, tiny("out"));
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_EQ(said(again),
            "heed: out already holds a training; add --resume to continue it, or name another folder\n");
  const CommandResult within = run(2, tiny("text.txt/out"));
  EXPECT_EQ(within.exit_code, 1);
  EXPECT_EQ(said(within), "heed: cannot make the folder text.txt/out: Not a directory\n");
  const CommandResult wild = run(3, tiny("wild", {"--learning-rate", "1e30"}));
  EXPECT_EQ(wild.exit_code, 1);
  EXPECT_NE(said(wild).find(": the training diverges; wild/checkpoint.safetensors is kept as it was after "
                            "step 0; a lower --learning-rate may help\n"),
            std::string::npos)
      << wild.errors;
}

}  // namespace
