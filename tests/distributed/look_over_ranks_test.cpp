// mpirun -n … heed look: prints and saves the same as one process.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <nlohmann/json.hpp>
#include <string>

#include "../attend_support.hpp"
#include "heed/io/shards.hpp"
#include "over_ranks.hpp"

namespace {

using heed::DType;
using heed::Tensor;
using heed::test::CommandResult;
using heed::test::random_tensor;
using heed::test::read_file;
using heed::test::Words;

class LookOverRanks : public heed::test::RunsOverRanks {
 protected:
  LookOverRanks() {
    heed::io::write_npy(folder / "q.npy", random_tensor({2, 4, 71, 8}, 1));
    heed::io::write_npy(folder / "k.npy", random_tensor({2, 2, 53, 8}, 2));
    heed::io::write_npy(folder / "v.npy", random_tensor({2, 2, 53, 5}, 3));
    heed::io::write_npy(folder / "x.npy", random_tensor({37, 8}, 4, DType::f64));
    std::string tokens;
    for (int i = 0; i < 71; ++i) tokens += std::string(1, static_cast<char>('a' + i * i % 11)) + "\n";
    heed::test::write_file(folder / "tokens.txt", tokens);
    heed::test::write_file(folder / "keys.txt", tokens.substr(2 * 18));
  }

  [[nodiscard]] static Words look(const Words& more) {
    Words words = {"look", "--query", "q.npy", "--key", "k.npy", "--value", "v.npy"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  void expect_same_output(int ranks, const Words& words) const {
    const CommandResult one = alone(words), many = run(ranks, words);
    ASSERT_EQ(one.exit_code, 0) << one.errors;
    ASSERT_EQ(many.exit_code, 0) << many.errors;
    ASSERT_FALSE(many.output.empty());
    // Runs over ranks print no costs, which come last.
    EXPECT_EQ(many.output, one.output.substr(0, many.output.size())) << testing::PrintToString(words);
  }
  // The tensors and metadata without the costs.
  [[nodiscard]] std::string without_cost(const std::string& name) const {
    const heed::io::TensorFile file = heed::io::read_safetensors(folder / name);
    std::string all;
    for (const auto& [key, text] : file.metadata)
      if (key.find("cost") == std::string::npos) all += key + "=" + text + "\n";
    for (const auto& [tensor_name, tensor] : file.tensors)
      all += tensor_name + to_string(tensor.shape()) +
             std::string(static_cast<const char*>(tensor.view().data()),
                         static_cast<std::size_t>(tensor.count()) * size_of(tensor.dtype()));
    return all;
  }
};

TEST_F(LookOverRanks, TablesAreThoseOfOneProcess) {
  for (const int ranks : {2, 3})
    expect_same_output(ranks, look({"--causal", "--tokens", "tokens.txt", "--key-tokens", "keys.txt"}));
  expect_same_output(3, look({"--window", "9,4", "--map", "6x5", "--draw-mask", "--check"}));
  expect_same_output(2,
                     {"look", "--query", "x.npy", "--key", "x.npy", "--value", "x.npy", "--sort", "entropy"});
  expect_same_output(2, look({"--row", "3", "--top-k", "2"}));
  expect_same_output(2, look({"--row", "0:71", "--head", "1"}));
  expect_same_output(2, look({"--tile", "0:4,0:4"}));
  expect_same_output(2, {"look", "--query", "x.npy", "--key", "x.npy", "--value", "x.npy", "--causal",
                         "--evict", "streaming:2+8"});
}

TEST_F(LookOverRanks, JsonTooButForTheCost) {
  const Words words = look({"--causal", "--json", "--no-received"});
  auto one = nlohmann::json::parse(alone(words).output);
  EXPECT_EQ(one.erase("cost"), 1u);
  EXPECT_EQ(nlohmann::json::parse(run(3, words).output), one);
}

TEST_F(LookOverRanks, DocumentsHoldTheSame) {
  const Words words = look({"--causal", "--tokens", "tokens.txt", "--key-tokens", "keys.txt", "--csv",
                            "one.csv", "--save", "one.safetensors"});
  ASSERT_EQ(alone(words).exit_code, 0);
  const Words many =
      look({"--causal", "--tokens", "tokens.txt", "--key-tokens", "keys.txt", "--csv", "many.csv", "--save",
            "many.safetensors", "--scheme", "gather", "--sharding", "striped:3"});
  const CommandResult result = run(3, many);
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(read_file(folder / "many.csv"), read_file(folder / "one.csv"));
  EXPECT_TRUE(without_cost("many.safetensors") == without_cost("one.safetensors"));
  // The page is the same too.
  ASSERT_EQ(alone(look({"--proof", "--html", "one.html"})).exit_code, 0);
  ASSERT_EQ(run(2, look({"--proof", "--html", "many.html"})).exit_code, 0);
  EXPECT_TRUE(read_file(folder / "many.html") == read_file(folder / "one.html"));
}

// From 16 MiB on, rank 0 reads only the parts of tensors that it shows.
TEST_F(LookOverRanks, LargeTensorsAreReadWhereTheyLie) {
  heed::io::write_npy(folder / "wide.npy", random_tensor({32, 2, 70, 1024}, 5));
  heed::io::write_safetensors(folder / "wide.safetensors", {{"k", random_tensor({32, 2, 70, 1024}, 6)}});
  heed::io::write_npy(folder / "narrow.npy", random_tensor({32, 2, 70, 3}, 7));
  const Words wide = {"look",    "--query",    "wide.npy", "--key", "wide.safetensors:k",
                      "--value", "narrow.npy", "--causal"};
  for (const Words& more :
       {Words{"--check", "--map", "4x4"}, Words{"--row", "3"}, Words{"--tile", "0:4,0:4", "--batch", "2"}}) {
    Words words = wide;
    words.insert(words.end(), more.begin(), more.end());
    expect_same_output(2, words);
  }
}

// Values of 256 MiB in all, and an output of the same size. Each rank holds a quarter of each.
TEST_F(LookOverRanks, RankZeroHoldsNoWholeTensor) {
  if (heed::test::kSanitized) GTEST_SKIP() << heed::test::kUnmeasured;
  heed::io::SharedNpyFiles files;
  for (const char* name : {"q0.npy", "k0.npy"}) files.add(folder / name, DType::f32, {16, 4, 64, 1024});
  files.add(folder / "v0.npy", DType::f32, {16, 4, 64, 16384});
  files.commit();
  const CommandResult result = run(4, {"look", "--query", "q0.npy", "--key", "k0.npy", "--value", "v0.npy",
                                       "--no-received", "--scheme", "gather", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(nlohmann::json::parse(result.output)["summary"].size(), 64u);
  rusage used{};
  ASSERT_EQ(getrusage(RUSAGE_CHILDREN, &used), 0);  // for the largest rank
  EXPECT_LT(used.ru_maxrss, 256 * 1024);            // KiB
}

TEST_F(LookOverRanks, WhatRanksDoNotShareIsRefusedOnce) {
  const std::string end =
      " works in one process, and mpirun started 3 ranks; several ranks work only with --query, --key and "
      "--value";
  expect_refusal(3, {"look", "--model", "induction", "to be or not to be"}, 2, "heed look --model" + end);
  expect_refusal(3, {"look", "doc.safetensors"}, 2, "heed look DOC" + end);
  expect_refusal(3, look({"--price"}), 2, "heed look --price" + end);
  expect_refusal(3, look({"--serve"}), 2, "heed look --serve" + end);
  expect_refusal(3, {"look", "doc.safetensors", "--scheme", "ring"}, 2,
                 "--scheme is given together with DOC, which contains the call");
}

// Only rank 0 reads the tokens, while the others wait for it.
TEST_F(LookOverRanks, WhatRankZeroFindsWrongEndsAll) {
  expect_refusal(3, look({"--tokens", "none.txt"}), 1,
                 "none.txt could not be opened: No such file or directory");
  heed::test::write_file(folder / "few.txt", "a\nb\n");
  const CommandResult one = alone(look({"--tokens", "few.txt"}));
  EXPECT_TRUE(one.errors.starts_with("heed: --tokens"));
  expect_refusal(3, look({"--tokens", "few.txt"}), one.exit_code,
                 one.errors.substr(6, one.errors.size() - 7));
  expect_refusal(3, look({"--scheme", "ring", "--save", "none/doc.safetensors"}), 1,
                 "cannot write 'none/doc.safetensors' (--save): No such file or directory");
}

}  // namespace
