// heads_by_pair(): the heads that make a row attend to a key, compared with separate sums in f64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "heed/inspect/document.hpp"
#include "heed/random.hpp"
#include "io_support.hpp"
#include "support.hpp"

namespace heed::test {
namespace {

constexpr std::int64_t kBatch = 2, kHeads = 6, kLength = 40, kDim = 8, kWindow = 30;

using Places = std::vector<std::int64_t>;

class Pair : public ::testing::Test {
 protected:
  Pair() {
    Generator generator(11);
    document.tensors.reserve(2);
    document.query = document.tensors.emplace_back(randn(generator, {kBatch, kHeads, kLength, kDim}));
    document.key = document.tensors.emplace_back(randn(generator, {kBatch, 3, kLength, kDim}));
    document.value = document.key;
    document.options.causal = true;
    document.options.window = {kWindow, 0};
    fill_report(document);
  }

  // softmax(q k / sqrt(D)) over keys i - 30 to i, from the definition.
  [[nodiscard]] std::vector<double> row(std::int64_t b, std::int64_t h, std::int64_t i) const {
    std::vector<double> weights(kLength, 0);
    double sum = 0;
    for (std::int64_t j = std::max<std::int64_t>(0, i - kWindow); j <= i; ++j) {
      double dot = 0;
      for (std::int64_t d = 0; d < kDim; ++d)
        dot += static_cast<double>(document.query.at<float>(b, h, i, d)) *
               static_cast<double>(document.key.at<float>(b, h / 2, j, d));
      weights[static_cast<std::size_t>(j)] = std::exp(dot / std::sqrt(static_cast<double>(kDim)));
      sum += weights[static_cast<std::size_t>(j)];
    }
    for (double& weight : weights) weight /= sum;
    return weights;
  }

  Document document;
  TemporaryFolder folder;
};

constexpr double kRounding = 1e-6;  // of an lse in f32

TEST_F(Pair, EveryHeadIsRankedByTheHeaviestOfItsPairs) {
  const Places rows = {3, 17, 39}, keys = {2, 16, 20};
  const std::vector<PairWeight> found = heads_by_pair(document, rows, keys);
  ASSERT_EQ(found.size(), static_cast<std::size_t>(kBatch * kHeads));
  for (std::size_t n = 1; n < found.size(); ++n) EXPECT_GE(found[n - 1].weight, found[n].weight);
  std::vector<bool> seen(found.size(), false);
  for (const PairWeight& one : found) {
    double heaviest = 0;
    for (const std::int64_t i : rows)
      for (const std::int64_t j : keys)
        heaviest = std::max(heaviest, row(one.batch, one.head, i)[static_cast<std::size_t>(j)]);
    const std::vector<double> weights = row(one.batch, one.head, one.row);
    const double own = weights[static_cast<std::size_t>(one.key)];
    EXPECT_NEAR(one.weight, heaviest, kRounding);
    EXPECT_NEAR(own, heaviest, kRounding);
    EXPECT_EQ(one.rank, 1 + std::count_if(weights.begin(), weights.end(), [&](double w) { return w > own; }));
    seen[static_cast<std::size_t>(one.batch * kHeads + one.head)] = true;
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), kBatch * kHeads);
}

TEST_F(Pair, KeysThatNoRowMaySeeHaveNoRank) {
  for (const PairWeight& one : heads_by_pair(document, Places{5}, Places{6, 9})) {
    EXPECT_EQ(one.weight, 0);
    EXPECT_EQ(one.rank, 0);
  }
  for (const PairWeight& one : heads_by_pair(document, Places{39}, Places{8})) EXPECT_EQ(one.rank, 0);
}

TEST_F(Pair, ASavedDocumentAnswersTheSame) {
  save_document(folder / "doc.safetensors", document);
  const auto now = heads_by_pair(document, Places{12, 30}, Places{4});
  const auto later = heads_by_pair(open_document(folder / "doc.safetensors"), Places{12, 30}, Places{4});
  for (std::size_t n = 0; n < now.size(); ++n) {
    EXPECT_EQ(now[n].head, later[n].head);
    EXPECT_EQ(now[n].weight, later[n].weight);
    EXPECT_EQ(now[n].rank, later[n].rank);
  }
}

TEST_F(Pair, AWeightOfNaNComesBehindNumbersButIsSaid) {
  for (std::int64_t d = 0; d < kDim; ++d) document.tensors[0].mutable_view().at<float>(0, 1, 7, d) = NAN;
  fill_report(document);
  for (const PairWeight& one : heads_by_pair(document, Places{7, 8}, Places{3}))
    if (one.batch == 0 && one.head == 1) {
      EXPECT_EQ(one.row, 8);
      EXPECT_NEAR(one.weight, row(0, 1, 8)[3], kRounding);
    }
  const PairWeight last = heads_by_pair(document, Places{7}, Places{3}).back();
  EXPECT_EQ(std::pair(last.batch, last.head), (std::pair<std::int64_t, std::int64_t>(0, 1)));
  EXPECT_EQ(std::pair(last.row, last.key), (std::pair<std::int64_t, std::int64_t>(7, 3)));
  EXPECT_TRUE(std::isnan(last.weight)) << last.weight;
  EXPECT_EQ(heads_by_pair(document, Places{7}, Places{9}).back().rank, 0);  // a key that is not seen stays so
}

TEST_F(Pair, WrongPlacesAreRefused) {
  EXPECT_EQ(message_of([&] { (void)heads_by_pair(document, Places{}, Places{1}); }),
            "rows is empty; at least one is expected");
  EXPECT_EQ(message_of([&] { (void)heads_by_pair(document, Places{1}, Places{40}); }),
            "keys holds 40; 0 to 39 is expected");
  EXPECT_EQ(message_of([&] { (void)heads_by_pair(Document{}, Places{1}, Places{1}); }),
            "the document has no report; fill_report() makes one");
}

}  // namespace
}  // namespace heed::test
