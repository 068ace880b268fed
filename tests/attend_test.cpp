// heed attend: the files that it writes equal the library's results.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attend_support.hpp"
#include "command.hpp"
#include "heed/attention/attention.hpp"
#include "heed/io/kv_cache.hpp"
#include "heed/io/tensors.hpp"
#include "heed/tensor.hpp"
#include "support.hpp"

namespace {

using heed::AttentionOptions;
using heed::AttentionResult;
using heed::Dims;
using heed::DType;
using heed::Need;
using heed::Tensor;
using heed::TensorView;
using heed::test::Attend;
using heed::test::CommandInput;
using heed::test::CommandResult;
using heed::test::random_tensor;
using heed::test::run_heed;
using heed::test::same;
using heed::test::Words;

struct OptionCase {
  Words words;
  std::function<void(AttentionOptions&)> set;
};

TEST_F(Attend, SaysTheSizeOfALargeMatrixBeforehand) {
  for (const char* name : {"q.npy", "k.npy", "v.npy"}) write(name, random_tensor({1, 5200, 4}, 1));
  CommandInput input;
  input.directory = folder.path();
  const CommandResult result = run_heed(
      {"attend", "--query", "q.npy", "--key", "k.npy", "--value", "v.npy", "--weights", "w.npy"}, input);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.errors, "heed: --weights writes 108.2 MB\n");
}

TEST_F(Attend, EveryOptionReachesTheCallAndMatters) {
  Tensor mask({4, 5, 7}, DType::boolean);
  for (std::size_t i = 0; i < mask.values<bool>().size(); ++i) mask.values<bool>()[i] = i % 3 != 0;
  const Tensor bias = random_tensor({5, 7}, 4);
  const Tensor slopes = Tensor::from<float>({0.5f, 0.25f, 0.125f, 0.0625f}, {4});
  const Tensor decay = random_tensor({2, 4, 7}, 8);
  const Tensor sinks = Tensor::from<float>({0, 1, 2, 3}, {4});
  const Tensor lengths = Tensor::from<std::int64_t>({3, 6}, {2});
  for (const auto& [name, tensor] : std::vector<std::pair<std::string, TensorView>>{{"mask.npy", mask},
                                                                                    {"bias.npy", bias},
                                                                                    {"slopes.npy", slopes},
                                                                                    {"decay.npy", decay},
                                                                                    {"sinks.npy", sinks},
                                                                                    {"n.npy", lengths}}) {
    write(name, tensor);
  }
  const std::vector<OptionCase> cases = {
      {{"--scale", "0.75"}, [](auto& o) { o.scale = 0.75; }},
      {{"--scale=-1e-1"}, [](auto& o) { o.scale = -0.1; }},
      {{"--causal"}, [](auto& o) { o.causal = true; }},
      {{"--causal", "--align", "bottom-right"},
       [](auto& o) { o.causal = true, o.align = heed::Align::bottom_right; }},
      {{"--causal", "--query-offset", "-1"}, [](auto& o) { o.causal = true, o.query_offset = -1; }},
      {{"--causal", "--query-offset", "+3", "--align", "bottom-right"},
       [](auto& o) { o.causal = true, o.query_offset = 3; }},
      {{"--window", "1,2"},
       [](auto& o) {
         o.window = {1, 2};
       }},
      {{"--window", "-1,1"},
       [](auto& o) {
         o.window = {-1, 1};
       }},
      {{"--window=2,-1"},
       [](auto& o) {
         o.window = {2, -1};
       }},
      {{"--mask", "mask.npy"}, [&](auto& o) { o.mask = mask; }},
      {{"--bias", "bias.npy"}, [&](auto& o) { o.bias = bias; }},
      {{"--softcap", "0.5"}, [](auto& o) { o.softcap = 0.5; }},
      {{"--alibi-slopes", "slopes.npy"}, [&](auto& o) { o.alibi_slopes = slopes; }},
      {{"--decay", "decay.npy"}, [&](auto& o) { o.decay = decay; }},
      {{"--sinks", "sinks.npy"}, [&](auto& o) { o.sinks = sinks; }},
      {{"--kv-lengths", "n.npy"}, [&](auto& o) { o.kv_lengths = lengths; }},
      {{"--dropout", "0.3"}, [](auto& o) { o.dropout.probability = 0.3; }},
      {{"--dropout", "0.3", "--dropout-seed", "18446744073709551615"},
       [](auto& o) { o.dropout.probability = 0.3, o.dropout.seed = ~std::uint64_t{0}; }},
      {{"--dropout", "0.3", "--dropout-seed", "5"},
       [](auto& o) { o.dropout.probability = 0.3, o.dropout.seed = 5; }},
  };
  const Tensor plain = attention(query, key, value).output;
  std::vector<Tensor> outputs = {plain};
  for (const OptionCase& one : cases) {
    SCOPED_TRACE(::testing::PrintToString(one.words));
    Words words = one.words;
    words.insert(words.end(), {"--out", "o.npy"});
    run_well(words);
    AttentionOptions options;
    one.set(options);
    EXPECT_TRUE(same(read("o.npy"), attention(query, key, value, options).output));
    for (const Tensor& other : outputs) EXPECT_FALSE(same(read("o.npy"), other)) << "as another option gives";
    outputs.push_back(read("o.npy"));
  }
  run_well({"--align", "top-left", "--window", "-1,-1", "--softcap", "0", "--dropout", "0", "--kernel",
            "auto", "--out", "o.npy"});
}

TEST_F(Attend, PackedSequencesSeeTheirOwnKeysOnly) {
  const Tensor q = random_tensor({4, 5, 8}, 1);
  write("q.npy", q);
  write("k.npy", key.view().select(0, 0));
  write("v.npy", value.view().select(0, 0));
  write("qs.npy", Tensor::from<std::int64_t>({0, 2, 5}, {3}));
  write("ks.npy", Tensor::from<std::int32_t>({0, 3, 7}, {3}));
  run_well({"--query-segments", "qs.npy", "--key-segments", "ks.npy", "--causal", "--out", "o.npy"});
  const Tensor q_offsets = read("qs.npy");
  const Tensor k_offsets = read("ks.npy");
  AttentionOptions options;
  options.causal = true;
  options.query_segments = q_offsets;
  options.key_segments = k_offsets;
  EXPECT_TRUE(
      same(read("o.npy"), attention(q, key.view().select(0, 0), value.view().select(0, 0), options).output));
}

struct FileCase {
  std::string name;
  Tensor AttentionResult::*tensor;
  Dims shape;
};

TEST_F(Attend, EveryResultHasAFile) {
  run_well({"--causal",
            "--out",
            "out.npy",
            "--weights",
            "weights.npy",
            "--scores",
            "scores.npy",
            "--lse",
            "lse.npy",
            "--max-score",
            "max.npy",
            "--entropy",
            "entropy.npy",
            "--distance",
            "distance.npy",
            "--top-k",
            "3",
            "--top-k-out",
            "index.npy,weight.npy",
            "--received",
            "received.npy",
            "--received-last",
            "2",
            "--received-last-out",
            "last.npy",
            "--map",
            "2x3",
            "--map-out",
            "map.npy"});
  AttentionOptions options;
  options.causal = true;
  options.need = Need::weights | Need::scores | Need::lse | Need::max_score | Need::entropy | Need::distance |
                 Need::received;
  options.top_k = 3;
  options.received_last = 2;
  options.map = {2, 3};
  const AttentionResult expected = attention(query, key, value, options);
  const std::vector<FileCase> cases = {{"out.npy", &AttentionResult::output, {2, 4, 5, 6}},
                                       {"weights.npy", &AttentionResult::weights, {2, 4, 5, 7}},
                                       {"scores.npy", &AttentionResult::scores, {2, 4, 5, 7}},
                                       {"lse.npy", &AttentionResult::lse, {2, 4, 5}},
                                       {"max.npy", &AttentionResult::max_score, {2, 4, 5}},
                                       {"entropy.npy", &AttentionResult::entropy, {2, 4, 5}},
                                       {"distance.npy", &AttentionResult::distance, {2, 4, 5}},
                                       {"index.npy", &AttentionResult::top_k_index, {2, 4, 5, 3}},
                                       {"weight.npy", &AttentionResult::top_k_weight, {2, 4, 5, 3}},
                                       {"received.npy", &AttentionResult::received, {2, 4, 7}},
                                       {"last.npy", &AttentionResult::received_last, {2, 4, 7}},
                                       {"map.npy", &AttentionResult::map, {2, 4, 2, 3}}};
  for (const FileCase& one : cases) {
    SCOPED_TRACE(one.name);
    EXPECT_EQ(to_string(read(one.name).shape()), to_string(one.shape));
    EXPECT_TRUE(same(read(one.name), expected.*one.tensor));
  }
  EXPECT_EQ(read("index.npy").dtype(), DType::i64);
  EXPECT_EQ(folder.names().size(), 3 + cases.size()) << "no other file";
}

TEST_F(Attend, ReceivedLastRestrictsReceivedWhereItHasNoFileOfItsOwn) {
  run_well({"--received", "last.npy", "--received-last", "2"});
  AttentionOptions options;
  options.received_last = 2;
  EXPECT_TRUE(same(read("last.npy"), attention(query, key, value, options).received_last));
  run_well({"--received-last-out", "again.npy", "--received-last", "2"});
  EXPECT_TRUE(same(read("again.npy"), read("last.npy")));
}

TEST_F(Attend, ScoresAreThoseOfTheStageAskedFor) {
  AttentionOptions options;
  options.softcap = 0.5;
  options.causal = true;
  options.need = Need::scores;
  const std::vector<std::pair<std::string, heed::ScoresStage>> stages = {
      {"raw", heed::ScoresStage::raw},
      {"softcap", heed::ScoresStage::softcap},
      {"bias", heed::ScoresStage::bias}};
  for (const auto& [name, stage] : stages) {
    SCOPED_TRACE(name);
    run_well({"--softcap", "0.5", "--causal", "--scores", "s.npy", "--scores-stage", name});
    options.scores_stage = stage;
    EXPECT_TRUE(same(read("s.npy"), attention(query, key, value, options).scores));
  }
  EXPECT_EQ(read("s.npy").at<float>(0, 0, 0, 1), -INFINITY);
}

TEST_F(Attend, LayoutSaysHowTheFilesLie) {
  const Tensor expected = attention(query, key, value).output;
  write("q.npy", query.view().transpose(1, 2));
  write("k.npy", key.view().transpose(1, 2));
  write("v.npy", value.view().transpose(1, 2));
  run_well({"--layout", "blhd", "--out", "o.npy", "--lse", "lse.npy"});
  EXPECT_TRUE(same(read("o.npy"), Tensor::copy_of(expected.view().transpose(1, 2))));
  EXPECT_EQ(read("lse.npy").shape(), (Dims{2, 4, 5})) << "per-row results stay [B, H, Lq]";

  // Rank 3: [L, H, D].
  write("q.npy", query.view().select(0, 1).transpose(0, 1));
  write("k.npy", key.view().select(0, 1).transpose(0, 1));
  write("v.npy", value.view().select(0, 1).transpose(0, 1));
  run_well({"--layout", "blhd", "--out", "o.npy"});
  EXPECT_TRUE(same(read("o.npy"), Tensor::copy_of(expected.view().select(0, 1).transpose(0, 1))));
}

TEST_F(Attend, InputsOfFewerAxesGiveResultsWithoutThem) {
  const Tensor expected = attention(query, key, value).output;
  write("q.npy", query.view().select(0, 0));
  write("k.npy", key.view().select(0, 0));
  write("v.npy", value.view().select(0, 0));
  run_well({"--out", "o.npy", "--lse", "lse.npy"});
  EXPECT_TRUE(same(read("o.npy"), Tensor::copy_of(expected.view().select(0, 0))));
  EXPECT_EQ(read("lse.npy").shape(), (Dims{4, 5}));
  for (const std::string layout : {"bhld", "blhd"}) {
    write("q.npy", query.view().select(0, 0).select(0, 3));
    write("k.npy", key.view().select(0, 0).select(0, 1));
    write("v.npy", value.view().select(0, 0).select(0, 1));
    run_well({"--out", "o.npy", "--lse", "lse.npy", "--layout", layout});
    EXPECT_TRUE(same(read("o.npy"), Tensor::copy_of(expected.view().select(0, 0).select(0, 3))));
    EXPECT_EQ(read("lse.npy").shape(), (Dims{5}));
  }
}

TEST_F(Attend, DTypeConvertsTheInputsFirst) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    SCOPED_TRACE(name_of(dtype));
    run_well({"--dtype", std::string(name_of(dtype)), "--out", "o.npy", "--lse", "lse.npy"});
    AttentionOptions options;
    options.need = Need::lse;
    const AttentionResult expected = attention(Tensor::copy_of(query, dtype), Tensor::copy_of(key, dtype),
                                               Tensor::copy_of(value, dtype), options);
    const DType written = dtype == DType::bf16 ? DType::f32 : dtype;  // .npy has no name for bf16
    EXPECT_TRUE(same(read("o.npy"), Tensor::copy_of(expected.output, written)));
    EXPECT_TRUE(same(read("lse.npy"), expected.lse));
  }
}

TEST_F(Attend, ComputesInTheDTypeOfTheQuery) {
  write("q.npy", Tensor::copy_of(query, DType::f64));
  run_well({"--out", "o.npy"});
  const Tensor expected = attention(Tensor::copy_of(query, DType::f64), Tensor::copy_of(key, DType::f64),
                                    Tensor::copy_of(value, DType::f64))
                              .output;
  EXPECT_TRUE(same(read("o.npy"), expected));
  write("q.npy", Tensor::copy_of(query, DType::i32));
  run_well({"--out", "o.npy", "--dtype", "f32"});
  EXPECT_TRUE(
      same(read("o.npy"),
           attention(Tensor::copy_of(Tensor::copy_of(query, DType::i32), DType::f32), key, value).output));
}

TEST_F(Attend, AMaskMayBeBytes) {
  const Tensor bytes = Tensor::from<std::uint8_t>({1, 0, 2, 1, 1, 0, 1}, {7});
  write("mask.npy", bytes);
  run_well({"--mask", "mask.npy", "--out", "o.npy"});
  const Tensor mask = Tensor::copy_of(bytes, DType::boolean);
  AttentionOptions options;
  options.mask = mask;
  EXPECT_TRUE(same(read("o.npy"), attention(query, key, value, options).output));
}

TEST_F(Attend, ReadsATensorFromStandardInput) {
  CommandInput input;
  input.text = heed::test::read_file(folder / "q.npy");
  input.directory = folder.path();
  const CommandResult result =
      run_heed({"attend", "--query", "-", "--key", "k.npy", "--value", "v.npy", "--out", "o.npy"}, input);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_TRUE(same(read("o.npy"), attention(query, key, value).output));
}

TEST_F(Attend, ReadsATensorFromASafetensorsFile) {
  const Tensor halves = Tensor::copy_of(query, DType::bf16);
  heed::io::write_safetensors(folder / "x.safetensors", {{"layer.0:q", halves}, {"k", key}, {"v", value}});
  CommandInput input;
  input.directory = folder.path();
  const CommandResult result = run_heed({"attend", "--query", "x.safetensors:layer.0:q", "--key",
                                         "x.safetensors:k", "--value", "x.safetensors:v", "--out", "o.npy"},
                                        input);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  const Tensor expected =
      attention(halves, Tensor::copy_of(key, DType::bf16), Tensor::copy_of(value, DType::bf16)).output;
  EXPECT_TRUE(same(read("o.npy"), Tensor::copy_of(expected, DType::f32)));
}

TEST_F(Attend, PrintsOneObjectForMachines) {
  const CommandResult result =
      run({"--json", "--repeat", "3", "--threads", "2", "--dtype", "bf16", "--causal"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  const auto object = nlohmann::ordered_json::parse(result.output);
  Words keys;
  for (const auto& [name, ignored] : object.items()) keys.push_back(name);
  EXPECT_EQ(keys, (Words{"query", "key", "value", "dtype", "kernel", "isa", "threads", "recomputed_rows",
                         "seconds", "gflops"}));
  EXPECT_EQ(object["query"], (std::vector<int>{2, 4, 5, 8}));
  EXPECT_EQ(object["key"], (std::vector<int>{2, 2, 7, 8}));
  EXPECT_EQ(object["value"], (std::vector<int>{2, 2, 7, 6}));
  EXPECT_EQ(object["dtype"], "bf16");
  EXPECT_TRUE(object["kernel"] == "reference" || object["kernel"] == "fused");
  EXPECT_TRUE(object["isa"].is_string());
  EXPECT_TRUE(object["threads"] == 1 || object["threads"] == 2);
  const double seconds = object["seconds"];
  EXPECT_GT(seconds, 0);
  // 2 (D + Dv) flops for each of B H Lq Lk scores; causal attention computes half of them.
  const double flops = 2.0 * (8 + 6) * (2 * 4 * 5 * 7) / 2;
  EXPECT_NEAR(object["gflops"].get<double>(), flops / seconds / 1e9, 1e-9 * flops / seconds / 1e9)
      << "the same formula, rounded in another order";
  EXPECT_EQ(folder.names().size(), 3u) << "no file was asked for";

  const CommandResult beside = run({"--json", "--kernel", "reference", "--out", "o.npy"});
  EXPECT_EQ(nlohmann::json::parse(beside.output)["kernel"], "reference");
  EXPECT_TRUE(same(read("o.npy"), attention(query, key, value, {.kernel = heed::Kernel::reference}).output));
}

TEST_F(Attend, RepeatingChangesNoResult) {
  run_well({"--out", "once.npy", "--weights", "w1.npy"});
  EXPECT_EQ(run({"--out", "often.npy", "--weights", "w4.npy", "--repeat", "4", "--json"}).exit_code, 0);
  EXPECT_TRUE(same(read("once.npy"), read("often.npy")));
  EXPECT_TRUE(same(read("w1.npy"), read("w4.npy")));
}

bool is_benchmark(std::string_view line) { return line.starts_with("heed bench"); }

// A benchmark measures each call for half a second, or three times. One example, in JSON, does the former
// here.
bool is_long(std::string_view line) {
  return is_benchmark(line) && line.find("--repeat") == line.npos && line.find("--json") == line.npos;
}

// The lines between ```sh and ``` in docs/command.md.
// Without the benchmarks where HEED_TEST_SHARE skips calls: their ceilings take a minute under a sanitizer.
std::string examples_of_the_manual() {
  std::string script;
  bool inside = false;
  std::istringstream manual(heed::test::read_file(HEED_SOURCE_DIR "/docs/command.md"));
  for (std::string line; std::getline(manual, line);) {
    if (line.starts_with("```")) {
      inside = line == "```sh";
    } else if (inside && (heed::test::makes_all_calls() || !is_benchmark(line))) {
      script += line + (is_long(line) ? " --repeat 3\n" : "\n");
    }
  }
  return script;
}

TEST_F(Attend, TakesOldNamesOfOptionsAndTellsTheNewOnes) {
  write("slopes.npy", random_tensor({4}, 5));
  write("do.npy", random_tensor({2, 4, 5, 6}, 7));
  const CommandResult old = run({"--alibi=slopes.npy", "--grad-out", "do.npy", "--grad-key", "old.npy"});
  EXPECT_EQ(old.exit_code, 0);
  EXPECT_EQ(old.errors,
            "heed: --alibi is called --alibi-slopes now\nheed: --grad-out is called --grad-output now\n");
  run_well({"--alibi-slopes", "slopes.npy", "--grad-output", "do.npy", "--grad-key", "new.npy"});
  EXPECT_TRUE(same(read("old.npy"), read("new.npy")));
}

TEST_F(Attend, PrintsThePlanOfTheCallAndComputesNothing) {
  write("do.npy", random_tensor({2, 4, 5, 6}, 7));
  const Words asked = {"--causal", "--weights",  "w.npy",  "--grad-output",
                       "do.npy",   "--grad-key", "dk.npy", "--plan"};
  const CommandResult words = run(asked);
  EXPECT_EQ(words.exit_code, 0) << words.errors;
  EXPECT_TRUE(words.output.starts_with("forward\n  kernel    fused, ")) << words.output;
  for (const char* part : {"\nbackward\n", "  pass      forward: unit ", "  costs     ", "  returns   "})
    EXPECT_NE(words.output.find(part), std::string::npos) << part << words.output;
  EXPECT_FALSE(std::filesystem::exists(folder / "w.npy"));
  EXPECT_FALSE(std::filesystem::exists(folder / "dk.npy"));

  Words json = asked;
  json.emplace_back("--json");
  const auto plan = nlohmann::json::parse(run(json).output);
  EXPECT_EQ(plan["kernel"], "fused");
  EXPECT_EQ(plan["passes"][0]["name"], "forward");
  // 2 entries x 4 heads x (1 + 2 + 3 + 4 + 5) visible keys x (8 + 6) multiply-adds
  EXPECT_EQ(plan["flops"], 2 * 2 * 4 * 15 * 14);
  EXPECT_EQ(plan["result_bytes"], 4 * (2 * 4 * 5 * (6 + 7 + 1)));  // output, weights, lse
  EXPECT_EQ(plan["backward"]["passes"][0]["name"], "backward");
  EXPECT_EQ(plan["backward"]["result_bytes"], 4 * key.count());
}

TEST_F(Attend, TheExamplesOfTheManualRun) {
  heed::io::write_safetensors(folder / "x.safetensors", {{"k", key}, {"v", value}});
  write("bias.npy", random_tensor({5, 7}, 4));
  write("do.npy", random_tensor({2, 4, 5, 6}, 7));
  write("slopes.npy", random_tensor({4}, 5));
  write("sinks.npy", random_tensor({4}, 6));
  write("lengths.npy", Tensor::from<std::int64_t>({3, 6}, {2}));
  write("decay.npy", random_tensor({2, 4, 7}, 9));
  write("gate.npy", random_tensor({2, 4, 5, 6}, 10));
  write("iq.npy", random_tensor({2, 3, 5, 4}, 11));
  write("ik.npy", random_tensor({2, 1, 7, 4}, 12));
  write("iw.npy", random_tensor({2, 3, 5}, 13));
  heed::KvCache cache({.sequences = 2, .kv_heads = 2, .head_dim = 8, .value_dim = 6, .capacity = 7});
  cache.append(key, value);
  heed::io::write_kv_cache(folder / "cache.safetensors", cache);
  heed::test::write_file(folder / "rows.txt", "the\ncat\nsaw\nthe\ndog\n");
  heed::test::write_file(folder / "keys.txt", "a\nb\nc\nd\ne\nf\ng\n");
  const std::string script = examples_of_the_manual();
  EXPECT_NE(script.find("heed attend"), std::string::npos);
  const std::string bin = std::filesystem::path(HEED_COMMAND).parent_path();
  heed::test::write_file(folder / "examples.sh", "set -e\nPATH=" + bin + ":$PATH\n" + script);
  const std::string command = "cd " + folder.path() + " && sh examples.sh >printed 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << heed::test::read_file(folder / "printed");
  EXPECT_FALSE(same(read("all.npy"), read("last.npy")));
}

// A user at a terminal should know about 64 MB beforehand.
TEST_F(Attend, SaysOnATerminalHowMuchTheWeightsTake) {
  if (!heed::test::has_terminals()) GTEST_SKIP() << "no pseudo-terminal can be opened here";
  for (const char* name : {"q.npy", "k.npy", "v.npy"}) write(name, Tensor({1, 4000, 1}, DType::f32));
  CommandInput terminal;
  terminal.terminal_columns = 100;
  terminal.errors_on_terminal = true;
  const auto said = [&](const Words& more) { return run(more, terminal).output; };
  const std::string weights = said({"--weights", "w.npy"}), scores = said({"--scores", "s.npy"});
  EXPECT_TRUE(weights.starts_with("heed: --weights writes 64.0 MB\r\n")) << weights;
  EXPECT_TRUE(scores.starts_with("heed: --scores writes 64.0 MB\r\n")) << scores;
  const std::string both = said({"--weights", "w.npy", "--scores", "s.npy"});
  EXPECT_TRUE(both.starts_with("heed: --weights and --scores write 128.0 MB\r\n")) << both;
  EXPECT_EQ(said({"--out", "o.npy"}), "");
  EXPECT_EQ(run({"--weights", "w.npy"}).errors, "");  // no terminal
  write("k.npy", Tensor({1, 3999, 1}, DType::f32));
  write("v.npy", Tensor({1, 3999, 1}, DType::f32));
  const std::string less = said({"--weights", "w.npy"});
  EXPECT_EQ(less.find("writes"), std::string::npos) << less;
}

}  // namespace
