// heed plan: its output for people and for machines, and its errors. plan_test checks the figures.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"
#include "heed/distributed/plan.hpp"

namespace {

using heed::Sharding;
using heed::distributed::Machines;
using heed::distributed::PlannedCall;
using heed::distributed::Results;
using heed::distributed::SchemePlan;
using heed::test::CommandResult;
using heed::test::run_heed;

nlohmann::json planned(std::vector<std::string> words) {
  words.insert(words.begin(), "plan");
  words.emplace_back("--json");
  const CommandResult result = run_heed(words);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.errors, "");
  EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1);
  return nlohmann::json::parse(result.output);
}

void expect_schemes(const nlohmann::json& object, const std::vector<SchemePlan>& plans) {
  ASSERT_EQ(object.at("schemes").size(), plans.size());
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const auto& row = object.at("schemes").at(i);
    EXPECT_EQ(row.at("scheme"), name_of(plans[i].scheme));
    EXPECT_EQ(row.at("possible"), plans[i].possible);
    EXPECT_EQ(row.at("note"), plans[i].note);
    EXPECT_EQ(row.at("bytes_per_rank"), plans[i].bytes_per_rank);
    EXPECT_EQ(row.at("bytes_sent"), plans[i].bytes_sent);
    EXPECT_EQ(row.at("seconds"), plans[i].seconds);
    EXPECT_EQ(row.at("efficiency"), plans[i].efficiency);
  }
  EXPECT_EQ(object.at("chosen"), name_of(heed::distributed::choose(plans)));
}

TEST(PlanCommand, PrintsWhatTheLibrarySaysToMachines) {
  const auto object = planned({"--ranks",    "6",
                               "--nodes",    "3",
                               "--length",   "50000",
                               "--queries",  "40000",
                               "--batch",    "2",
                               "--heads",    "8",
                               "--kv-heads", "2",
                               "--head-dim", "32",
                               "--dtype",    "bf16",
                               "--causal",   "--window",
                               "9000,-1",    "--layout",
                               "zigzag",     "--gflops",
                               "250",        "--gbytes-per-s",
                               "1.5",        "--node-gbytes-per-s",
                               "6",          "--latency",
                               "1e-5",       "--results",
                               "weights",    "--gradients"});
  PlannedCall call;
  call.batch = 2;
  call.heads = 8;
  call.kv_heads = 2;
  call.head_dim = call.value_dim = 32;
  call.element_bytes = 2;
  call.causal = true;
  call.window.left = 9000;
  call.query_offset = 10000;
  call.gradients = true;
  call.results = Results::weights;
  Machines machines;
  machines.ranks_per_node = 2;
  machines.flops_per_second = 250e9;
  machines.bytes_per_second = 1.5e9;
  machines.node_bytes_per_second = 6e9;
  machines.latency_seconds = 1e-5;
  expect_schemes(object, plan(call, machines, Sharding::zigzag(40000, 6), Sharding::zigzag(50000, 6)));
  EXPECT_EQ(object.at("ranks"), 6);
  EXPECT_EQ(object.at("nodes"), 3);
  EXPECT_EQ(object.at("gflops"), 250);
  EXPECT_EQ(object.at("measured"), false);
  EXPECT_EQ(object.at("shape"), (std::vector<int>{2, 8, 2, 40000, 50000, 32}));
  EXPECT_EQ(object.at("dtype"), "bf16");
  EXPECT_EQ(object.at("window"), (std::vector<int>{9000, -1}));
  EXPECT_EQ(object.at("layout"), "zigzag");
}

TEST(PlanCommand, HasDefaults) {
  PlannedCall call;
  call.heads = call.kv_heads = 8;
  Machines machines;
  machines.flops_per_second = 1e9;
  machines.bytes_per_second = 12.5e9;
  machines.latency_seconds = 2e-6;
  const Sharding all = Sharding::contiguous(10000, 4);
  expect_schemes(planned({"--ranks", "4", "--length", "10000", "--gflops", "1"}),
                 plan(call, machines, all, all));
}

TEST(PlanCommand, MeasuresTheKernelWhereItIsNotTold) {
  const auto object = planned({"--ranks", "2", "--length", "300", "--heads", "2", "--head-dim", "8"});
  EXPECT_EQ(object.at("measured"), true);
  EXPECT_GT(object.at("gflops"), 0.0);
  const CommandResult result =
      run_heed({"plan", "--ranks", "2", "--length", "300", "--heads", "2", "--head-dim", "8"});
  EXPECT_NE(result.output.find(" GFLOP/s a rank (measured here, one thread), 2 ranks on 2 nodes; between"),
            std::string::npos)
      << result.output;
}

TEST(PlanCommand, PrintsATableToPeople) {
  const CommandResult result = run_heed(
      {"plan",     "--ranks",    "64",       "--nodes",    "1",         "--length", "1000000", "--heads",
       "32",       "--kv-heads", "8",        "--head-dim", "128",       "--dtype",  "bf16",    "--causal",
       "--layout", "zigzag",     "--gflops", "2000",       "--results", "weights"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.errors, "");
  EXPECT_EQ(
      result.output,
      "2000 GFLOP/s a rank, 64 ranks on 1 node; between nodes 12.5 GB/s, within one 8\n"
      "GB/s a rank, latency 2.00 µs\n"
      "\n"
      "scheme        memory       sent      time efficiency\n"
      "ring               -          -         -          -  weights need a row's final sum over all keys\n"
      "gather *      1.3 GB     4.0 GB   64.1 s      99.9 %\n"
      "ulysses       2.9 GB     1.2 GB    512 s      12.5 %  56 of 64 ranks have no head\n"
      "decode             -          -         -          -  weights need a row's final sum over all keys\n");
}

TEST(PlanCommand, SaysWhatIsWrongWithAnOption) {
  const std::string sizes = "; a whole number from 1 to 65536 is expected";
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--length", "9"},
       "--ranks is missing: the number of processes that share the call (see heed plan --help)"},
      {{"--ranks", "9"}, "--length is missing: the number of keys (see heed plan --help)"},
      {{"--ranks", "0"}, "--ranks is '0'" + sizes},
      {{"--heads", "x"}, "--heads is 'x'" + sizes},
      {{"--length", "0"}, "--length is '0'; a whole number from 1 to 1073741824 is expected"},
      {{"--ranks", "6", "--nodes", "4", "--length", "9"},
       "--nodes is '4'; a divisor of --ranks 6 is expected"},
      {{"--ranks", "6", "--length", "9", "--queries", "10"},
       "--queries is '10'; at most --length 9 is expected"},
      {{"--ranks", "6", "--length", "9", "--heads", "4", "--kv-heads", "3"},
       "--heads is '4'; a multiple of --kv-heads 3 is expected"},
      {{"--gflops", "0"}, "--gflops is '0'; a number above 0 is expected"},
      {{"--gbytes-per-s", "-1"}, "--gbytes-per-s is '-1'; a number above 0 is expected"},
      {{"--node-gbytes-per-s", "0"}, "--node-gbytes-per-s is '0'; a number above 0 is expected"},
      {{"--latency", "-1"}, "--latency is '-1'; a number of at least 0 is expected"},
      {{"--latency", "soon"}, "--latency is 'soon'; a finite number is expected"},
      {{"--layout", "ring"}, "--layout is 'ring'; contiguous, zigzag or striped is expected"},
      {{"--dtype", "f64"}, "--dtype is 'f64'; f32, bf16 or f16 is expected"},
      {{"--results", "all"}, "--results is 'all'; rows, weights or sums is expected"},
      {{"--window", "3"}, "--window is '3'; LEFT,RIGHT (whole numbers; -1 is unbounded) is expected"},
      {{"--ranks", "6", "--length", "9", "--gflops", "1", "--batch", "65536"},
       "batch * kv_heads is 524288; at most 65536 is expected"},
  };
  for (const auto& [words, message] : cases) {
    std::vector<std::string> all = words;
    all.insert(all.begin(), "plan");
    const CommandResult result = run_heed(all);
    EXPECT_EQ(result.exit_code, 2) << message;
    EXPECT_EQ(result.errors, "heed: " + message + "\n");
    EXPECT_EQ(result.output, "");
  }
}

}  // namespace
