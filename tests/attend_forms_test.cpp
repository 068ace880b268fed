// heed attend --differential and --grid: the files that it writes equal the library's results.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "attend_support.hpp"
#include "heed/attention/backward.hpp"
#include "heed/attention/differential.hpp"
#include "heed/attention/gate.hpp"
#include "heed/inspect/grid.hpp"

namespace {

using heed::AttentionOptions;
using heed::DifferentialResult;
using heed::Dims;
using heed::DType;
using heed::Need;
using heed::Tensor;
using heed::TensorView;
using heed::test::Attend;
using heed::test::random_tensor;
using heed::test::same;
using heed::test::Words;

// Four heads of the fixture's query are the halves of two; both halves read the two key heads.
class AttendForms : public Attend {
 protected:
  // Both halves of each head, one after the other.
  static Tensor halves(const TensorView& first, const TensorView& second) {
    Dims shape = first.shape(), one = first.shape();
    shape[1] *= 2;
    one[1] = 1;
    Tensor both(shape, first.dtype());
    for (std::int64_t h = 0; h < first.size(1); ++h) {
      heed::copy(first.narrow(1, h, 1), both.mutable_view().narrow(1, 2 * h, 1));
      heed::copy(second.narrow(1, h, 1), both.mutable_view().narrow(1, 2 * h + 1, 1));
    }
    return both;
  }
};

TEST_F(AttendForms, ADifferentialCallHasSignedResultsAndThoseOfItsHalves) {
  const Words call = {
      "--differential", "0.75",  "--causal", "--out",     "o.npy", "--weights",   "w.npy",       "--entropy",
      "e.npy",          "--lse", "l.npy",    "--top-k",   "2",     "--top-k-out", "i.npy,p.npy", "--received",
      "r.npy",          "--map", "2x3",      "--map-out", "m.npy", "--repeat",    "2",           "--json"};
  EXPECT_EQ(run(call).exit_code, 0);
  AttentionOptions options{.causal = true, .need = Need::weights | Need::entropy | Need::received};
  options.top_k = 2;
  options.map = {2, 3};
  const Tensor lambda = Tensor::from<double>({0.75, 0.75}, {2});
  const DifferentialResult want = heed::differential_attention(query, key, value, lambda, options);
  EXPECT_TRUE(same(read("o.npy"), want.output));
  EXPECT_TRUE(same(read("w.npy"), want.weights));
  EXPECT_TRUE(same(read("r.npy"), want.received));
  EXPECT_TRUE(same(read("m.npy"), want.map));
  EXPECT_TRUE(same(read("e.npy"), halves(want.first.entropy, want.second.entropy)));
  EXPECT_TRUE(same(read("l.npy"), halves(want.first.lse, want.second.lse)));
  EXPECT_TRUE(same(read("i.npy"), halves(want.first.top_k_index, want.second.top_k_index)));
  EXPECT_TRUE(same(read("p.npy"), halves(want.first.top_k_weight, want.second.top_k_weight)));
}

TEST_F(AttendForms, ADifferentialCallHasGradients) {
  const Tensor lambda = random_tensor({2, 2, 5}, 4), by_output = random_tensor({2, 2, 5, 6}, 5);
  write("lambda.npy", lambda);
  write("do.npy", by_output);
  run_well({"--differential", "lambda.npy", "--grad-output", "do.npy", "--grad-query", "dq.npy", "--grad-key",
            "dk.npy", "--grad-value", "dv.npy", "--grad-lambda", "dl.npy"});
  const DifferentialResult forward = heed::differential_attention(query, key, value, lambda);
  const auto want = heed::differential_attention_backward(query, key, value, lambda, forward, by_output);
  EXPECT_TRUE(same(read("dq.npy"), want.query));
  EXPECT_TRUE(same(read("dk.npy"), want.key));
  EXPECT_TRUE(same(read("dv.npy"), want.value));
  EXPECT_TRUE(same(read("dl.npy"), want.lambda));
}

TEST_F(AttendForms, AGateMultipliesTheOutput) {
  const Tensor gate = random_tensor({4, 5, 1}, 7), by_gated = random_tensor({2, 4, 5, 6}, 8);
  write("g.npy", gate);
  write("do.npy", by_gated);
  const Words files = {"--gate",        "g.npy",  "--out",        "o.npy",  "--lse",       "l.npy",
                       "--grad-output", "do.npy", "--grad-query", "dq.npy", "--grad-gate", "dg.npy"};
  run_well(files);
  const heed::AttentionResult forward = heed::attention(query, key, value, {.need = Need::lse});
  const Tensor by_output = heed::gated(by_gated, gate);
  const auto by = heed::attention_backward({query, key, value, forward.output, forward.lse, by_output});
  EXPECT_TRUE(same(read("o.npy"), heed::gated(forward.output, gate)));
  EXPECT_TRUE(same(read("l.npy"), forward.lse));
  EXPECT_TRUE(same(read("dq.npy"), by.query));
  const Tensor by_gate = heed::gate_gradient(gate, forward.output, by_gated);
  EXPECT_TRUE(same(read("dg.npy"), by_gate));

  // The same in [B, L, H, D].
  const auto turned = [](const TensorView& view) { return Tensor::copy_of(view.transpose(-3, -2)); };
  write("q.npy", turned(query));
  write("k.npy", turned(key));
  write("v.npy", turned(value));
  write("g.npy", turned(gate));
  write("do.npy", turned(by_gated));
  Words more = files;
  more.insert(more.end(), {"--layout", "blhd"});
  run_well(more);
  EXPECT_TRUE(same(read("o.npy"), turned(heed::gated(forward.output, gate))));
  EXPECT_TRUE(same(read("dg.npy"), turned(by_gate)));
}

TEST_F(AttendForms, AGateMultipliesADifference) {
  const Tensor gate = random_tensor({2, 2, 5, 6}, 7), by_gated = random_tensor({2, 2, 5, 6}, 8);
  const Tensor lambda = Tensor::from<double>({0.5, 0.5}, {2});
  write("g.npy", gate);
  write("do.npy", by_gated);
  run_well({"--differential", "0.5", "--gate", "g.npy", "--out", "o.npy", "--grad-output", "do.npy",
            "--grad-value", "dv.npy", "--grad-lambda", "dl.npy", "--grad-gate", "dg.npy"});
  const DifferentialResult forward = heed::differential_attention(query, key, value, lambda);
  const auto by =
      heed::differential_attention_backward(query, key, value, lambda, forward, heed::gated(by_gated, gate));
  EXPECT_TRUE(same(read("o.npy"), heed::gated(forward.output, gate)));
  EXPECT_TRUE(same(read("dv.npy"), by.value));
  EXPECT_TRUE(same(read("dl.npy"), by.lambda));
  EXPECT_TRUE(same(read("dg.npy"), heed::gate_gradient(gate, forward.output, by_gated)));
}

TEST_F(AttendForms, TokensOnAGridHaveDistancesAndMaps) {
  for (const int rank : {4, 2}) {
    Tensor tokens = random_tensor({1, 1, 8, 4}, 6);
    if (rank == 2) tokens = Tensor::copy_of(tokens.view().reshape({8, 4}));
    write("q.npy", tokens);
    write("k.npy", tokens);
    write("v.npy", tokens);
    run_well({"--window", "3,1", "--grid", "2x3", "--grid-first", "1", "--grid-distance", "g.npy",
              "--grid-map", "m.npy", "--grid-cells", "2x2"});
    const AttentionOptions options{.window = {3, 1}};
    const Tensor far = heed::grid_distance(tokens, tokens, {{2, 3}, 1}, options);
    const Tensor map = heed::grid_map(tokens, tokens, {{2, 3}, 1}, std::vector<std::int64_t>{2, 2}, options);
    const auto shape = [&](std::int64_t a, std::int64_t b) {
      return rank == 4 ? Dims{1, 1, a, b} : Dims{a, b};
    };
    EXPECT_TRUE(same(read("g.npy"), Tensor::copy_of(far.view().reshape(shape(6, 2)))));
    EXPECT_TRUE(same(read("m.npy"), Tensor::copy_of(map.view().reshape(shape(4, 4)))));
  }
}

TEST_F(AttendForms, ADifferentialCallHasAPlan) {
  const Words asked = {"--differential", "0.5", "--causal",    "--weights",   "w.npy",
                       "--top-k",        "2",   "--top-k-out", "i.npy,p.npy", "--plan"};
  const heed::test::CommandResult words = run(asked);
  EXPECT_EQ(words.exit_code, 0) << words.errors;
  EXPECT_TRUE(words.output.starts_with("forward, each of two softmaxes\n  kernel    ")) << words.output;
  Words json = asked;
  json.emplace_back("--json");
  const auto plan = nlohmann::json::parse(run(json).output);
  EXPECT_EQ(plan["passes"][0]["name"], "forward");
  // 2 entries x 4 halves x (1 + 2 + 3 + 4 + 5) visible keys x (8 + 6) multiply-adds
  EXPECT_EQ(plan["flops"], 2 * 2 * 4 * 15 * 14);
  // Rows of 4 halves: output, weights, lse, two keys as i64 and two weights; of 2 heads: output and weights.
  EXPECT_EQ(plan["result_bytes"], 2 * 5 * (4 * (4 * (6 + 7 + 1 + 2) + 8 * 2) + 2 * 4 * (6 + 7)));
  EXPECT_FALSE(std::filesystem::exists(folder / "w.npy"));
}

// The two keys of each row with the largest scores, by the formula in f64, as a mask.
Tensor chosen_keys(const Tensor& query, const Tensor& key, const Tensor& weights, std::int64_t offset) {
  Tensor mask({query.size(0), 1, query.size(2), key.size(2)}, DType::boolean);
  for (std::int64_t b = 0; b < query.size(0); ++b)
    for (std::int64_t i = 0; i < query.size(2); ++i) {
      std::vector<std::pair<double, std::int64_t>> scores;
      for (std::int64_t j = 0; j < key.size(2) && j <= i + offset; ++j) {
        double score = 0;
        for (std::int64_t h = 0; h < query.size(1); ++h) {
          double product = 0;
          for (std::int64_t d = 0; d < query.size(3); ++d)
            product += double{query.at<float>(b, h, i, d)} * double{key.at<float>(b, 0, j, d)};
          score += double{weights.at<float>(b, h, i)} * std::max(product, 0.0);
        }
        scores.emplace_back(-score, j);
      }
      std::sort(scores.begin(), scores.end());
      for (std::size_t n = 0; n < std::min<std::size_t>(2, scores.size()); ++n)
        mask.at<bool>(b, 0, i, scores[n].second) = true;
    }
  return mask;
}

TEST_F(AttendForms, AnIndexChoosesTheKeysOfEachRow) {
  const Tensor index_query = random_tensor({2, 3, 5, 4}, 10), index_key = random_tensor({2, 1, 7, 4}, 11),
               weights = random_tensor({2, 3, 5}, 12);
  write("iq.npy", index_query);
  write("ik.npy", index_key);
  write("iw.npy", weights);
  const Words index = {"--index-query", "iq.npy",      "--index-key", "ik.npy",    "--index-weights",
                       "iw.npy",        "--index-top", "2",           "--weights", "w.npy"};
  const std::vector<std::pair<Words, std::int64_t>> cases = {// and the last key that row 0 may see
                                                             {{}, 7},
                                                             {{"--causal"}, 0},
                                                             {{"--causal", "--align", "bottom-right"}, 2},
                                                             {{"--causal", "--query-offset", "1"}, 1}};
  for (const auto& [more, offset] : cases) {
    Words words = index;
    words.insert(words.end(), more.begin(), more.end());
    run_well(words);
    const Tensor mask = chosen_keys(index_query, index_key, weights, offset);
    const AttentionOptions options{.mask = mask, .need = Need::weights};
    // The lists are a mask of the same keys, so the call has the same bits.
    EXPECT_TRUE(same(read("w.npy"), heed::attention(query, key, value, options).weights)) << offset;
  }
  Words look = {"look", "--query", "q.npy", "--key", "k.npy", "--value", "v.npy", "--json"};
  look.insert(look.end(), index.begin(), index.end() - 2);
  heed::test::CommandInput here;
  here.directory = folder.path();
  const heed::test::CommandResult looked = heed::test::run_heed(look, here);
  EXPECT_EQ(looked.exit_code, 0) << looked.errors;
}

TEST_F(AttendForms, SayWhatIsWrong) {
  write("o1.npy", random_tensor({1}, 9));
  write("o2.npy", random_tensor({4, 1}, 9));
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--differential", "big", "--out", "o.npy"},
       "--differential is 'big'; a number, FILE.npy or FILE.safetensors:NAME is expected"},
      {{"--differential", "q.npy", "--out", "o.npy"},
       "lambda has dtype f32 and shape [2, 4, 5, 8]; f64 or f32 of [2] or [2, 2, 5] is expected"},
      {{"--differential", "1", "--plan", "--grad-output", "q.npy", "--grad-query", "dq.npy"},
       "--grad-output is given with --differential and --plan, which plans the forward pass alone"},
      {{"--differential", "q.npy", "--plan"},
       "lambda has dtype f32 and shape [2, 4, 5, 8]; f64 or f32 of [2] or [2, 2, 5] is expected"},
      {{"--index-query", "q.npy", "--out", "o.npy"}, "--index-query is given without --index-key TENSOR"},
      {{"--index-weights", "q.npy", "--out", "o.npy"},
       "--index-weights is given without --index-query TENSOR"},
      {{"--index-top", "2", "--out", "o.npy"}, "--index-top is given without --index-query TENSOR"},
      {{"--index-query", "q.npy", "--index-key", "q.npy", "--index-weights", "q.npy", "--out", "o.npy"},
       "--index-query has shape [2, 4, 5, 8] and --index-key [2, 4, 5, 8]; [B, H, 5, D] and [B, 1, 7, D] are "
       "expected"},
      {{"--index-query", "q.npy", "--index-key", "k.npy", "--index-weights", "q.npy", "--out", "o.npy"},
       "in the index of --index-query, weights has shape [2, 4, 5, 8]; [B, H, Lq] is expected"},
      {{"--index-query", "q.npy", "--index-key", "k.npy", "--index-weights", "q.npy", "--kv-lengths", "n.npy",
        "--out", "o.npy"},
       "--kv-lengths is given with --index-query; one of them is expected"},
      {{"--differential", "1", "--grid", "1x5", "--grid-distance", "g.npy"},
       "--grid is given with --differential; one of them is expected"},
      {{"--differential", "1", "--grad-output", "q.npy", "--grad-sinks", "s.npy", "--sinks", "q.npy"},
       "--grad-sinks is given with --differential; one of them is expected"},
      {{"--grad-lambda", "l.npy"}, "--grad-lambda is given without --differential LAMBDA"},
      {{"--differential", "1", "--grad-lambda", "l.npy"},
       "--grad-lambda is given without --grad-output TENSOR"},
      {{"--differential", "1", "--grad-lambda", "l.txt", "--grad-output", "q.npy"},
       "--grad-lambda is 'l.txt'; a file whose name ends in .npy is expected"},
      {{"--differential", "1", "--out", "o.npy", "--grad-lambda", "o.npy", "--grad-output", "q.npy"},
       "--out 'o.npy' is the file that --grad-lambda goes to; each result needs its own file"},
      {{"--gate", "v.npy", "--out", "o.npy"},
       "--gate has shape [2, 2, 7, 6]; a shape that broadcasts to [2, 4, 5, 6] is expected"},
      {{"--gate", "o2.npy", "--out", "o.npy", "--layout", "blhd"},
       "--gate has shape [4, 1]; one, three or four axes are expected with --layout blhd"},
      {{"--gate", "o1.npy", "--out", "o.npy", "--grad-output", "v.npy", "--grad-gate", "g.npy"},
       "--grad-output has shape [2, 2, 7, 6]; [2, 4, 5, 6] is expected"},
      {{"--gate", "v.npy", "--lse", "l.npy"},
       "--gate is given without --out FILE, --grad-output TENSOR or --plan"},
      {{"--grad-gate", "g.npy"}, "--grad-gate is given without --gate TENSOR"},
      {{"--gate", "v.npy", "--grad-gate", "g.npy"}, "--grad-gate is given without --grad-output TENSOR"},
      {{"--gate", "v.npy", "--out", "v.npy"},
       "--out 'v.npy' is the file that --value is read from; an input is never overwritten"},
      {{"--grid", "5xa", "--grid-distance", "g.npy"},
       "--grid is '5xa'; a list of sizes, such as 24x32 or 8x24x32, is expected"},
      {{"--grid", "5"}, "--grid is given without --grid-distance FILE.npy or --grid-map FILE.npy"},
      {{"--grid-distance", "g.npy"}, "--grid-distance is given without --grid SIZES"},
      {{"--grid-first", "1", "--out", "o.npy"}, "--grid-first is given without --grid SIZES"},
      {{"--grid", "5", "--grid-map", "g.npy"}, "--grid-map is given without --grid-cells SIZES"},
      {{"--grid-cells", "5", "--out", "o.npy"}, "--grid-cells is given without --grid-map FILE.npy"},
      {{"--grid", "2x3", "--grid-distance", "g.npy"},
       "the grid has 6 tokens from 0 on, but query has 5 rows"},
  };
  for (const auto& [words, message] : cases) expect_error(2, words, message);
}

}  // namespace
