// mpirun -n … heed attend: writes the same bytes as one process, and either all files or none.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "../attend_support.hpp"
#include "over_ranks.hpp"

namespace {

namespace fs = std::filesystem;
using heed::DType;
using heed::Tensor;
using heed::test::CommandInput;
using heed::test::CommandResult;
using heed::test::random_tensor;
using heed::test::ranks_in;
using heed::test::read_file;
using heed::test::run_heed;
using heed::test::run_over_ranks;
using heed::test::said;
using heed::test::Words;

class AttendOverRanks : public heed::test::RunsOverRanks {
 protected:
  AttendOverRanks() {
    for (const auto& [name, tensor] : tensors()) heed::io::write_npy(folder / (name + ".npy"), tensor);
    heed::io::write_safetensors(folder / "x.safetensors",
                                {{"k", bf16_key}, {"v", random_tensor({2, 2, 97, 7}, 3)}});
    for (const char* name : {"one", "many"}) fs::create_directory(folder / name);
  }

  static std::vector<std::pair<std::string, Tensor>> tensors() {
    Tensor mask({2, 1, 101, 97}, DType::boolean);
    for (std::int64_t i = 0; i < mask.count(); ++i)
      mask.values<bool>()[static_cast<std::size_t>(i)] = i % 7 != 3;
    return {{"q", random_tensor({2, 4, 101, 8}, 1)},
            {"k", random_tensor({2, 2, 97, 8}, 2)},
            {"v", random_tensor({2, 2, 97, 7}, 3)},
            {"bias", random_tensor({4, 101, 97}, 4)},
            {"row", random_tensor({4, 1, 97}, 5)},
            {"sinks", random_tensor({4}, 6)},
            {"do", random_tensor({2, 4, 101, 7}, 7)},
            {"dl", random_tensor({2, 4, 101}, 8)},
            {"dw", random_tensor({2, 4, 101, 97}, 9)},
            {"mask", mask},
            {"q3", random_tensor({5, 3, 8}, 10)},
            {"q1", random_tensor({3, 2, 1, 8}, 11)},
            {"k5", random_tensor({3, 2, 5, 8}, 12)},
            {"ql", random_tensor({1, 53, 4, 8}, 13)},
            {"kl", random_tensor({1, 53, 2, 8}, 14)},
            {"dol", random_tensor({1, 53, 4, 8}, 15)},
            {"q64", random_tensor({37, 8}, 16, DType::f64)},
            {"decay", random_tensor({4, 97}, 18)},
            {"decay2", random_tensor({2, 4, 97}, 19)},
            {"none", random_tensor({1, 2, 0, 8}, 17)},
            {"lengths", Tensor::from<std::int64_t>({97, 30}, {2})}};
  }

  // Compares the outputs of `words` (names in "one/…") by one process with those over ranks.
  void expect_same_files(int ranks, const Words& words, const Words& over) const {
    SCOPED_TRACE(testing::PrintToString(ranks) + testing::PrintToString(words) +
                 testing::PrintToString(over));
    for (const char* name : {"one", "many"}) {
      fs::remove_all(folder / name);
      fs::create_directory(folder / name);
    }
    const CommandResult one = alone(words);
    ASSERT_EQ(one.exit_code, 0) << one.errors;
    Words many = words;
    for (std::string& word : many)
      for (std::size_t at = word.find("one/"); at != std::string::npos; at = word.find("one/"))
        word.replace(at, 4, "many/");
    many.insert(many.end(), over.begin(), over.end());
    const CommandResult together = run(ranks, many);
    ASSERT_EQ(together.exit_code, 0) << together.errors;
    EXPECT_EQ(together.errors, "");
    EXPECT_EQ(together.output, "");
    std::size_t files = 0;
    for (const auto& entry : fs::directory_iterator(folder / "one")) {
      const std::string name = entry.path().filename().string();
      EXPECT_TRUE(read_file(folder / ("many/" + name)) == read_file(folder / ("one/" + name))) << name;
      ++files;
    }
    EXPECT_EQ(files, static_cast<std::size_t>(std::distance(fs::directory_iterator(folder / "many"), {})));
  }

  Tensor bf16_key = random_tensor({2, 2, 97, 8}, 2, DType::bf16);
};

const Words kRowResults = {"--out",     "one/o.npy",  "--lse",       "one/l.npy",          "--max-score",
                           "one/m.npy", "--distance", "one/d.npy",   "--entropy",          "one/e.npy",
                           "--top-k",   "3",          "--top-k-out", "one/i.npy,one/w.npy"};
const Words kAllResults = {
    "--weights",  "one/we.npy", "--scores",        "one/s.npy",  "--masked-mass",       "one/dr.npy",
    "--received", "one/r.npy",  "--received-last", "9",          "--received-last-out", "one/rl.npy",
    "--map",      "5x7",        "--map-out",       "one/map.npy"};

Words joined(std::initializer_list<Words> parts) {
  Words all;
  for (const Words& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

const Words kCall = {"attend", "--query", "q.npy", "--key", "k.npy", "--value", "v.npy"};

TEST_F(AttendOverRanks, FilesHaveTheBytesOfOneProcess) {
  const Words masked = {"--causal", "--mask",    "mask.npy",  "--bias", "bias.npy",
                        "--sinks",  "sinks.npy", "--dropout", "0.2"};
  for (const int ranks : {1, 2, 3, 4})
    expect_same_files(ranks, joined({kCall, masked, kRowResults, kAllResults}), {});
  for (const char* scheme : {"ring", "gather", "ulysses", "decode"})
    expect_same_files(3, joined({kCall, masked, kRowResults}),
                      {"--scheme", scheme, "--sharding", "striped:5"});
  expect_same_files(
      2,
      joined({kCall, {"--kv-lengths", "lengths.npy", "--window", "20,3", "--bias", "row.npy"}, kRowResults}),
      {"--scheme", "gather", "--deterministic", "--sharding", "contiguous"});
  for (const char* scheme : {"ring", "gather", "ulysses", "decode"})
    expect_same_files(2, joined({kCall, {"--decay", "decay.npy", "--causal"}, kRowResults}),
                      {"--scheme", scheme});
  expect_same_files(2, joined({kCall, {"--mask-pattern", "sinks_and_window=2,30", "--out", "one/o.npy"}}),
                    {"--sharding", "zigzag"});
}

TEST_F(AttendOverRanks, WhateverTheAxesDtypesAndFiles) {
  const Words x = {"--key", "x.safetensors:k", "--value", "x.safetensors:v"};
  expect_same_files(3, joined({{"attend", "--query", "q.npy"}, x, {"--dtype", "bf16"}, kRowResults}), {});
  const Words lengths_first = {"attend",  "--query", "ql.npy",   "--key", "kl.npy",
                               "--value", "kl.npy",  "--layout", "blhd"};
  expect_same_files(3, joined({lengths_first, {"--causal"}, kRowResults, kAllResults}), {});
  expect_same_files(
      4, joined({{"attend", "--query", "q3.npy", "--key", "q3.npy", "--value", "q3.npy"}, kRowResults}), {});
  // A single query, so only one rank has a row.
  expect_same_files(
      4, joined({{"attend", "--query", "q1.npy", "--key", "k5.npy", "--value", "k5.npy"}, kRowResults}), {});
  const Words none = {"--query", "none.npy", "--key", "none.npy", "--value", "none.npy"};
  expect_same_files(2, joined({{"attend"}, none, {"--out", "one/o.npy", "--received", "one/r.npy"}}), {});
  const Words flat = {"attend", "--query", "q64.npy", "--key", "q64.npy", "--value", "q64.npy"};
  expect_same_files(2, joined({flat, {"--causal"}, kRowResults, kAllResults}), {});
}

TEST_F(AttendOverRanks, GradientsHaveTheBytesOfOneProcess) {
  const Words gradients = {"--grad-query", "one/dq.npy",   "--grad-key",
                           "one/dk.npy",   "--grad-value", "one/dv.npy"};
  for (const int ranks : {2, 3})
    for (const char* scheme : {"gather", "ulysses", "ring"})
      expect_same_files(
          ranks, joined({kCall, {"--causal", "--grad-output", "do.npy", "--grad-lse", "dl.npy"}, gradients}),
          {"--scheme", scheme});
  const Words lengths_first = {"attend", "--query",  "ql.npy", "--key",         "kl.npy", "--value",
                               "kl.npy", "--layout", "blhd",   "--grad-output", "dol.npy"};
  expect_same_files(3, joined({lengths_first, gradients}), {"--sharding", "striped:4"});
  const Words of_bias = {"--bias",        "bias.npy", "--grad-bias",    "one/db.npy",
                         "--grad-output", "do.npy",   "--grad-weights", "dw.npy"};
  expect_same_files(3, joined({kCall, of_bias, gradients}), {});
  const Words of_decay = {"--decay", "decay2.npy", "--grad-decay", "one/dc.npy", "--grad-output", "do.npy"};
  expect_same_files(3, joined({kCall, of_decay, gradients}), {});
}

TEST_F(AttendOverRanks, WhatRanksShareIsWrittenOnce) {
  // Sums over ranks are rounded in another order than in one process: a few ulps of the largest terms.
  const Words words =
      joined({kCall, {"--bias", "row.npy", "--sinks", "sinks.npy", "--grad-output", "do.npy"}});
  const CommandResult single =
      alone(joined({words, {"--grad-bias", "one/db.npy", "--grad-sinks", "one/ds.npy"}}));
  ASSERT_EQ(single.exit_code, 0) << single.errors;
  const CommandResult many =
      run(3, joined({words, {"--grad-bias", "many/db.npy", "--grad-sinks", "many/ds.npy"}}));
  ASSERT_EQ(many.exit_code, 0) << many.errors;
  for (const char* name : {"db.npy", "ds.npy"}) {
    const Tensor one = Tensor::copy_of(heed::io::read_npy(folder / ("one/" + std::string(name))), DType::f64);
    const Tensor other =
        Tensor::copy_of(heed::io::read_npy(folder / ("many/" + std::string(name))), DType::f64);
    ASSERT_EQ(one.shape(), other.shape());
    double worst = 0, largest = 0;
    for (std::size_t i = 0; i < one.values<double>().size(); ++i) {
      worst = std::max(worst, std::abs(one.values<double>()[i] - other.values<double>()[i]));
      largest = std::max(largest, std::abs(one.values<double>()[i]));
    }
    EXPECT_TRUE(worst <= 1e-5 * largest) << name << worst << " of " << largest;
  }
}

TEST_F(AttendOverRanks, JsonSaysHowRanksComputed) {
  const CommandResult result =
      run(3, joined({kCall, {"--causal", "--json", "--scheme", "gather", "--repeat", "2"}}));
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_EQ(json["query"], nlohmann::json({2, 4, 101, 8}));
  EXPECT_EQ(json["ranks"], 3);
  EXPECT_EQ(json["scheme"], "gather");
  EXPECT_EQ(json["sharding"], "zigzag");
  // Keys and values are sent to two other ranks each.
  EXPECT_EQ(json["bytes_sent"], 2 * 2 * 97 * (8 + 7) * 4 * 2);
  EXPECT_GT(json["plan"]["seconds"], 0);
}

TEST_F(AttendOverRanks, RefusalsAreSaidOnce) {
  for (const std::string command : {"info", "heads"})
    expect_refusal(3, {command}, 2,
                   "heed " + command + " works in one process, and mpirun started 3 ranks; one is expected");
  expect_refusal(2, joined({kCall, {"--plan"}}), 2,
                 "--plan is given over ranks; heed plan tells what each scheme would do there");
  expect_refusal(2, joined({kCall, {"--differential", "0.5", "--out", "o.npy"}}), 2,
                 "--differential, --gate or --grid is given over ranks; a single process is expected");
  expect_refusal(2, {"attend", "--query", "q.npy", "--cache", "c.safetensors", "--json"}, 2,
                 "--cache is given over ranks; a single process is expected");
  expect_refusal(2, {"attend", "--query", "-", "--key", "k.npy", "--value", "v.npy", "--json"}, 2,
                 "--query is '-', which several ranks cannot share; a file is expected");
  expect_refusal(2, joined({kCall, {"--out", "o.npy", "--sharding", "stripes"}}), 2,
                 "--sharding is 'stripes'; contiguous, zigzag, striped or striped:N (N positions, 1 or more) "
                 "is expected");
  expect_refusal(2, joined({kCall, {"--out", "o.npy", "--sharding", "striped:0"}}), 2,
                 "--sharding is 'striped:0'; contiguous, zigzag, striped or striped:N (N positions, 1 or "
                 "more) is expected");
  expect_refusal(3, {"attend", "--query", "q.npy", "--key", "k.npy", "--value", "do.npy", "--out", "o.npy"},
                 2, "value has head count 4 (shape [2, 4, 101, 7]); 2 as in key is expected");
  for (const Words& words :
       {Words{"attend", "--query", "sinks.npy", "--key", "k.npy", "--value", "v.npy", "--bias", "bias.npy",
              "--out", "o.npy"},
        Words{"attend", "--query", "q.npy", "--key", "sinks.npy", "--value", "v.npy", "--out", "o.npy"},
        joined({kCall, {"--bias", "do.npy", "--out", "o.npy"}}),
        joined({kCall, {"--grad-output", "q.npy", "--grad-query", "o.npy"}})}) {
    const CommandResult one = alone(words);
    ASSERT_NE(one.exit_code, 0);
    expect_refusal(3, words, one.exit_code, one.errors.substr(6, one.errors.size() - 7));
  }
  expect_refusal(3, joined({kCall, {"--mask", "bias.npy", "--out", "o.npy"}}), 2,
                 "--mask has dtype f32; bool is expected (numbers to add to the scores are a --bias)");
  expect_refusal(
      3, joined({kCall, {"--weights", "w.npy", "--scheme", "ring"}}), 2,
      "outputs.weights is requested with scheme ring, which never has all weights of a row; gather or "
      "ulysses is expected");
  expect_refusal(3,
                 {"attend", "--query", "q.npy", "--key", "missing.npy", "--value", "v.npy", "--out", "o.npy"},
                 1, "cannot open 'missing.npy': No such file or directory");
  fs::create_symlink("/dev/null", folder / "null.npy");
  expect_refusal(2, joined({kCall, {"--out", "null.npy"}}), 1,
                 "'null.npy' is not a regular file, which writing by several processes needs");
}

TEST_F(AttendOverRanks, HelpAndVersionArePrintedOnce) {
  for (const Words& words : {Words{"--version"}, Words{"attend", "--help"}, Words{"info", "--help"}})
    EXPECT_EQ(run(3, words).output, alone(words).output);
}

// The same without mpirun, with only the variables that it sets.
TEST_F(AttendOverRanks, WithoutHeedMpiOneSentenceSaysWhatIsMissing) {
  fs::copy_file(HEED_COMMAND, folder / "heed");
  CommandInput input;
  input.program = folder / "heed";
  input.environment = {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "0"}};
  const CommandResult first = run_heed({"attend"}, input);
  EXPECT_EQ(first.exit_code, 2);
  EXPECT_EQ(first.errors,
            "heed: mpirun started 4 ranks, but this heed was built without MPI: heed-mpi is not beside it "
            "(install libopenmpi-dev and build again)\n");
  input.environment["OMPI_COMM_WORLD_RANK"] = "1";
  const CommandResult second = run_heed({"attend"}, input);
  EXPECT_EQ(second.exit_code, 2);
  EXPECT_EQ(second.errors, "");
}

TEST_F(AttendOverRanks, OneProcessHasNoUseForTheirOptions) {
  const CommandResult result = alone(joined({kCall, {"--out", "one/o.npy", "--scheme", "ring"}}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.errors,
            "heed: --scheme is given to a single process; several ranks are expected, as started by mpirun "
            "-n 4 heed …\n");
  EXPECT_EQ(run(1, joined({kCall, {"--out", "one/o.npy", "--scheme", "ring"}})).exit_code, 0);
}

// Rank 0 works in the folder. Rank 1 works in another one, where a file is truncated.
TEST_F(AttendOverRanks, ARankThatCannotReadItsShardIsNamed) {
  const std::string other = folder / "other";
  fs::create_directory(other);
  for (const char* name : {"q.npy", "k.npy", "v.npy"}) fs::copy_file(folder / name, other + "/" + name);
  fs::resize_file(other + "/k.npy", 200);
  const Words call = joined({{HEED_COMMAND}, kCall, {"--out", "o.npy"}});
  const CommandResult result = run_heed(joined({{"--oversubscribe", "-n", "1", "-wdir", folder.path()},
                                                call,
                                                {":", "-n", "1", "-wdir", other},
                                                call}),
                                        input());
  EXPECT_EQ(said(result),
            "heed: rank 1: 'k.npy' has 72 bytes of data; its shape [2, 2, 97, 8] of f32 needs 12416\n");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_FALSE(fs::exists(folder / "o.npy"));
}

// The other ranks wait for it in an MPI call, so it must end them.
TEST_F(AttendOverRanks, ARankThatFailsAloneEndsTheOthers) {
  const Words call = joined({{HEED_COMMAND}, kCall, {"--out", "o.npy"}});
  const CommandResult result =
      run_heed(joined({{"--oversubscribe", "-n", "2"}, call, {":", "-n", "1"}, call, {"--bogus"}}), input());
  EXPECT_EQ(said(result), "heed: --bogus is not an option of heed attend (see heed attend --help)\n");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_FALSE(fs::exists(folder / "o.npy"));
}

class KilledRank : public AttendOverRanks {
 protected:
  KilledRank() {
    // mpiexec sends SIGKILL a second after SIGTERM. A rank whose fsync takes longer could not clean up.
    ::setenv("OMPI_MCA_odls_base_sigkill_timeout", "20", 1);
    for (const char* name : {"lq.npy", "lk.npy"})
      heed::io::write_npy(folder / name, random_tensor({2, 4096, 16}, 5));
  }

  // Waits for `moment`, then kills a rank. The output must be complete or absent, and no other files may
  // remain.
  void expect_whole_or_nothing(const std::function<bool()>& moment) {
    const Words before = folder.names();
    bool killed = false;
    CommandInput killing = input();
    killing.meanwhile = [&](pid_t) {
      for (int tries = 0; tries < 30000 && !moment(); ++tries)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const auto ranks = ranks_in(folder.path());
      killed = ranks.size() > 1 && kill(ranks[1], SIGKILL) == 0;
    };
    const CommandResult result = run_over_ranks(3,
                                                {"attend", "--query", "lq.npy", "--key", "lk.npy", "--value",
                                                 "lk.npy", "--weights", "w.npy", "--kernel", "reference"},
                                                killing);
    Words after = before;
    if (result.exit_code == 0) {  // it ended before the kill
      after.push_back("w.npy");
      std::sort(after.begin(), after.end());
      EXPECT_EQ(fs::file_size(folder / "w.npy"), 2u * 4096 * 4096 * 4 + 128);
    }
    EXPECT_TRUE(killed || result.exit_code == 0);
    EXPECT_EQ(folder.names(), after) << result.errors;
  }
};

TEST_F(KilledRank, LeavesNothingWhileRanksCompute) {
  expect_whole_or_nothing([&] { return ranks_in(folder.path()).size() == 3; });
  EXPECT_FALSE(fs::exists(folder / "w.npy"));
}

TEST_F(KilledRank, LeavesAllOrNothingWhileTheyWrite) {
  expect_whole_or_nothing([&] {
    const Words names = folder.names();
    return std::any_of(names.begin(), names.end(),
                       [](const std::string& name) { return name.ends_with(".tmp"); });
  });
}

}  // namespace
