// heed/inspect/document.hpp: saving a report to a file, queries on it, and its check.
#include "heed/inspect/document.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "heed/io/tensors.hpp"
#include "heed/random.hpp"
#include "io_support.hpp"
#include "support.hpp"

namespace {

using heed::AttendedRow;
using heed::AttentionResult;
using heed::Document;
using heed::DocumentCheck;
using heed::DType;
using heed::Generator;
using heed::Need;
using heed::Tensor;
using heed::test::message_of;
using heed::test::TemporaryFolder;

constexpr std::int64_t kBatch = 2, kHeads = 3, kQueries = 9, kKeys = 11;

// An f32 call with a bias and a window, and its results.
struct Call {
  Call() {
    Generator generator(7);
    document.tensors.reserve(4);
    const auto drawn = [&](const heed::Dims& shape) -> const Tensor& {
      return document.tensors.emplace_back(randn(generator, shape));
    };
    document.query = drawn({kBatch, kHeads, kQueries, 8});
    document.key = drawn({kBatch, 1, kKeys, 8});
    document.value = drawn({kBatch, 1, kKeys, 5});
    document.options.bias = drawn({kQueries, kKeys});
    document.options.causal = true;
    document.options.align = heed::Align::bottom_right;
    document.options.window = {6, -1};
    heed::AttentionOptions options = document.options;
    options.need = Need::weights | Need::entropy | Need::received;
    result = attention(document.query, document.key, document.value, options);
    for (std::int64_t i = 0; i < kQueries; ++i) document.report.query_tokens.push_back(std::to_string(i % 4));
    for (std::int64_t j = 0; j < kKeys; ++j) document.report.key_tokens.push_back(std::to_string(j % 4));
    fill_report(document);
  }

  Document document;
  AttentionResult result;
  TemporaryFolder folder;
  std::string path = folder / "doc.safetensors";
};

// attention() computes weights in f32, a document in f64 from the f32 lse. They differ by roundings of
// numbers up to 1.
constexpr double kRounding = 4e-6;

void expect_same(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  ASSERT_EQ(a.dtype(), b.dtype());
  EXPECT_TRUE(std::equal(a.values<float>().begin(), a.values<float>().end(), b.values<float>().begin()));
}

TEST(Document, KeepsWhatTheReportSays) {
  const Call call;
  save_document(call.path, call.document);
  const Document opened = heed::open_document(call.path);
  EXPECT_TRUE(opened.has_report);
  EXPECT_FALSE(opened.has_value);
  expect_same(opened.report.lse, call.document.report.lse);
  expect_same(opened.report.entropy, call.result.entropy);
  expect_same(opened.report.received, call.result.received);
  EXPECT_EQ(opened.report.query_tokens, call.document.report.query_tokens);
  EXPECT_EQ(opened.report.options, call.document.report.options);
  ASSERT_EQ(opened.report.summaries.size(), 6u);
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_EQ(opened.report.summaries[i].name(), call.document.report.summaries[i].name());
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_EQ(opened.report.summaries[i].patterns.back().offset,
              call.document.report.summaries[i].patterns.back().offset);
}

TEST(Document, RefusesAFixedOffsetOutsideTheMatrix) {
  Call call;
  call.document.report.summaries[0].patterns.back().offset = std::numeric_limits<std::int64_t>::min();
  save_document(call.path, call.document);
  EXPECT_NE(message_of([&] {
              (void)heed::open_document(call.path);
            }).find("has a head whose fixed offset is -9223372036854775808; its size may be "),
            std::string::npos);
}

// By their texts all tokens are copies, by their ids only few.
TEST(Document, KeepsTheIdsByWhichCopiesAreTold) {
  Call call;
  heed::AttentionReport& report = call.document.report;
  report.query_tokens.assign(kQueries, "x");
  report.key_tokens.assign(kKeys, "x");
  for (std::int64_t i = 0; i < kQueries; ++i) report.query_token_ids.push_back(i % 4);
  for (std::int64_t j = 0; j < kKeys; ++j) report.key_token_ids.push_back(j % 4);
  const Tensor by_texts = report.induction;
  fill_report(call.document);
  expect_same(call.document.report.induction, by_texts);  // the texts were those ids
  save_document(call.path, call.document);
  Document opened = heed::open_document(call.path);
  EXPECT_EQ(opened.report.query_token_ids, call.document.report.query_token_ids);
  EXPECT_EQ(opened.report.key_token_ids, call.document.report.key_token_ids);
  expect_same(opened.report.induction, by_texts);
  EXPECT_TRUE(check_document(opened, kQueries).holds());
  opened.report.query_token_ids.clear();
  EXPECT_FALSE(check_document(opened, kQueries).holds());
}

TEST(Document, RefusesIdsThatAreNotOneForEachToken) {
  Call call;
  for (std::int64_t i = 0; i < kQueries; ++i) call.document.report.query_token_ids.push_back(i);
  call.document.report.key_token_ids = {1, 2, 3};
  save_document(call.path, call.document);
  EXPECT_EQ(message_of([&] { (void)heed::open_document(call.path); }),
            call.path + " has key_token_ids of dtype i64 and shape [3]; i64 [11] is expected");
}

TEST(Document, AnswersAsTheWholeMatrixDoes) {
  const Call call;
  save_document(call.path, call.document);
  const Document opened = heed::open_document(call.path);
  const heed::WeightTile tile = attention_tile(opened, {2, 5, 1, 9, 1, 2});
  for (std::int64_t i = 2; i < 5; ++i)
    for (std::int64_t j = 1; j < 9; ++j)
      EXPECT_NEAR(number_at(tile.weights, {0, 0, i - 2, j - 1}), number_at(call.result.weights, {1, 2, i, j}),
                  kRounding);
  for (const bool all : {false, true}) {
    const AttendedRow row = attended_row(opened, 1, 0, 4, 3, all);
    ASSERT_EQ(row.top.size(), 3u);
    EXPECT_EQ(row.weights.size(), all ? 11u : 0u);
    std::vector<double> weights;
    for (std::int64_t j = 0; j < kKeys; ++j) weights.push_back(number_at(call.result.weights, {1, 0, 4, j}));
    for (const AttendedRow::Key& key : row.top)
      EXPECT_NEAR(key.weight, weights[static_cast<std::size_t>(key.key)], kRounding);
    EXPECT_EQ(row.top[0].key, std::max_element(weights.begin(), weights.end()) - weights.begin());
    EXPECT_EQ(row.entropy, number_at(call.result.entropy, {1, 0, 4}));
  }
  // More keys than the document was saved with.
  EXPECT_EQ(attended_row(opened, 1, 0, 4, 7).top.size(), 7u);
}

TEST(Document, SumsTheMatrixInBins) {
  const Call call;
  save_document(call.path, call.document);
  const Document opened = heed::open_document(call.path);
  const Tensor map = attention_map(opened, {4, 3});  // computed, since the file holds another map
  ASSERT_EQ(map.shape(), (heed::Dims{kBatch, kHeads, 4, 3}));
  std::vector<double> sums(4 * 3);
  for (std::int64_t i = 0; i < kQueries; ++i)
    for (std::int64_t j = 0; j < kKeys; ++j)
      sums[static_cast<std::size_t>(i * 4 / kQueries * 3 + j * 3 / kKeys)] +=
          number_at(call.result.weights, {0, 1, i, j});
  for (std::int64_t r = 0; r < 4; ++r)
    for (std::int64_t c = 0; c < 3; ++c)
      EXPECT_NEAR(number_at(map, {0, 1, r, c}), sums[static_cast<std::size_t>(r * 3 + c)], 10 * kRounding);
  EXPECT_NEAR(number_at(attention_map(opened, {1, 1}), {1, 2, 0, 0}), kQueries, 10 * kRounding);
}

TEST(Document, CheckHoldsAndFindsAWrongNumber) {
  Call call;
  const DocumentCheck whole = check_document(call.document, kQueries);
  EXPECT_TRUE(whole.holds());
  EXPECT_TRUE(whole.output);
  EXPECT_EQ(whole.rows, kBatch * kHeads * kQueries);
  EXPECT_EQ(check_document(call.document, 2, 1).rows, kHeads * 2);
  EXPECT_EQ(check_document(call.document, 2, 1, 0).rows, 2);
  call.document.report.entropy.at<float>(1, 2, 8) += 0.01f;
  const DocumentCheck check = check_document(call.document, 3);
  EXPECT_FALSE(check.holds());
  for (const heed::CheckLine& line : check.lines)
    EXPECT_EQ(line.holds(), line.what != "entropy" && line.what != "means of the rows") << line.what;
  EXPECT_TRUE(check_document(call.document, 3, 0).holds());  // the wrong key is in another batch entry
}

// A row without keys may have its empty range anywhere. A row with keys must have its exact range.
TEST(Document, CheckTellsARowOfNoKeysFromOneOfSome) {
  const auto holds = [](std::int64_t row, std::int64_t begin, std::int64_t end) {
    Call call;
    call.document.report.key_begin.at<std::int64_t>(0, row) = begin;
    call.document.report.key_end.at<std::int64_t>(0, row) = end;
    const DocumentCheck check = check_document(call.document, kQueries);
    for (const heed::CheckLine& line : check.lines)
      EXPECT_TRUE(line.holds() || line.what == "position and keys") << line.what;
    return check.holds();
  };
  EXPECT_TRUE(holds(2, 0, 5));  // at position 4, with a window that reaches 6 back
  for (const std::int64_t begin : {0, 4, 5}) EXPECT_FALSE(holds(2, begin, begin)) << begin;
  EXPECT_FALSE(holds(2, 1, 5));
  EXPECT_FALSE(holds(2, 0, 4));
}

// A document of the last layer of models/induction, saved by a build that knew five patterns and no layers.
TEST(Document, OfAnOlderBuildOpensWithTheNamesThatItHad) {
  const Document old = heed::open_document(std::string(HEED_TEST_DATA) + "/look_document_0.1.safetensors");
  ASSERT_EQ(old.report.heads, 4);
  EXPECT_TRUE(old.report.layers.empty());
  ASSERT_EQ(old.report.query_tokens.size(), 7U);
  EXPECT_EQ(old.report.query_tokens[3], "not");
  ASSERT_EQ(old.report.summaries.size(), 4U);
  for (const heed::HeadSummary& head : old.report.summaries) EXPECT_EQ(head.name(), "induction");
  EXPECT_NEAR(old.report.summaries[1].induction, 0.88, 0.005);  // printed by that build
  const heed::AttendedRow row = heed::attended_row(old, 0, 0, 5, 1);
  EXPECT_EQ(row.top.front().key, 2);
  EXPECT_NEAR(row.top.front().weight, 0.9994, 5e-5);
  EXPECT_TRUE(heed::check_document(old).holds());
}

TEST(Document, OfAnExplanationHasNoReportYet) {
  const Call call;
  heed::io::write_safetensors(
      call.path,
      {{"query", call.document.query.select(0, 0)},
       {"key", call.document.key.select(0, 0)},
       {"value", call.document.value.select(0, 0)}},
      {{"format", "heed explain 1"},
       {"causal", "false"},
       {"scale", "0.5"},
       {"tokens", "[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\"]"},
       {"context_tokens", "[\"0\",\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\"]"}});
  Document opened = heed::open_document(call.path);
  EXPECT_FALSE(opened.has_report);
  EXPECT_TRUE(opened.has_value);
  EXPECT_EQ(opened.report.query_tokens[8], "i");
  fill_report(opened);
  EXPECT_TRUE(opened.has_report);
  const Tensor expected = attention(call.document.query.select(0, 0), call.document.key.select(0, 0),
                                    call.document.value.select(0, 0), {.scale = 0.5, .need = Need::lse})
                              .lse;
  EXPECT_EQ(number_at(opened.report.lse, {0, 2, 3}), number_at(expected, {2, 3}));
}

TEST(Document, RefusesInOneSentence) {
  const Call call;
  EXPECT_EQ(message_of([&] { (void)attended_row(call.document, 0, 3, 0, 1); }),
            "head is 3; 0 to 2 is expected");
  EXPECT_EQ(message_of([&] { (void)attended_row(call.document, 0, 0, 9, 1); }),
            "row is 9; 0 to 8 is expected");
  EXPECT_EQ(message_of([&] { (void)attended_row(call.document, 0, 0, 0, -1); }),
            "top_k is -1; 0 or more is expected");
  EXPECT_EQ(message_of([&] {
              (void)attention_map(call.document, {0, 2});
            }),
            "size is 0 x 2, of 9 queries and 11 keys; at least one bin is expected");
  EXPECT_EQ(message_of([&] { (void)check_document(call.document, 0); }), "rows is 0; 1 or more is expected");
  EXPECT_EQ(message_of([&] { (void)check_document(call.document, 1, 2); }),
            "batch is 2; -1 to 1 is expected");
  EXPECT_EQ(message_of([&] { (void)check_document(call.document, 1, 0, -2); }),
            "head is -2; -1 to " + std::to_string(kHeads - 1) + " is expected");
  Document other;
  for (const auto& use :
       {+[](Document& d) { save_document("none", d); }, +[](Document& d) { (void)check_document(d); }})
    EXPECT_EQ(message_of([&] { use(other); }), "the document has no report yet; fill_report() makes it");
  other.has_value = false;
  EXPECT_EQ(message_of([&] { fill_report(other); }), "the document has no values, so no report can be made");
  save_document(call.path, call.document);
  heed::io::TensorFile file = heed::io::read_safetensors(call.path);
  const std::vector<std::pair<std::string, heed::TensorView>> tensors(file.tensors.begin(),
                                                                      file.tensors.end());
  file.metadata.erase("tokens");
  heed::io::write_safetensors(call.path, tensors, file.metadata);
  EXPECT_EQ(message_of([&] { (void)heed::open_document(call.path); }),
            call.path + " has induction scores without tokens");
  heed::io::write_safetensors(call.path, {{"query", call.document.query}});
  EXPECT_EQ(message_of([&] { (void)heed::open_document(call.path); }),
            call.path +
                " is not a document of heed look or heed explain: the format in its metadata is not 'heed "
                "look 1' or "
                "'heed explain 1'");
}

}  // namespace
