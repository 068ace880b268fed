// Reports of weights that were computed elsewhere.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "heed/inspect/document.hpp"
#include "heed/random.hpp"
#include "io_support.hpp"
#include "support.hpp"

namespace heed::test {
namespace {

const std::vector<std::string> kWords = {"a", "b", "a", "c", "a", "b"};

ReportOptions wanted() {
  ReportOptions options;
  options.top_k = 3;
  options.full_weights_cells = 1000;
  options.map = {3, 3};
  options.query_tokens = options.key_tokens = kWords;
  return options;
}

AttentionReport computed(const AttentionOptions& options) {
  Generator generator(5);
  const Tensor query = randn(generator, {2, 2, 6, 4}, DType::f64);
  const Tensor key = randn(generator, {2, 2, 6, 4}, DType::f64);
  return make_report(query, key, key, options, wanted());
}

void expect_near(const Tensor& found, const Tensor& expected, double tolerance) {
  ASSERT_EQ(found.shape(), expected.shape());
  const Tensor a = Tensor::copy_of(found, DType::f64);
  const Tensor b = Tensor::copy_of(expected, DType::f64);
  for (std::size_t i = 0; i < a.values<double>().size(); ++i) {
    if (std::isnan(b.values<double>()[i]))
      EXPECT_TRUE(std::isnan(a.values<double>()[i]));
    else
      EXPECT_NEAR(a.values<double>()[i], b.values<double>()[i], tolerance);
  }
}

void expect_same_report(const AttentionReport& found, const AttentionReport& expected, double tolerance) {
  for (const auto member :
       {&AttentionReport::entropy, &AttentionReport::distance, &AttentionReport::max_weight,
        &AttentionReport::first, &AttentionReport::self, &AttentionReport::previous, &AttentionReport::next,
        &AttentionReport::induction, &AttentionReport::received, &AttentionReport::top_k_weight})
    expect_near(found.*member, expected.*member, tolerance);
  expect_near(found.map.front(), expected.map.front(), tolerance);
  expect_near(found.weights.weights, expected.weights.weights, tolerance);
  for (const auto member : {&AttentionReport::top_k_index, &AttentionReport::position,
                            &AttentionReport::key_begin, &AttentionReport::key_end}) {
    ASSERT_EQ((found.*member).shape(), (expected.*member).shape());
    for (std::size_t i = 0; i < (found.*member).values<std::int64_t>().size(); ++i)
      EXPECT_EQ((found.*member).values<std::int64_t>()[i], (expected.*member).values<std::int64_t>()[i]);
  }
  ASSERT_EQ(found.summaries.size(), expected.summaries.size());
  for (std::size_t n = 0; n < found.summaries.size(); ++n) {
    EXPECT_EQ(found.summaries[n].name(), expected.summaries[n].name());
    EXPECT_EQ(found.summaries[n].most_received, expected.summaries[n].most_received);
    EXPECT_NEAR(found.summaries[n].entropy, expected.summaries[n].entropy, tolerance);
  }
}

TEST(Weights, AReportOfThemIsThatOfTheCallThatGaveThem) {
  const AttentionReport expected = computed({.causal = true});
  const Document document = document_of_weights(expected.weights.weights, {}, wanted());
  expect_same_report(document.report, expected, 1e-14);  // f64: a few roundings of numbers up to 6
  EXPECT_EQ(document.report.options.front().first, "causal");
}

TEST(Weights, SinglePrecisionAndTheFirstAxesMayLack) {
  const AttentionReport expected = computed({.causal = true});
  const Tensor one = Tensor::copy_of(expected.weights.weights.view().select(0, 1), DType::f32);
  const AttentionReport found = document_of_weights(one, {}, wanted()).report;
  ASSERT_EQ(found.batch, 1);
  ASSERT_EQ(found.lse.dtype(), DType::f32);
  for (std::int64_t i = 0; i < 6; ++i)
    EXPECT_NEAR(number_at(found.entropy, {0, 1, i}), number_at(expected.entropy, {1, 1, i}), 1e-6);
}

TEST(Weights, KeysThatAreAllowedCanBeSaid) {
  Tensor mask({6, 6}, DType::boolean);
  for (std::int64_t i = 0; i < 6; ++i)
    for (std::int64_t j = 0; j < 6; ++j) mask.at<bool>(i, j) = (i != 2) && (i + j) % 2 == 0;
  const AttentionReport expected = computed({.mask = mask.view()});
  const Document document = document_of_weights(expected.weights.weights, mask.view(), wanted());
  expect_same_report(document.report, expected, 1e-14);
  EXPECT_EQ(number_at(document.report.lse, {0, 0, 2}), -INFINITY);
}

TEST(Weights, ItsTilesAreTheWeightsAlsoWhereRowsSumToLess) {
  Tensor weights({1, 1, 2, 3}, DType::f32);
  const std::vector<float> given = {0.5F, 0, 0.25F, 0.125F, 0, 0.5F};
  std::copy(given.begin(), given.end(), weights.values<float>().begin());
  const Document document = document_of_weights(weights);
  const WeightTile tile = attention_tile(document, {0, 2, 0, 3});
  for (std::size_t i = 0; i < given.size(); ++i) EXPECT_NEAR(tile.weights.values<float>()[i], given[i], 1e-7);
  EXPECT_TRUE(tile.allowed.at<bool>(0, 0, 0, 1));  // has weight 0, but is not forbidden
  EXPECT_EQ(attended_row(document, 0, 0, 1, 1).top.front().key, 2);
}

TEST(Weights, ASavedDocumentAnswersAndHolds) {
  const AttentionReport expected = computed({});
  const TemporaryFolder folder;
  const std::string path = folder / "weights.safetensors";
  save_document(path, document_of_weights(expected.weights.weights, {}, wanted()));
  const Document opened = open_document(path);
  EXPECT_NEAR(attended_row(opened, 1, 1, 3, 6, true).weights[4],
              number_at(expected.weights.weights, {1, 1, 3, 4}), 1e-14);
  EXPECT_TRUE(check_document(opened, 6).holds());
}

TEST(Weights, WhatNoSoftmaxGivesIsRefused) {
  Tensor weights({2, 2}, DType::f64);
  weights.at<double>(0, 1) = -0.5;
  EXPECT_EQ(message_of([&] { (void)document_of_weights(weights); }),
            "weights is -0.5 at [0, 0, 0, 1]; 0 to 1, as after a softmax, is expected");
  weights.at<double>(0, 1) = weights.at<double>(0, 0) = 0.75;
  EXPECT_EQ(message_of([&] { (void)document_of_weights(weights); }),
            "weights sums to 1.5 in row [0, 0, 0]; at most 1, as after a softmax and before dropout, is "
            "expected");
  weights.at<double>(0, 1) = 0.25;
  Tensor mask({2, 2}, DType::boolean);
  EXPECT_EQ(message_of([&] { (void)document_of_weights(weights, mask.view()); }),
            "allowed forbids a key that weighs 0.75; 0 is expected where it is false");
  ReportOptions words;
  words.query_tokens = {"one"};
  EXPECT_EQ(message_of([&] { (void)document_of_weights(weights, {}, words); }),
            "query_tokens has 1 entry; 2, the length of the rows of weights, is expected");
  EXPECT_EQ(message_of([&] { (void)document_of_weights(Tensor({2}, DType::f32)); }),
            "weights has dtype f32 and shape [2]; floats [B, H, Lq, Lk], or without the first axes, are "
            "expected");
}

}  // namespace
}  // namespace heed::test
