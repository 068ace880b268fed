// The heads of several layers on one axis: a model's layers as one call, and reports of several layers
// merged.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "heed/error.hpp"
#include "heed/inspect/document.hpp"
#include "heed/inspect/reports.hpp"
#include "heed/io/tensors.hpp"
#include "heed/model/look.hpp"
#include "heed/random.hpp"
#include "io_support.hpp"
#include "support.hpp"

namespace heed::test {
namespace {

using Layers = std::vector<std::pair<std::string, AttentionReport>>;

AttentionReport report_of(std::uint64_t seed, std::int64_t heads, const AttentionOptions& options = {},
                          std::int64_t batch = 2) {
  Generator generator(seed);
  const Tensor query = randn(generator, {batch, heads, 6, 8});
  const Tensor key = randn(generator, {batch, 1, 6, 8});
  const Tensor value = randn(generator, {batch, 1, 6, 8});
  ReportOptions wanted;
  wanted.top_k = 2;
  wanted.full_weights_cells = 100;
  wanted.query_tokens = wanted.key_tokens = {"a", "b", "c", "a", "b", "c"};
  return make_report(query, key, value, options, wanted);
}

TEST(Layers, JoinedReportsHaveTheNumbersOfEachUnderItsHeads) {
  const Layers layers = {{"0", report_of(1, 2, {.causal = true})}, {"1", report_of(2, 3, {.causal = true})}};
  const AttentionReport whole = join_layers(layers);
  ASSERT_EQ(whole.heads, 5);
  ASSERT_EQ(whole.summaries.size(), 10U);
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t h = 0; h < 5; ++h) {
      const auto& [name, part] = layers[h < 2 ? 0 : 1];
      const std::int64_t own = h < 2 ? h : h - 2;
      EXPECT_EQ(place_of(whole, h).layer, h < 2 ? 0 : 1);
      EXPECT_EQ(place_of(whole, h).head, own);
      const HeadSummary& summary = whole.summaries[static_cast<std::size_t>(5 * b + h)];
      EXPECT_EQ(summary.batch, b);
      EXPECT_EQ(summary.head, h);
      EXPECT_EQ(summary.entropy, part.summaries[static_cast<std::size_t>(part.heads * b + own)].entropy);
      for (std::int64_t i = 0; i < 6; ++i) {
        EXPECT_EQ(number_at(whole.lse, {b, h, i}), number_at(part.lse, {b, own, i}));
        EXPECT_EQ(number_at(whole.induction, {b, h, i}) > 0, number_at(part.induction, {b, own, i}) > 0);
        EXPECT_EQ(number_at(whole.received, {b, h, i}), number_at(part.received, {b, own, i}));
        EXPECT_EQ(number_at(whole.weights.weights, {b, h, i, 0}),
                  number_at(part.weights.weights, {b, own, i, 0}));
        EXPECT_EQ(number_at(whole.map.front(), {b, h, i, 1}), number_at(part.map.front(), {b, own, i, 1}));
        EXPECT_EQ(whole.top_k_index.at<std::int64_t>(b, h, i, 1),
                  part.top_k_index.at<std::int64_t>(b, own, i, 1));
      }
    }
  EXPECT_EQ(name_of_head(whole, 3), "layer 1, head 1");
  EXPECT_EQ(name_of_head(layers[0].second, 1), "head 1");
}

TEST(Layers, WhatDiffersIsSaidAndPlacesHoldTheKeysOfAll) {
  const AttentionReport whole =
      join_layers({{"encoder 0", report_of(1, 1, {.causal = true})},
                   {"encoder 1", report_of(2, 1, {.causal = true, .window = {.left = 1, .right = 0}})}});
  EXPECT_EQ(name_of_head(whole, 1), "encoder 1, head 0");
  bool said = false;
  for (const auto& [name, value] : whole.options) {
    if (name == "causal") {
      EXPECT_EQ(value, "true");
    }
    if (name == "window") said = value == "differs by layer";
  }
  EXPECT_TRUE(said);
  EXPECT_EQ(whole.key_begin.at<std::int64_t>(0, 5), 0);
  EXPECT_EQ(whole.key_end.at<std::int64_t>(0, 5), 6);
}

TEST(Layers, ReportsThatDoNotFitAreRefused) {
  EXPECT_EQ(message_of([] { (void)join_layers({}); }), "layers is empty; at least one report is expected");
  EXPECT_EQ(message_of([] {
              (void)join_layers({{"0", report_of(1, 1)}, {"1", report_of(1, 1, {}, 1)}});
            }),
            "layer '1' has 1 batch entries; 2 are expected, as layer '0' has");
  AttentionReport other = report_of(2, 1);
  other.key_tokens[0] = "x";
  EXPECT_EQ(message_of([&] {
              (void)join_layers({{"0", report_of(1, 1)}, {"1", other}});
            }),
            "layer '1' has other tokens than layer '0'");
}

TEST(Layers, AModelsLayersAsOneCallAreThoseOfEachAlone) {
  const Model model = load_model(std::string(HEED_SOURCE_DIR) + "/models/induction");
  const ModelTokens text = model.tokenize("to be or not to be or");
  Document whole = document_of_text(model, text);
  fill_report(whole);
  ASSERT_EQ(whole.report.layers.size(), 2U);
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    Document one = document_of_text(model, text, {.layer = layer});
    fill_report(one);
    for (std::int64_t h = 0; h < 4; ++h)
      for (std::int64_t i = 0; i < 7; ++i) {
        EXPECT_EQ(number_at(whole.report.lse, {0, 4 * layer + h, i}), number_at(one.report.lse, {0, h, i}));
        EXPECT_EQ(number_at(whole.report.entropy, {0, 4 * layer + h, i}),
                  number_at(one.report.entropy, {0, h, i}));
      }
  }
}

TEST(Layers, ASavedDocumentKeepsThem) {
  const Model model = load_model(std::string(HEED_SOURCE_DIR) + "/models/induction");
  Document document = document_of_text(model, model.tokenize("to be or not to be or"));
  fill_report(document);
  const TemporaryFolder folder;
  const std::string path = folder / "doc.safetensors";
  save_document(path, document);
  const Document opened = open_document(path);
  ASSERT_EQ(opened.report.layers.size(), 2U);
  EXPECT_EQ(opened.report.layers[1].name, "1");
  EXPECT_EQ(opened.report.layers[1].heads, 4);
  EXPECT_EQ(name_of_head(opened.report, 6), "layer 1, head 2");

  document.report.layers[1].heads = 5;
  save_document(path, document);
  EXPECT_EQ(message_of([&] { (void)open_document(path); }),
            path + " has layers whose heads do not add up to its 8 heads");
}

}  // namespace
}  // namespace heed::test
