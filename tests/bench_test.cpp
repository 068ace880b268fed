// heed bench: its output, and its default measurements. Times are not checked.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "../cli/bench/bounds.hpp"
#include "../cli/bench/cases.hpp"
#include "../cli/text.hpp"
#include "command.hpp"
#include "heed/attention/results.hpp"
#include "heed/attention/targets.hpp"
#include "heed/parallel.hpp"
#include "support.hpp"

namespace {

using heed::DType;
using heed::ceiling::Limit;
using heed::cli::BenchCase;
using heed::cli::BenchShape;
using heed::test::CommandInput;
using heed::test::CommandResult;
using heed::test::run_heed;

// The rows of a run that must succeed. Its shapes are tiny, because sanitizers are slow.
nlohmann::json rows_of(std::vector<std::string> words) {
  words.insert(words.begin(), "bench");
  words.insert(words.end(), {"--json", "--repeat", "3"});
  const CommandResult result = run_heed(words);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.errors, "");
  EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1);
  return nlohmann::json::parse(result.output);
}

TEST(Bench, PrintsAListWithAnObjectForEachCallToMachines) {
  const auto rows = rows_of({"--shape", "2,4,2,100,90,16", "--shape", "3,200,200,8", "--threads", "1,2"});
  ASSERT_EQ(rows.size(), 4u);
  const std::vector<std::vector<int>> shapes = {
      {2, 4, 2, 100, 90, 16}, {2, 4, 2, 100, 90, 16}, {1, 3, 3, 200, 200, 8}, {1, 3, 3, 200, 200, 8}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& row = rows[i];
    EXPECT_EQ(row.at("shape"), shapes[i]);
    EXPECT_EQ(row.at("threads"), i % 2 + 1);
    EXPECT_EQ(row.at("dtype"), "f32");
    EXPECT_EQ(row.at("causal"), false);
    EXPECT_EQ(row.at("need"), nlohmann::json::array());
    EXPECT_GT(row.at("seconds"), 0.0);
    EXPECT_GT(row.at("gflops"), 0.0);
    EXPECT_GT(row.at("ceiling_gflops"), 0.0);
    EXPECT_GT(row.at("share"), 0.0);
    EXPECT_EQ(row.at("ceiling").get<std::string>().rfind("f32 ", 0), 0u) << row.at("ceiling");
  }
}

TEST(Bench, CountsEffectiveFlopsAndHalfOfThemWhereCausal) {
  const double flops = 4.0 * 2 * 4 * 300 * 300 * 16;
  for (const bool causal : {false, true}) {
    std::vector<std::string> words = {"--shape", "2,4,2,300,300,16", "--threads", "1"};
    if (causal) words.emplace_back("--causal");
    const auto row = rows_of(words).at(0);
    const double expected = flops * (causal ? 0.5 : 1) / row.at("seconds").get<double>() / 1e9;
    // Both are rounded a few times, in another order.
    EXPECT_NEAR(row.at("gflops").get<double>(), expected, 1e-9 * expected);
    EXPECT_NEAR(row.at("share").get<double>(), expected / row.at("ceiling_gflops").get<double>(), 1e-9);
    EXPECT_EQ(row.at("causal"), causal);
  }
}

// The bound of a call on a machine of 100 Gflop/s that reads 20 GB/s and writes 10. It follows by division.
heed::ceiling::Limit bound_of(const BenchCase& what) {
  auto bounds = heed::cli::bounds_of(what, "portable");
  for (auto& bound : bounds)
    bound.rate = bound.limit == Limit::memory_read ? 20e9 : bound.limit == Limit::memory_write ? 10e9 : 100e9;
  return heed::cli::tightest(bounds).limit;
}

TEST(Bench, HoldsACallToWhatTakesItLongest) {
  const BenchShape square = {1, 1, 1, 300, 300, 1};
  EXPECT_EQ(bound_of({square, DType::f32, false, {}, 1}), Limit::f32_multiply_add);
  EXPECT_EQ(bound_of({square, DType::f32, false, {"weights"}, 1}), Limit::memory_write);
  EXPECT_EQ(bound_of({square, DType::f32, false, {"lse"}, 1}), Limit::f32_multiply_add);
  EXPECT_EQ(bound_of({{1, 4, 4, 1, 60, 16}, DType::f32, false, {}, 1}), Limit::memory_read);
  // Sixty-four query heads per key head reuse each key 64 times.
  EXPECT_EQ(bound_of({{1, 64, 1, 4, 60, 16}, DType::f32, false, {}, 1}), Limit::f32_multiply_add);
}

TEST(Bench, MeasuresWhatMayBoundADecodingStepAndWrittenWeights) {
  const std::string step = rows_of({"--shape", "1,4,4,1,60,16", "--threads", "1"}).at(0).at("ceiling");
  EXPECT_TRUE(step == "memory read" || step.rfind("f32 ", 0) == 0) << step;
  const std::string weights =
      rows_of({"--shape", "1,300,300,1", "--need", "weights", "--threads", "1"}).at(0).at("ceiling");
  EXPECT_TRUE(weights == "memory write" || weights.rfind("f32 ", 0) == 0) << weights;
}

TEST(Bench, TakesADtypeAndWhatElseACallReturns) {
  const auto row = rows_of({"--shape", "2,165,165,8", "--dtype", "bf16", "--threads", "1", "--need",
                            "lse,max-score,entropy,distance,top3,received,map,weights,scores"})
                       .at(0);
  EXPECT_EQ(row.at("dtype"), "bf16");
  EXPECT_EQ(row.at("need"), nlohmann::json({"lse", "max-score", "entropy", "distance", "top3", "received",
                                            "map", "weights", "scores"}));
}

// One head a key head, so that both calls wait for memory.
TEST(Bench, ReadsRowsOnceIfValuesAreInKeys) {
  const auto rows =
      rows_of({"--cache", "f32,paged,values-in-keys", "--shape", "1,2,2,1,70,32", "--threads", "1"});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].at("cache").at("values_in_keys"), true);
  BenchCase once{{1, 2, 2, 1, 70, 32}, DType::f32, false, {}, 1};
  once.cache = heed::cli::BenchCache{heed::CacheFormat::f32, heed::CacheLayout::paged, true};
  EXPECT_EQ(heed::cli::key_value_bytes(once), 70 * 2 * 32 * 4);
  EXPECT_EQ(to_string(once.cache), "pages of 16, values in keys");
}

TEST(Bench, ReadsCachesOfEveryFormatAndLayout) {
  const bool all = heed::test::makes_all_calls();
  const auto rows = rows_of({"--cache", all ? "f32,bf16,f16,int8,int4,fp8" : "bf16,int4", "--shape",
                             "3,4,2,1,70,32", "--threads", "1", "--need", "lse,received"});
  const std::size_t expected = all ? 18 : 6;
  ASSERT_EQ(rows.size(), expected);
  std::set<std::pair<std::string, std::string>> seen;
  for (const auto& row : rows) {
    seen.emplace(row.at("cache").at("format"), row.at("cache").at("layout"));
    // A third of the 70 keys, two thirds, and all.
    const double flops = 4.0 * 4 * 32 * (23 + 46 + 70);
    EXPECT_NEAR(row.at("gflops").get<double>() * row.at("seconds").get<double>() * 1e9, flops, 1e-6 * flops);
  }
  EXPECT_EQ(seen.size(), expected);
  EXPECT_TRUE(rows_of({"--shape", "2,20,20,8", "--threads", "1"}).at(0).at("cache").is_null());
}

// Bytes of two rows of 128 elements. Groups of 32 share a scale of two bytes, and in int4 an offset.
TEST(Bench, CountsTheBytesOfACacheWithItsScales) {
  const auto bytes = [](heed::CacheFormat format) {
    BenchCase one;
    one.shape.head_dim = 128;
    one.cache = {format, heed::CacheLayout::ring};
    return heed::cli::key_value_bytes(one);
  };
  EXPECT_EQ(bytes(heed::CacheFormat::f32), 2 * 512);
  EXPECT_EQ(bytes(heed::CacheFormat::bf16), 2 * 256);
  EXPECT_EQ(bytes(heed::CacheFormat::int8), 2 * (128 + 8));
  EXPECT_EQ(bytes(heed::CacheFormat::fp8), 2 * (128 + 8));
  EXPECT_EQ(bytes(heed::CacheFormat::int4), 2 * (64 + 16));
}

TEST(Bench, MeasuresEveryTargetOfTheMachineWhereAskedTo) {
  const auto rows = rows_of({"--shape", "2,20,20,8", "--threads", "1", "--all"});
  std::vector<std::string> names;
  for (const auto& row : rows) names.push_back(row.at("isa"));
  std::vector<std::string> expected;
  for (const heed::Target& target : heed::targets())
    if (target.available && !target.name.ends_with("_emulated")) expected.push_back(target.name);
  EXPECT_EQ(names, expected);
}

TEST(Bench, PrintsATableToPeople) {
  const CommandResult result =
      run_heed({"bench", "--shape", "2,200,200,16", "--shape", "1,4,2,80,80,8", "--dtype", "f16", "--causal",
                "--need", "lse,top2", "--threads", "2", "--repeat", "2"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.errors, "") << "a progress bar is for terminals";
  const std::vector<std::string> lines = heed::cli::split(result.output, '\n');
  ASSERT_GE(lines.size(), 6u) << result.output;
  EXPECT_EQ(lines[0], "H,Lq,Lk,D     dtype causal need     target     threads   time    GFLOP/s share of");
  const auto targets = heed::targets();
  const auto target = std::ranges::find_if(targets, [](const auto& one) { return one.chosen; })->name;
  const std::string rest = target + std::string(10 - target.size(), ' ') + "       2 ";
  EXPECT_EQ(lines[1].rfind("2,200,200,16  f16   yes    lse,top2 " + rest, 0), 0u) << lines[1];
  EXPECT_EQ(lines[2].rfind("1,4,2,80,80,8 f16   yes    lse,top2 " + rest, 0), 0u) << lines[2];
  EXPECT_NE(lines[1].find("% fma"), std::string::npos) << lines[1];
  EXPECT_EQ(lines[4], "best measured ceilings:");
  EXPECT_NE(lines[5].find("GFLOP/s on 2 threads"), std::string::npos) << lines[5];
}

TEST(Bench, ShowsOnATerminalHowFarItIs) {
  if (!heed::test::has_terminals()) GTEST_SKIP() << "no pseudo-terminal can be opened here";
  CommandInput terminal;
  terminal.terminal_columns = 100;
  terminal.errors_on_terminal = true;
  const CommandResult result = run_heed(
      {"bench", "--shape", "2,200,200,16", "--shape", "2,150,150,16", "--threads", "1", "--repeat", "2"},
      terminal);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.output.find("\r0/2  2,200,200,16            [      "), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("]   0 %\r"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("\r1/2  2,150,150,16            [######"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("]  50 %\r"), std::string::npos) << result.output;
}

TEST(Bench, SaysWhatIsWrongWithAnOption) {
  const std::string shape_expected =
      "; B,H,Hkv,Lq,Lk,D or H,Lq,Lk,D (whole numbers of at least 1) is expected";
  std::string need_expected = "; ";
  for (const auto& [entry, member] : heed::kResults<int>)
    if (entry.need != heed::Need::none) need_expected += heed::cli::with_dashes(entry.name()) + ", ";
  need_expected += "topK (such as top8) or map, separated by commas, is expected";
  const std::string threads_expected =
      "; a list of whole numbers from 0 to 32767, separated by commas, is expected";
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--shape", "12,128,128"}, "--shape is '12,128,128'" + shape_expected},
      {{"--shape", "1,12,12,128,128,64,1"}, "--shape is '1,12,12,128,128,64,1'" + shape_expected},
      {{"--shape", "12,128,128,0"}, "--shape is '12,128,128,0'" + shape_expected},
      {{"--shape", "12,128,x,64"}, "--shape is '12,128,x,64'" + shape_expected},
      {{"--shape", "2,8,8,4", "--shape", ""}, "--shape is ''" + shape_expected},
      {{"--shape", "1,12,5,128,128,64"},
       "--shape is '1,12,5,128,128,64'; a number of heads H that is a multiple of Hkv is expected"},
      {{"--shape"}, "--shape needs a value"},
      {{"--cache", "int8,round"},
       "--cache is 'int8,round'; f32, bf16, f16, int8, int4, fp8, contiguous, paged, ring or values-in-keys, "
       "separated by "
       "commas, "
       "is expected"},
      {{"--cache", "--dtype", "bf16"},
       "--dtype is given together with --cache; --cache names the formats that a cache stores"},
      {{"--dtype", "f64"}, "--dtype is 'f64'; f32, bf16 or f16 is expected"},
      {{"--need", "lse,heat"}, "--need is 'lse,heat'" + need_expected},
      {{"--need", "top0"}, "--need is 'top0'" + need_expected},
      {{"--need", "top2,top3"}, "--need is 'top2,top3'; one topK is expected"},
      {{"--threads", "two"}, "--threads is 'two'" + threads_expected},
      {{"--threads", "1,-1"}, "--threads is '1,-1'" + threads_expected},
      {{"--repeat", "0"}, "--repeat is '0'; a whole number of at least 1 is expected"},
      {{"--repaet", "3"}, "--repaet is not an option of heed bench; did you mean --repeat?"},
      {{"more"}, "'more' is one argument too many (see heed bench --help)"},
  };
  for (const auto& [words, message] : cases) {
    std::vector<std::string> all = words;
    all.insert(all.begin(), "bench");
    const CommandResult result = run_heed(all);
    EXPECT_EQ(result.exit_code, 2) << message;
    EXPECT_EQ(result.errors, "heed: " + message + "\n");
    EXPECT_EQ(result.output, "");
  }
}

TEST(Bench, SaysWhenAShapeDoesNotFitInMemory) {
  for (const auto& [shape, needs] : {std::pair("1,9000000000,9000000000,9000000000", "648.0 EB"),
                                     std::pair("100000,1000000,1000000,64", "51.2 TB")}) {
    const CommandResult result = run_heed({"bench", "--shape", shape, "--json", "--repeat", "1"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_TRUE(result.errors.starts_with("heed: --shape " + std::string(shape) + " would need " + needs +
                                          ", more than half of this machine's memory ("))
        << result.errors;
    EXPECT_EQ(result.output, "");
  }
}

TEST(BenchCases, AreTheUsualOnesOnOneAndOnAllThreads) {
  const std::vector<BenchCase> cases = heed::cli::bench_cases({});
  for (const BenchCase& expected :
       {BenchCase{{1, 12, 12, 128, 128, 64}, heed::DType::f32, false, {}, 1},
        BenchCase{{1, 2, 2, 16384, 16384, 128}, heed::DType::f32, true, {}, heed::default_threads()},
        BenchCase{{1, 32, 8, 1, 8192, 128}, heed::DType::bf16, false, {}, 1},
        BenchCase{{1, 16, 16, 2048, 2048, 64}, heed::DType::f32, false, {"lse", "entropy", "top8"}, 1}})
    EXPECT_EQ(std::count(cases.begin(), cases.end(), expected), 1) << heed::cli::to_string(expected.shape);
}

TEST(BenchCases, OfCachesAreOneSequenceAndSixteenWithAndWithoutSummaries) {
  heed::cli::BenchChoice choice;
  choice.caches = heed::cli::parse_bench_caches("");
  choice.threads = {1};
  const std::vector<BenchCase> cases = heed::cli::bench_cases(choice);
  EXPECT_EQ(cases.size(), 4u * 3 * 2 * 2) << "formats, layouts, batches, needs";
  for (const BenchCase& one : cases) EXPECT_EQ(std::count(cases.begin(), cases.end(), one), 1);
}

TEST(BenchCases, FollowWhatIsSaidAndNeverRepeat) {
  heed::cli::BenchChoice choice;
  choice.dtype = heed::DType::bf16;
  choice.causal = true;
  choice.needs = heed::cli::BenchNeeds{"lse"};
  choice.threads = {3, 3};
  const std::vector<BenchCase> cases = heed::cli::bench_cases(choice);
  EXPECT_EQ(cases.size(), 6u) << "the six shapes";
  for (const BenchCase& one : cases) {
    EXPECT_EQ(one.dtype, heed::DType::bf16);
    EXPECT_TRUE(one.causal);
    EXPECT_EQ(one.needs, *choice.needs);
    EXPECT_EQ(one.threads, 3);
    EXPECT_EQ(std::count(cases.begin(), cases.end(), one), 1);
  }
}

}  // namespace
