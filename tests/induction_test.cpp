// The weight on tokens after earlier copies, with so many copies that the rows of a word are computed
// together. It is compared with the full matrix, added up weight by weight.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "attention_support.hpp"
#include "heed/inspect/reports.hpp"
#include "support.hpp"

namespace {

using heed::AttentionOptions;
using heed::DType;
using heed::Tensor;
using heed::TensorView;
using heed::test::normal_tensor;
using Words = std::vector<std::string>;

struct InductionCall {
  Tensor query, key;
  AttentionOptions options;
  Words query_words, key_words;
  // The position of row i among the keys of its segment, which begins at this key.
  std::function<std::int64_t(std::int64_t)> position = [](std::int64_t i) { return i; };
  std::function<std::int64_t(std::int64_t)> first_key = [](std::int64_t) { return 0; };
};

// Words drawn from so few that each has hundreds of copies; some follow directly on each other.
Words few_words(std::int64_t count, std::uint64_t seed, int different = 3) {
  std::mt19937_64 engine(seed);
  Words words;
  for (std::int64_t i = 0; i < count; ++i)
    words.push_back(i > 0 && engine() % 4 == 0
                        ? words.back()
                        : "w" + std::to_string(engine() % static_cast<std::uint64_t>(different)));
  return words;
}

InductionCall self_call(DType dtype = DType::f32, std::int64_t length = 400) {
  InductionCall call;
  call.query = normal_tensor({4, length, 16}, 1, dtype);
  call.key = normal_tensor({2, length, 16}, 2, dtype);
  call.options.causal = true;
  call.query_words = call.key_words = few_words(length, 3);
  return call;
}

// Numbers that are equal exactly where the words are.
std::vector<std::int64_t> ids_of(const Words& words) {
  std::vector<std::int64_t> ids;
  for (const std::string& word : words)
    ids.push_back(std::find(words.begin(), words.end(), word) - words.begin() + 1000);
  return ids;
}

// The sum over single weights of the whole matrix, in f64; NaN if there is no copy.
double expected_of(const InductionCall& call, const Tensor& weights, std::int64_t h, std::int64_t i) {
  const std::int64_t begin = call.first_key(i);
  const std::int64_t own = begin + call.position(i);
  double sum = 0;
  bool any = false;
  for (std::int64_t j = begin + 1; j < std::min(own, call.key.size(1)); ++j) {
    if (call.key_words[static_cast<std::size_t>(j - 1)] != call.query_words[static_cast<std::size_t>(i)])
      continue;
    sum += weights.at<double>(h, i, j);
    any = true;
  }
  return any ? sum : std::nan("");
}

heed::ReportOptions by_words(const InductionCall& call) {
  heed::ReportOptions wanted;
  wanted.query_tokens = call.query_words;
  wanted.key_tokens = call.key_words;
  return wanted;
}

void expect_agreement(const InductionCall& call, const heed::ReportOptions& wanted) {
  const heed::AttentionReport report =
      heed::make_report(call.query, call.key, call.key, call.options, wanted);
  AttentionOptions exact = call.options;
  exact.kernel = heed::Kernel::reference;
  exact.need = heed::Need::weights;
  const Tensor query = Tensor::copy_of(call.query, DType::f64);
  const Tensor key = Tensor::copy_of(call.key, DType::f64);
  const Tensor weights = heed::attention(query, key, key, exact).weights;
  for (std::int64_t h = 0; h < query.size(0); ++h)
    for (std::int64_t i = 0; i < query.size(1); ++i) {
      const double expected = expected_of(call, weights, h, i);
      const double got = report.induction.at<float>(0, h, i);
      // The accuracy promised for scores of ordinary size.
      ASSERT_TRUE(std::isnan(expected) ? std::isnan(got) : std::abs(got - expected) <= 1e-5 * expected)
          << "head " << h << ", row " << i << ": " << got << ", not " << expected;
    }
}

void expect_agreement(const InductionCall& call) { expect_agreement(call, by_words(call)); }

TEST(Induction, ComparesIdsWhereThereAreIds) {
  const InductionCall call = self_call();
  heed::ReportOptions wanted;
  wanted.query_token_ids = ids_of(call.query_words);
  expect_agreement(call, wanted);
  wanted.query_tokens = Words(400, "the same text");
  expect_agreement(call, wanted);
}

TEST(Induction, ComparesTextsWhereOneSideAloneHasIds) {
  InductionCall call = self_call();
  call.query = normal_tensor({4, 200, 16}, 7, DType::f32);
  call.query_words = Words(call.key_words.begin() + 200, call.key_words.end());
  call.options.align = heed::Align::bottom_right;
  call.position = [](std::int64_t i) { return i + 200; };
  heed::ReportOptions wanted = by_words(call);
  wanted.query_token_ids = std::vector<std::int64_t>(200, 7);
  expect_agreement(call, wanted);
}

TEST(Induction, RefusesIdsThatAreNotOneForEachToken) {
  const InductionCall call = self_call();
  heed::ReportOptions wanted;
  wanted.query_token_ids = {1, 2};
  const auto refusal = [&] {
    return heed::test::message_of(
        [&] { (void)heed::make_report(call.query, call.key, call.key, call.options, wanted); });
  };
  EXPECT_EQ(refusal(), "query_token_ids has 2 entries; 400, the length of query, is expected");
  std::swap(wanted.query_token_ids, wanted.key_token_ids);
  EXPECT_EQ(refusal(), "key_token_ids has 2 entries; 400, the length of key, is expected");
}

TEST(Induction, OfFewWordsIsTheSumOfSingleWeights) {
  expect_agreement(self_call());
  expect_agreement(self_call(DType::bf16));
  expect_agreement(self_call(DType::f16));
}

TEST(Induction, OfOneWordAloneIsAllThatStandsBefore) {
  InductionCall call = self_call();
  call.query_words = call.key_words = Words(400, "again");
  expect_agreement(call);
}

TEST(Induction, CountsKeysBeforeTheRowAlsoWhereItSeesLaterOnes) {
  InductionCall call = self_call();
  call.options.causal = false;
  expect_agreement(call);
}

TEST(Induction, KnowsSoftcapScaleAndSinks) {
  InductionCall call = self_call();
  const Tensor sinks = normal_tensor({4}, 5);
  call.options.softcap = 2;
  call.options.scale = 0.7;
  call.options.sinks = sinks;
  expect_agreement(call);
}

TEST(Induction, EndsWhereTheKeysOfTheEntryDo) {
  InductionCall call = self_call();
  const Tensor lengths = Tensor::from<std::int64_t>({300}, {1});
  call.options.kv_lengths = lengths;
  call.options.causal = false;
  expect_agreement(call);
}

TEST(Induction, OfRowsThatStandLaterLooksAtTheKeysBeforeThem) {
  InductionCall call = self_call();
  call.query = normal_tensor({4, 200, 16}, 7, DType::f32);
  call.query_words = Words(call.key_words.begin() + 200, call.key_words.end());
  call.options.align = heed::Align::bottom_right;
  call.position = [](std::int64_t i) { return i + 200; };
  expect_agreement(call);
}

TEST(Induction, OfRowsWithOtherWordsThanTheirKeysIsSummedOneByOne) {
  InductionCall call = self_call();
  call.query_words = few_words(400, 8);
  expect_agreement(call);
}

TEST(Induction, StaysWithinPackedSequences) {
  InductionCall call = self_call(DType::f32, 600);
  const Tensor segments = Tensor::from<std::int64_t>({0, 250, 600}, {3});
  call.options.query_segments = call.options.key_segments = segments;
  call.position = [](std::int64_t i) { return i < 250 ? i : i - 250; };
  call.first_key = [](std::int64_t i) { return i < 250 ? 0 : 250; };
  expect_agreement(call);
}

TEST(Induction, UnderAWindowOrMaskCountsWhatTheyAllow) {
  InductionCall call = self_call();
  call.options.window = {50, -1};
  expect_agreement(call);
  call = self_call();
  Tensor mask({400, 400}, DType::boolean);
  for (std::int64_t i = 0; i < 400; ++i)
    for (std::int64_t j = 0; j < 400; ++j) mask.at<bool>(i, j) = (i + j) % 3 != 0;
  call.options.mask = mask;
  expect_agreement(call);
}

// A row that attends only to itself, after its own copy. The small remaining weight must keep its precision.
TEST(Induction, KeepsItsDigitsBesideAHeavyWeight) {
  InductionCall call = self_call();
  call.query_words = call.key_words = Words(400, "again");
  call.key = normal_tensor({4, 400, 16}, 2, DType::f32);
  call.query = Tensor::copy_of(call.key);
  expect_agreement(call);
}

TEST(Induction, OfARowOfNaNIsNaN) {
  InductionCall call = self_call();
  call.query.at<float>(1, 350, 3) = std::nanf("");
  heed::ReportOptions wanted;
  wanted.query_tokens = call.query_words;
  const heed::AttentionReport report =
      heed::make_report(call.query, call.key, call.key, call.options, wanted);
  EXPECT_TRUE(std::isnan(report.induction.at<float>(0, 1, 350)));
  EXPECT_FALSE(std::isnan(report.induction.at<float>(0, 1, 349)));
  EXPECT_FALSE(std::isnan(report.induction.at<float>(0, 0, 350)));
}

}  // namespace
