// The rows and heads of a part of a call have the same bits as in the whole call.
#include "heed/attention/part.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "attention_support.hpp"
#include "cut_call.hpp"
#include "describe_call.hpp"
#include "fused_calls.hpp"
#include "heed/attention/attention.hpp"
#include "random_call.hpp"
#include "support.hpp"

namespace {

using heed::AttentionOptions;
using heed::AttentionOutputs;
using heed::CallPart;
using heed::PositionRange;
using heed::Tensor;
using heed::test::axes_of;
using heed::test::Box;
using heed::test::CallLimits;
using heed::test::CutCall;
using heed::test::Draw;
using heed::test::narrowed;
using heed::test::random_box;
using heed::test::RandomCall;

constexpr std::uint64_t kSeed = 20261124;

// Kernels read keys in place or packed, depending on their layout, so here the whole and its part have the
// same layout. Packed sequences with a map use one kernel for all of them, so such a call is compared without
// the map.
void compare_part(const RandomCall& original, const Box& box, bool all_rows) {
  RandomCall call = original;
  if (!all_rows && call.options.query_segments) call.options.map = {};
  const heed::AttentionResult whole = heed::attention(Tensor::copy_of(call.query), Tensor::copy_of(call.key),
                                                      Tensor::copy_of(call.value), call.options);
  CutCall cut(call, box);
  heed::AttentionResult found;
  AttentionOutputs outputs;
  for (std::size_t i = 0; i < heed::kResultCount; ++i) {
    const heed::ResultEntry& entry = heed::result_entry(i);
    if (!heed::is_asked_for(entry, call.options) || (!all_rows && !heed::has_rows(entry.shape))) continue;
    const Tensor& expected = heed::result<Tensor>(whole, i);
    heed::result<Tensor>(found, i) =
        cut.share_of(expected, heed::has_rows(entry.shape), axes_of(entry.shape));
    Tensor& mine = heed::result<Tensor>(found, i);
    mine = Tensor(mine.shape(), mine.dtype());
    heed::result(outputs, i) = mine.mutable_view();
  }
  (void)heed::attention_part_into(cut.query, cut.key, cut.value, cut.options, cut.part, outputs);
  for (std::size_t i = 0; i < heed::kResultCount; ++i) {
    const heed::ResultEntry& entry = heed::result_entry(i);
    if (heed::result(outputs, i).data() == nullptr) continue;
    const Tensor& mine = heed::result<Tensor>(found, i);
    const Tensor expected =
        cut.share_of(heed::result<Tensor>(whole, i), heed::has_rows(entry.shape), axes_of(entry.shape));
    EXPECT_TRUE(heed::test::same_bits(mine, expected)) << entry.name();
  }
}

void compare_gradients(const RandomCall& call, const Box& box, bool /*all_rows*/) {
  const Tensor query = Tensor::copy_of(call.query), key = Tensor::copy_of(call.key),
               value = Tensor::copy_of(call.value);
  AttentionOptions options = call.options;
  options.need = heed::Need::lse;
  options.top_k = options.received_last = 0;
  options.map = {};
  const heed::AttentionResult forward = heed::attention(query, key, value, options);
  const Tensor grad = heed::test::normal_tensor(forward.output.shape(), call.index, forward.output.dtype());
  const heed::AttentionBackwardInputs inputs{query, key, value, forward.output, forward.lse, grad};
  const heed::AttentionGradients whole = heed::attention_backward(inputs, options);

  CutCall cut(call, box);
  const Tensor output = cut.share_of(forward.output, true, 2), lse = cut.share_of(forward.lse, true, 1),
               cut_grad = cut.share_of(grad, true, 2);
  Tensor grad_query(cut.query.shape(), cut.query.dtype()), grad_key(cut.key.shape(), cut.key.dtype()),
      grad_value(cut.value.shape(), cut.value.dtype());
  heed::AttentionGradientViews views{grad_query.mutable_view(), grad_key.mutable_view(),
                                     grad_value.mutable_view()};
  (void)heed::attention_backward_part_into({cut.query, cut.key, cut.value, output, lse, cut_grad},
                                           cut.options, cut.part, views);
  EXPECT_TRUE(heed::test::same_bits(grad_query, cut.share_of(whole.query, true, 2))) << "query";
  const auto of_keys = [&](const Tensor& of_whole) {
    return Tensor::copy_of(
        narrowed(narrowed(of_whole.view(), 4, box.batch, box.batches), 3, box.kv_head, box.kv_heads));
  };
  EXPECT_TRUE(heed::test::same_bits(grad_key, of_keys(whole.key))) << "key";
  EXPECT_TRUE(heed::test::same_bits(grad_value, of_keys(whole.value))) << "value";
}

using Compare = void (*)(const RandomCall& call, const Box& box, bool all_rows);

void compare_parts(const CallLimits& limits, std::uint64_t count, Compare compare = compare_part) {
  for (std::uint64_t index = 0; index < heed::test::share_of(count); ++index) {
    const RandomCall call = heed::test::random_call(kSeed, index, limits);
    Draw draw(kSeed + 1, index);
    const std::int64_t batch = call.query.rank() > 3 ? call.query.size(-4) : 1;
    const std::int64_t length = call.query.size(-2);
    if (batch == 0 || length == 0) continue;
    const Box box = random_box(draw, call, compare == compare_part);
    const bool all_rows = box.rows.size() == 1 && box.rows[0].end - box.rows[0].begin == length;
    SCOPED_TRACE(heed::test::describe(call));
    compare(call, box, all_rows);
    if (testing::Test::HasFailure()) return;
  }
}

class CallParts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = heed::test::why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

TEST_F(CallParts, HaveTheBitsOfTheWholeInSmallCalls) { compare_parts(heed::test::small_calls(), 3000); }
TEST_F(CallParts, HaveTheBitsOfTheWholeByTheReference) { compare_parts({}, 1000); }
TEST_F(CallParts, HaveTheBitsOfTheWholeAcrossTiles) { compare_parts(heed::test::tile_calls(), 600); }
TEST_F(CallParts, HaveTheBitsOfTheWholeAcrossSpans) { compare_parts(heed::test::span_calls(), 150); }
TEST_F(CallParts, HaveTheBitsOfTheWholeInPackedSequences) {
  compare_parts(heed::test::document_calls(), 400);
}

// The rounding of an entropy depends on how often shifts change, which happens only in the large rows.
TEST_F(CallParts, HaveTheEntropyOfTheWholeBesideLargeRows) {
  constexpr std::int64_t kRows = 40;
  for (const heed::DType dtype : {heed::DType::f32, heed::DType::f16, heed::DType::bf16}) {
    Tensor query = heed::test::normal_tensor({kRows, 16}, 1, heed::DType::f32);
    for (std::int64_t i = 0; i < kRows * 16; ++i)
      query.values<float>()[static_cast<std::size_t>(i)] *= i / 16 % 3 == 0 ? 25.0f : 3.0f;
    query = Tensor::copy_of(query, dtype);
    const Tensor key = heed::test::normal_tensor({500, 16}, 2, dtype);
    const heed::AttentionResult whole = heed::attention(query, key, key, {.need = heed::Need::entropy});
    for (std::int64_t i = 0; i < kRows; ++i) {
      const std::vector<PositionRange> row{{i, i + 1}};
      Tensor output({1, 16}, dtype), entropy({1}, heed::DType::f32);
      AttentionOutputs outputs;
      outputs.output = output.mutable_view();  // without it, bf16 takes other kernels
      outputs.entropy = entropy.mutable_view();
      (void)heed::attention_part_into(query.view().narrow(0, i, 1), key, key, {},
                                      {.query_length = kRows, .rows = row}, outputs);
      ASSERT_TRUE(heed::test::same_bits(entropy, whole.entropy.view().narrow(0, i, 1)))
          << heed::name_of(dtype) << " " << i;
    }
  }
}

// Parts that are refused, each with its message.
TEST_F(CallParts, ThatDoNotFitAreRefused) {
  const Tensor query({2, 3, 4}, heed::DType::f32), key({1, 5, 4}, heed::DType::f32);
  Tensor output({2, 3, 4}, heed::DType::f32), received({2, 5}, heed::DType::f32);
  const auto attend = [&](const CallPart& part, const AttentionOutputs& outputs) {
    (void)heed::attention_part_into(query, key, key, {}, part, outputs);
  };
  const std::vector<PositionRange> three{{4, 6}, {7, 8}}, two{{0, 2}}, falling{{4, 6}, {5, 6}};
  AttentionOutputs outputs;
  outputs.output = output.mutable_view();
  EXPECT_NO_THROW(attend({1, 2, 9, 0, 0, three}, outputs));
  EXPECT_EQ(heed::test::message_of([&] {
              attend({1, 2, 9, 0, 0, two}, outputs);
            }),
            "part.rows are 2 rows; 3 as in query are expected");
  EXPECT_EQ(heed::test::message_of([&] {
              attend({1, 2, 9, 0, 0, falling}, outputs);
            }),
            "part.rows[1] is 5 to 6; ascending rows from 6 to 9 are expected");
  EXPECT_EQ(heed::test::message_of([&] {
              attend({1, 2, 9, 0, 2, three}, outputs);
            }),
            "part.head_begin is 2; 0 to 0 is expected for query's 2 of 2 heads");
  EXPECT_EQ(heed::test::message_of([&] {
              attend({1, 2, 9, std::numeric_limits<std::int64_t>::max(), 0, three}, outputs);
            }),
            "part.batch_begin is 9223372036854775807; 0 to 0 is expected for query's 1 of 1 batch entries");
  EXPECT_EQ(heed::test::message_of([&] {
              attend({1, 3, 9, 0, 0, three}, outputs);
            }),
            "part.heads is 3 from 0; multiples of 2, the query heads that share a key head, are expected");
  outputs.received = received.mutable_view();
  EXPECT_EQ(
      heed::test::message_of([&] {
        attend({1, 2, 9, 0, 0, three}, outputs);
      }),
      "outputs.received is given for 3 of 9 rows; all rows are expected for a result that sums over rows");
}

TEST_F(CallParts, HaveTheGradientsOfTheWhole) {
  compare_parts(heed::test::small_calls(), 1000, compare_gradients);
  compare_parts(heed::test::tile_calls(), 300, compare_gradients);
}

}  // namespace
