// Masks in O(L) memory and score expressions on the command line: heed attend and heed look accept them, save
// them in files, and draw them.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "attend_support.hpp"
#include "heed/attention/attention.hpp"
#include "heed/inspect/document.hpp"
#include "heed/io/tensors.hpp"

namespace {

using heed::AttentionOptions;
using heed::DType;
using heed::ScoreMod;
using heed::SparseMask;
using heed::Tensor;
using heed::test::Attend;
using heed::test::CommandResult;
using heed::test::random_tensor;
using heed::test::run_heed;
using heed::test::same;
using heed::test::Words;

// q [2, 4, 5, 8], k [2, 2, 7, 8], v [2, 2, 7, 6].
class CommandMasks : public Attend {
 protected:
  CommandMasks() {
    write("rows.npy", rows_);
    write("columns.npy", columns_);
    write("lists.npy", lists_);
    write("slices.npy", slices_);
    write("blocks.npy", blocks_);
    write("doc.npy", document_);
  }
  [[nodiscard]] CommandResult look(Words words) const {
    words.insert(words.begin(), "look");
    heed::test::CommandInput input;
    input.directory = folder.path();
    return run_heed(words, input);
  }
  [[nodiscard]] std::string looked(Words words) const {
    const CommandResult result = look(std::move(words));
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result.output;
  }
  [[nodiscard]] static Words inputs(const Words& more) {
    Words words = {"--query", "q.npy", "--key", "k.npy", "--value", "v.npy"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  [[nodiscard]] std::vector<std::pair<std::string, heed::TensorView>> arrays() const {
    return {{"doc", document_}};
  }

  Tensor rows_ = Tensor::from<std::int64_t>({0, 3, 1, 4, 2, 7, 0, 0, 6, 7}, {5, 1, 2});
  Tensor columns_ = Tensor::from<std::int32_t>({0, 1, 1, 5, 2, 3, 0, 0, 4, 5, 0, 5, 3, 5}, {7, 2});
  Tensor lists_ = Tensor::from<std::int32_t>({6, 0, 2, -1, -1, 3, 5, 4, 1, 0}, {5, 2});
  Tensor slices_ = Tensor::from<std::int64_t>({0, 2, 0, 3, 1, 2, 5, 1, 7, 2}, {2, 5});
  Tensor blocks_ = Tensor::from<std::int64_t>({0, 0, 0, 2, 1, 1}, {3, 2});
  Tensor document_ = Tensor::from<std::int64_t>({0, 0, 1, 1, 1, 2, 2}, {7});
};

TEST_F(CommandMasks, EveryFormReachesTheCall) {
  const std::vector<std::pair<Words, std::function<void(AttentionOptions&)>>> cases = {
      {{"--mask-rows", "rows.npy"}, [&](auto& o) { o.sparse_mask = SparseMask::row_intervals(rows_, 7); }},
      {{"--mask-columns", "columns.npy"},
       [&](auto& o) { o.sparse_mask = SparseMask::column_intervals(columns_, 5); }},
      {{"--mask-key-lists", "lists.npy"}, [&](auto& o) { o.sparse_mask = SparseMask::key_lists(lists_, 7); }},
      {{"--mask-slices", "slices.npy"},
       [](auto& o) {
         o.sparse_mask =
             SparseMask::slices(std::vector<heed::MaskSlice>{{0, 2, 0, 3, heed::SliceKind::causal},
                                                             {2, 5, 1, 7, heed::SliceKind::inverse_causal}},
                                5, 7);
       }},
      {{"--mask-blocks", "blocks.npy", "--block-size", "3,3"},
       [](auto& o) {
         o.sparse_mask = SparseMask::blocks(Tensor::from<std::int64_t>({0, 2, 3}, {3}),
                                            Tensor::from<std::int64_t>({0, 2, 1}, {3}), 3, 3, 5, 7);
       }},
      {{"--mask-pattern", "sinks_and_window=1,2"},
       [](auto& o) { o.sparse_mask = heed::masks::sinks_and_window(1, 2, 5, 7); }},
      {{"--mask-pattern", "prefix_lm=3"}, [](auto& o) { o.sparse_mask = heed::masks::prefix_lm(3, 5, 7); }},
      {{"--mask-pattern", "sliding_window=-1,1"},
       [](auto& o) { o.sparse_mask = heed::masks::sliding_window(-1, 1, 5, 7); }},
      {{"--mask-pattern", "dilated=2,2"}, [](auto& o) { o.sparse_mask = heed::masks::dilated(2, 2, 5, 7); }},
      {{"--mask-pattern", "bigbird=2,0,1,1,9"},
       [](auto& o) { o.sparse_mask = heed::masks::bigbird(2, 0, 1, 1, 9, 5, 7); }},
      {{"--mask-expression", "doc[i] == doc[j]", "--array", "doc=doc.npy"},
       [&](auto& o) { o.sparse_mask = SparseMask::expression("doc[i] == doc[j]", 5, 7, arrays()); }},
      {{"--mask-rows", "rows.npy", "--mask-expression", "j > 1"},
       [&](auto& o) {
         o.sparse_mask = SparseMask::row_intervals(rows_, 7) & SparseMask::expression("j > 1", 5, 7);
       }},
      {{"--score-expression", "s - 0.5 * abs(i - j)"},
       [](auto& o) { o.score_mod = ScoreMod::expression("s - 0.5 * abs(i - j)"); }},
  };
  std::vector<Tensor> outputs = {attention(query, key, value).output};
  for (const auto& [words, set] : cases) {
    SCOPED_TRACE(::testing::PrintToString(words));
    Words all = words;
    all.insert(all.end(), {"--out", "o.npy"});
    run_well(all);
    AttentionOptions options;
    set(options);
    EXPECT_TRUE(same(read("o.npy"), attention(query, key, value, options).output));
    for (const Tensor& other : outputs) EXPECT_FALSE(same(read("o.npy"), other)) << "as another option gives";
    outputs.push_back(read("o.npy"));
  }
}

TEST_F(CommandMasks, HoldAGridOfAllTokens) {
  const Tensor picture = random_tensor({1, 2, 12, 8}, 5);
  write("picture.npy", picture);
  const auto output_of = [&](const char* pattern) {
    const Words words = {"attend",      "--query",        "picture.npy", "--key", "picture.npy", "--value",
                         "picture.npy", "--mask-pattern", pattern,       "--out", "o.npy"};
    heed::test::CommandInput input;
    input.directory = folder.path();
    const CommandResult result = run_heed(words, input);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return read("o.npy");
  };
  AttentionOptions options;
  options.sparse_mask = heed::masks::axial(std::vector<std::int64_t>{3, 4}, -1);
  EXPECT_TRUE(same(output_of("axial=-1,3,4"), attention(picture, picture, picture, options).output));
  options.sparse_mask = heed::masks::neighbourhood(std::vector<heed::GridAxis>{{3, 2, 1, true}, {4, 2, 2}});
  EXPECT_TRUE(
      same(output_of("neighbourhood=3,2,1,1,4,2,2,0"), attention(picture, picture, picture, options).output));
}

TEST_F(CommandMasks, WriteWhatTheyTakeAway) {
  run_well({"--mask-pattern", "prefix_lm=3", "--masked-mass", "d.npy"});
  const auto result = attention(
      query, key, value, {.sparse_mask = heed::masks::prefix_lm(3, 5, 7), .need = heed::Need::masked_mass});
  EXPECT_TRUE(same(read("d.npy"), result.masked_mass));
}

TEST_F(CommandMasks, GradientsGoThroughThem) {
  write("g.npy", random_tensor({2, 4, 5, 6}, 9));
  run_well({"--mask-rows", "rows.npy", "--grad-output", "g.npy", "--grad-key", "dk.npy"});
  run_well({"--mask-rows", "rows.npy", "--grad-output", "g.npy", "--grad-key", "ref.npy", "--kernel",
            "reference"});
  const Tensor fused = read("dk.npy"), reference = read("ref.npy");
  for (std::size_t n = 0; n < fused.values<float>().size(); ++n)
    EXPECT_NEAR(fused.values<float>()[n], reference.values<float>()[n], 1e-5);
}

TEST_F(CommandMasks, WhatIsWrongIsSaid) {
  const Words out = {"--out", "o.npy"};
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--mask-pattern", "window=3"},
       "--mask-pattern is 'window=3'; one of prefix_lm=PREFIX, documents=LENGTH,LENGTH,…, "
       "sliding_window=LEFT,RIGHT, "
       "sinks_and_window=SINKS,WINDOW, dilated=REACH,STEP, shared_question=QUESTION,ANSWER,…, "
       "bigbird=BLOCK,GLOBAL,WINDOW,RANDOM,SEED, neighbourhood=SIZE,WINDOW,DILATION,CAUSAL,…, "
       "axial=AXIS,SIZE,SIZE,… is expected"},
      {{"--mask-pattern", "dilated=2"}, "--mask-pattern is 'dilated=2'; dilated=REACH,STEP is expected"},
      {{"--mask-pattern", "dilated=2,x"},
       "--mask-pattern is 'dilated=2,x'; dilated=REACH,STEP of whole numbers is expected"},
      {{"--mask-pattern", "neighbourhood=5,3,1,2"},
       "--mask-pattern neighbourhood has 4 numbers; SIZE,WINDOW,DILATION,CAUSAL of each axis, with CAUSAL 0 "
       "or 1, is expected"},
      {{"--mask-pattern", "documents=3,3"},
       "sparse_mask has size [1, 1, 6, 6]; [2, 4, 5, 7], or 1 for the first two, or a divisor of the heads, "
       "is expected"},
      {{"--mask-expression", "j <= k"},
       "mask expression \"j <= k\": unknown name 'k' at column 6; b, h, i or j is expected"},
      {{"--array", "doc=doc.npy"}, "--array is given without --mask-expression or --score-expression TEXT"},
      {{"--array", "doc", "--mask-expression", "j > 1"}, "--array is 'doc'; NAME=TENSOR is expected"},
      {{"--block-size", "4,4"}, "--block-size is given without --mask-blocks TENSOR"},
      {{"--mask-slices", "rows.npy"},
       "--mask-slices has dtype i64 and shape [5, 1, 2]; i64 or i32 [N, 5] is expected"},
      {{"--mask-rows", "-"},
       "--mask-rows is '-'; a file is expected because standard input is reserved for other tensors"},
  };
  for (const auto& [words, message] : cases) {
    Words all = words;
    all.insert(all.end(), out.begin(), out.end());
    expect_error(2, all, message);
  }
}

TEST_F(CommandMasks, AreKeptInTheFileOfHeedLook) {
  const Words options = {
      "--mask-pattern", "sinks_and_window=1,2", "--score-expression", "s + 0.1 * (doc[j] + i)",
      "--array",        "doc=doc.npy"};
  Words save = inputs(options);
  save.insert(save.end(), {"--save", "doc.safetensors"});
  (void)looked(save);
  for (const Words& question : {Words{"--tile", "0:5,0:7", "--npy", "tile.npy"}, Words{"--check", "5"}}) {
    Words first = inputs(options), later = {"doc.safetensors"};
    first.insert(first.end(), question.begin(), question.end());
    later.insert(later.end(), question.begin(), question.end());
    (void)looked(first);
    const bool tile = question.front() == "--tile";
    const Tensor before = tile ? read("tile.npy") : Tensor();
    const std::string text = looked(later);
    if (tile) {
      EXPECT_TRUE(same(read("tile.npy"), before));
    } else {
      EXPECT_EQ(text.find("MISMATCH"), std::string::npos) << text;
    }
  }
  const heed::Document document = heed::open_document(folder / "doc.safetensors");
  EXPECT_EQ(document.options.sparse_mask.runs(0, 0, 4),
            heed::masks::sinks_and_window(1, 2, 5, 7).runs(0, 0, 4));
  EXPECT_EQ(document.options.score_mod.part()->text(), "s + 0.1 * (doc[j] + i)");
}

TEST_F(CommandMasks, AreDrawnApartFromTheWeights) {
  const std::string text = looked(inputs({"--mask-pattern", "prefix_lm=2", "--draw-mask"}));
  // The rows see 2, 2, 3, 4 and 5 of 7 keys.
  EXPECT_NE(text.find("45.7 % of the square allowed, 100 % in tiles of 64 x 64 that are computed"),
            std::string::npos)
      << text;
  const auto object =
      nlohmann::json::parse(looked(inputs({"--mask-pattern", "prefix_lm=2", "--draw-mask", "--json"})));
  const auto& mask = object["masks"][0];
  EXPECT_NEAR(mask["allowed_share"].get<double>(), 16.0 / 35, 1e-12);
  EXPECT_EQ(mask["tile_share"].get<double>(), 1);
  EXPECT_EQ(mask["allowed"], (nlohmann::json{{1, 1, 0, 0, 0, 0, 0},
                                             {1, 1, 0, 0, 0, 0, 0},
                                             {1, 1, 1, 0, 0, 0, 0},
                                             {1, 1, 1, 1, 0, 0, 0},
                                             {1, 1, 1, 1, 1, 0, 0}}));
}

TEST_F(CommandMasks, OfFewTilesAreCountedByThem) {
  const Tensor x = random_tensor({1, 1, 256, 8}, 3);
  write("x.npy", x);
  const auto object =
      nlohmann::json::parse(looked({"--query", "x.npy", "--key", "x.npy", "--value", "x.npy", "--json",
                                    "--mask-pattern", "documents=64,64,128", "--draw-mask"}));
  const auto& mask = object["masks"][0];
  EXPECT_EQ(mask["allowed_share"].get<double>(), 0.375);
  EXPECT_EQ(mask["tile_share"].get<double>(), 0.375);
  EXPECT_EQ(mask["allowed"][0].size(), 64U);
}

// Reads the files that heed.transformers.capture(to=…) writes.
TEST_F(CommandMasks, AFolderOfCapturedCallsIsRead) {
  std::filesystem::create_directory(folder / "run.heed");
  const Tensor entropy = Tensor::from<float>({1, 2, 3, 5}, {1, 2, 2}), lse = Tensor({1, 2, 2});
  for (const std::string layer : {"0", "1"})
    heed::io::write_safetensors(folder / ("run.heed/000" + layer + "-layer-0" + layer + ".safetensors"),
                                {{"entropy", entropy}, {"lse", lse}},
                                {{"format", "heed-run-1"},
                                 {"layer", layer},
                                 {"module", "\"LlamaAttention\""},
                                 {"heads", "[3, 7]"},
                                 {"rows", "null"}});
  const std::string text = looked({"run.heed"});
  EXPECT_NE(text.find("call 1, layer 1, LlamaAttention"), std::string::npos) << text;
  EXPECT_NE(text.find("head 7            0         4"), std::string::npos) << text;
  const auto object = nlohmann::json::parse(looked({"run.heed", "--layer", "0", "--json"}));
  ASSERT_EQ(object["calls"].size(), 1U);
  EXPECT_EQ(object["calls"][0]["means"]["entropy"], (nlohmann::json{1.5, 4.0}));
  EXPECT_EQ(object["calls"][0]["heads"], (nlohmann::json{3, 7}));
  for (const Words& words : {Words{}, Words{"--json"}}) {
    Words all = {"run.heed", "--layer", "7"};
    all.insert(all.end(), words.begin(), words.end());
    const CommandResult other = look(all);
    EXPECT_EQ(other.exit_code, 2);
    EXPECT_EQ(other.errors, "heed: --layer is 7; the layers are 0 to 1\n");
    EXPECT_EQ(other.output, "");
  }
  const CommandResult wrong = look({"run.heed", "--row", "1"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.errors.find("--row is given together with a folder of captured calls"), std::string::npos)
      << wrong.errors;
  std::filesystem::create_directory(folder / "empty");
  EXPECT_EQ(look({"empty"}).exit_code, 1);
  heed::io::write_text(folder / "run.heed/0002-layer-00.safetensors", "no tensors");
  EXPECT_EQ(look({"run.heed"}).exit_code, 1);
}

}  // namespace
