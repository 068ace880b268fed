// Every way in which a call can be wrong, and the resulting message.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "heed/attention/attention.hpp"
#include "support.hpp"

namespace {

using heed::AttentionOptions;
using heed::AttentionOutputs;
using heed::Dims;
using heed::DType;
using heed::MutableTensorView;
using heed::Tensor;
using heed::TensorView;
using heed::test::message_of;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A correct call: B 2, H 4, Hkv 2, Lq 3, Lk 5, D 8, Dv 6.
struct Call {
  Tensor query{{2, 4, 3, 8}};
  Tensor key{{2, 2, 5, 8}};
  Tensor value{{2, 2, 5, 6}};
};

std::string message_of_inputs(const TensorView& query, const TensorView& key, const TensorView& value,
                              const AttentionOptions& options = {}) {
  return message_of([&] { (void)heed::attention(query, key, value, options); });
}

std::string message_of_options(const AttentionOptions& options) {
  const Call call;
  return message_of_inputs(call.query, call.key, call.value, options);
}

std::string message_of_outputs(const AttentionOutputs& outputs, const AttentionOptions& options = {}) {
  const Call call;
  return message_of([&] { (void)heed::attention_into(call.query, call.key, call.value, options, outputs); });
}

TEST(AttentionErrors, ACallThatIsRightHasNone) { EXPECT_EQ(message_of_options({}), "no error"); }

TEST(AttentionErrors, RanksAreTwoToFourAndEqual) {
  const Tensor rank1({8});
  const Tensor rank2({5, 8});
  const Tensor rank3({2, 5, 8});
  const Tensor rank5({1, 1, 1, 5, 8});
  EXPECT_EQ(message_of_inputs(rank1, rank2, rank2),
            "query has shape [8]; 2 to 4 axes, [B, H, L, D], are expected");
  EXPECT_EQ(message_of_inputs(rank2, rank5, rank2),
            "key has shape [1, 1, 1, 5, 8]; 2 to 4 axes, [B, H, L, D], are expected");
  EXPECT_EQ(message_of_inputs(rank2, rank2, TensorView()),
            "value has shape [0]; 2 to 4 axes, [B, H, L, D], are expected");
  EXPECT_EQ(message_of_inputs(rank2, rank3, rank2),
            "key has shape [2, 5, 8]; 2 axes as in query are expected");
  EXPECT_EQ(message_of_inputs(rank3, rank3, rank2),
            "value has shape [5, 8]; 3 axes as in query are expected");
}

TEST(AttentionErrors, DtypesAreFloatingAndEqual) {
  const Tensor f32({5, 8});
  const Tensor f16({5, 8}, DType::f16);
  const Tensor i32({5, 8}, DType::i32);
  EXPECT_EQ(message_of_inputs(i32, f32, f32), "query has dtype i32; f64, f32, f16 or bf16 is expected");
  EXPECT_EQ(message_of_inputs(f32, f16, f32), "key has dtype f16; f32 as in query is expected");
  EXPECT_EQ(message_of_inputs(f16, f16, f32), "value has dtype f32; f16 as in query is expected");
}

TEST(AttentionErrors, ShapesBelongTogether) {
  const Call call;
  const auto zeros = [](const Dims& shape) { return Tensor(shape); };
  EXPECT_EQ(message_of_inputs(call.query, zeros({3, 2, 5, 8}), call.value),
            "key has batch size 3 (shape [3, 2, 5, 8]); 2 as in query is expected");
  EXPECT_EQ(message_of_inputs(call.query, call.key, zeros({1, 2, 5, 6})),
            "value has batch size 1 (shape [1, 2, 5, 6]); 2 as in query is expected");
  EXPECT_EQ(message_of_inputs(call.query, call.key, zeros({2, 4, 5, 6})),
            "value has head count 4 (shape [2, 4, 5, 6]); 2 as in key is expected");
  EXPECT_EQ(message_of_inputs(call.query, call.key, zeros({2, 2, 4, 6})),
            "value has length 4 (shape [2, 2, 4, 6]); 5 as in key is expected");
  EXPECT_EQ(message_of_inputs(call.query, zeros({2, 2, 5, 7}), call.value),
            "key has head dimension 7 (shape [2, 2, 5, 7]); 8 as in query is expected");
  EXPECT_EQ(message_of_inputs(zeros({2, 3, 3, 8}), call.key, call.value),
            "query has head count 3 (shape [2, 3, 3, 8]); a multiple of key's 2 is expected");
  EXPECT_EQ(message_of_inputs(call.query, zeros({2, 0, 5, 8}), zeros({2, 0, 5, 6})),
            "query has head count 4 (shape [2, 4, 3, 8]); a multiple of key's 0 is expected");
  EXPECT_EQ(message_of_inputs(zeros({3, 0}), zeros({5, 0}), zeros({5, 6})),
            "query has head dimension 0 (shape [3, 0]); at least 1 is expected");
}

TEST(AttentionErrors, MemoryCanBeAddressed) {
  const std::int64_t huge = std::int64_t{1} << 49;
  const float zero = 0;
  const Tensor small({1, 1});
  const auto repeated = [&](const Dims& shape) { return TensorView(&zero, shape, Dims{0, 0}); };
  EXPECT_EQ(message_of_inputs(repeated({huge, 1}), small, small),
            "query has length 562949953421312; at most 2^48 is supported");
  EXPECT_EQ(message_of_inputs(small, repeated({huge, 1}), repeated({huge, 1})),
            "key has length 562949953421312; at most 2^48 is supported");
  EXPECT_EQ(message_of_inputs(repeated({1, huge}), repeated({1, huge}), small),
            "query has head dimension 562949953421312; at most 2^48 is supported");
  EXPECT_EQ(message_of_inputs(small, small, repeated({1, huge})),
            "value has head dimension 562949953421312; at most 2^48 is supported");
  const TensorView far(&zero, {3, 1}, {std::int64_t{1} << 61, 1});
  EXPECT_EQ(message_of_inputs(far, small, small),
            "query has shape [3, 1] and strides [2305843009213693952, 1], which span more bytes than 64 bits "
            "can count");
  const TensorView farthest(&zero, {2, 1}, {std::numeric_limits<std::int64_t>::min(), 1});
  EXPECT_EQ(message_of_inputs(small, farthest, small),
            "key has shape [2, 1] and strides [-9223372036854775808, 1], which span more bytes than 64 bits "
            "can count");
  const TensorView odd(static_cast<const void*>(small.view().data_as<float>()), DType::f32, {1, 1});
  const TensorView off(static_cast<const void*>(static_cast<const std::byte*>(odd.data()) + 1), DType::f32,
                       {1, 1});
  EXPECT_EQ(message_of_inputs(off, small, small),
            "query is not aligned; its f32 data is expected at a multiple of 4 bytes");
}

TEST(AttentionErrors, ResultsThatCannotBeCountedAreOutOfMemory) {
  const std::int64_t many = std::int64_t{1} << 40;
  const float zero = 0;
  const TensorView rows(&zero, {many, 1}, {0, 0});
  const TensorView values(&zero, {many, 0}, {0, 0});
  try {
    (void)heed::attention(rows, rows, values, {.need = heed::Need::weights});
    ADD_FAILURE() << "2^80 weights were held";
  } catch (const heed::Error& error) {
    EXPECT_EQ(error.code(), heed::ErrorCode::out_of_memory);
    EXPECT_EQ(std::string(error.what()),
              "shape [1099511627776, 1099511627776] has more elements than 64 bits can count");
  }
}

TEST(AttentionErrors, NumbersAreInTheirRanges) {
  EXPECT_EQ(message_of_options({.scale = kNaN}), "scale is nan; a finite number is expected");
  EXPECT_EQ(message_of_options({.scale = -kInfinity}), "scale is -inf; a finite number is expected");
  EXPECT_EQ(message_of_options({.softcap = -0.5}),
            "softcap is -0.5; a finite number of 0 (off) or more is expected");
  EXPECT_EQ(message_of_options({.softcap = kInfinity}),
            "softcap is inf; a finite number of 0 (off) or more is expected");
  EXPECT_EQ(message_of_options({.softcap = kNaN}),
            "softcap is nan; a finite number of 0 (off) or more is expected");
  EXPECT_EQ(message_of_options({.window = {-2, 0}}), "window.left is -2; -1 (open) or more is expected");
  EXPECT_EQ(message_of_options({.window = {0, -7}}), "window.right is -7; -1 (open) or more is expected");
  EXPECT_EQ(message_of_options({.query_offset = (std::int64_t{1} << 60) + 1}),
            "query_offset is 1152921504606846977; -2^60 to 2^60 is expected");
  EXPECT_EQ(message_of_options({.query_offset = -(std::int64_t{1} << 60) - 1}),
            "query_offset is -1152921504606846977; -2^60 to 2^60 is expected");
  EXPECT_EQ(message_of_options({.dropout = {.probability = 1}}),
            "dropout.probability is 1; a number of 0 or more and below 1 is expected");
  EXPECT_EQ(message_of_options({.dropout = {.probability = -0.1}}),
            "dropout.probability is -0.1; a number of 0 or more and below 1 is expected");
  EXPECT_EQ(message_of_options({.dropout = {.probability = kNaN}}),
            "dropout.probability is nan; a number of 0 or more and below 1 is expected");
  EXPECT_EQ(message_of_options({.threads = -1}), "threads is -1; 0 (all of the machine) or more is expected");
  EXPECT_EQ(message_of_options({.top_k = -1}), "top_k is -1; 0 (off) or more is expected");
  EXPECT_EQ(message_of_options({.received_last = -3}), "received_last is -3; 0 (off) or more is expected");
  EXPECT_EQ(message_of_options({.map = {2, 0}}),
            "map is 2 x 0; two positive sizes, or 0 x 0 (off), are expected");
  EXPECT_EQ(message_of_options({.map = {-1, -1}}),
            "map is -1 x -1; two positive sizes, or 0 x 0 (off), are expected");
  EXPECT_EQ(message_of_options({.output_dtype = DType::bf16}),
            "output_dtype is bf16; f32 as in query is expected");
  EXPECT_EQ(message_of_inputs(Tensor({3, 8}, DType::f16), Tensor({5, 8}, DType::f16),
                              Tensor({5, 8}, DType::f16), {.output_dtype = DType::f64}),
            "output_dtype is f64; f16 as in query or f32 is expected");
}

TEST(AttentionErrors, NumbersThatOnlyACastGivesAreRefused) {
  EXPECT_EQ(message_of_options({.align = static_cast<heed::Align>(2)}), "align is 2; 0 to 1 is expected");
  EXPECT_EQ(message_of_options({.kernel = static_cast<heed::Kernel>(-1)}),
            "kernel is -1; 0 to 2 is expected");
  EXPECT_EQ(message_of_options({.need = static_cast<heed::Need>(256)}),
            "need is 256; a sum of Need's values, at most 255, is expected");
  EXPECT_EQ(message_of_options({.scores_stage = static_cast<heed::ScoresStage>(3)}),
            "scores_stage is 3; 0 to 2 is expected");
  EXPECT_EQ(message_of_options({.output_dtype = static_cast<DType>(8)}),
            "output_dtype is 8; f32 as in query is expected");
}

TEST(AttentionErrors, MasksAreBoolAndBroadcast) {
  const Tensor floats({3, 5});
  EXPECT_EQ(message_of_options({.mask = floats}),
            "mask has dtype f32; bool (true where a key may be attended) is expected");
  EXPECT_EQ(message_of_options({.mask = Tensor({3, 4}, DType::boolean)}),
            "mask has shape [3, 4]; a shape that broadcasts to [2, 4, 3, 5] is expected");
  EXPECT_EQ(message_of_options({.mask = Tensor({1, 2, 4, 3, 5}, DType::boolean)}),
            "mask has shape [1, 2, 4, 3, 5]; a shape that broadcasts to [2, 4, 3, 5] is expected");
  EXPECT_EQ(message_of_options({.mask = Tensor({0, 5}, DType::boolean)}),
            "mask has shape [0, 5]; a shape that broadcasts to [2, 4, 3, 5] is expected");
}

TEST(AttentionErrors, FloatingOperandsAreFloatingAndBroadcast) {
  const Tensor integers({4}, DType::i64);
  EXPECT_EQ(message_of_options({.bias = Tensor({3, 5}, DType::boolean)}),
            "bias has dtype bool; f64, f32, f16 or bf16 is expected");
  EXPECT_EQ(message_of_options({.bias = Tensor({3, 3, 5})}),
            "bias has shape [3, 3, 5]; a shape that broadcasts to [2, 4, 3, 5] is expected");
  EXPECT_EQ(message_of_options({.alibi_slopes = integers}),
            "alibi_slopes has dtype i64; f64, f32, f16 or bf16 is expected");
  EXPECT_EQ(message_of_options({.alibi_slopes = Tensor({2})}),
            "alibi_slopes has shape [2]; a shape that broadcasts to [2, 4] is expected");
  EXPECT_EQ(message_of_options({.decay = integers}),
            "decay has shape [4]; [B, H, L] with at least 5 positions, the length of key, is expected");
  EXPECT_EQ(message_of_options({.decay = Tensor({5}, DType::i64)}),
            "decay has dtype i64; f64, f32, f16 or bf16 is expected");
  EXPECT_EQ(message_of_options({.decay = Tensor({3, 5})}),
            "decay has shape [3, 5]; a shape that broadcasts to [2, 4, 5] is expected");
  Tensor infinite({4, 5});
  infinite.at<float>(2, 3) = INFINITY;
  EXPECT_EQ(message_of_options({.decay = infinite}), "decay[0, 2, 3] is inf; finite numbers are expected");
  EXPECT_EQ(message_of_options({.sinks = integers}),
            "sinks has dtype i64; f64, f32, f16 or bf16 is expected");
  EXPECT_EQ(message_of_options({.sinks = Tensor({2, 4})}),
            "sinks has shape [2, 4]; a shape that broadcasts to [4] is expected");
}

TEST(AttentionErrors, KeyLengthsAreIntegersWithinTheKeys) {
  EXPECT_EQ(message_of_options({.kv_lengths = Tensor({2})}),
            "kv_lengths has dtype f32; i64 or i32 is expected");
  EXPECT_EQ(message_of_options({.kv_lengths = Tensor({3}, DType::i32)}),
            "kv_lengths has shape [3]; [2], one per batch entry, is expected");
  EXPECT_EQ(message_of_options({.kv_lengths = Tensor({2, 1}, DType::i32)}),
            "kv_lengths has shape [2, 1]; [2], one per batch entry, is expected");
  EXPECT_EQ(message_of_options({.kv_lengths = Tensor::from<std::int64_t>({5, 6}, {2})}),
            "kv_lengths[1] is 6; 0 to 5, the length of key, is expected");
  EXPECT_EQ(message_of_options({.kv_lengths = Tensor::from<std::int32_t>({-1, 5}, {2})}),
            "kv_lengths[0] is -1; 0 to 5, the length of key, is expected");
}

TEST(AttentionErrors, SegmentsCoverQueriesAndKeysInOrder) {
  const Tensor query({3, 8});
  const Tensor key({5, 8});
  const auto message = [&](const Tensor& q, const Tensor& k) {
    return message_of_inputs(query, key, key, {.query_segments = q, .key_segments = k});
  };
  const auto offsets = [](std::initializer_list<std::int64_t> values) {
    return Tensor::from<std::int64_t>(values, {static_cast<std::int64_t>(values.size())});
  };
  EXPECT_EQ(message(offsets({0, 1, 3}), offsets({0, 4, 5})), "no error");
  EXPECT_EQ(message(Tensor({3}), offsets({0, 5})), "query_segments has dtype f32; i64 or i32 is expected");
  EXPECT_EQ(message(offsets({0, 3}), Tensor({1, 2}, DType::i32)),
            "key_segments has shape [1, 2]; one axis is expected");
  EXPECT_EQ(message(offsets({}), offsets({})), "query_segments is empty; offsets from 0 to 3 are expected");
  EXPECT_EQ(message(offsets({0, 2, 1, 3}), offsets({0, 1, 2, 5})),
            "query_segments decreases from 2 to 1 at index 2; non-decreasing offsets are expected");
  EXPECT_EQ(message(offsets({1, 3}), offsets({0, 5})),
            "query_segments runs from 1 to 3; 0 to 3, the length of query, is expected");
  EXPECT_EQ(message(offsets({0, 3}), offsets({0, 6})),
            "key_segments runs from 0 to 6; 0 to 5, the length of key, is expected");
  EXPECT_EQ(message(offsets({0, 1, 3}), offsets({0, 5})),
            "key_segments has 2 offsets; 3 as in query_segments are expected");
}

TEST(AttentionErrors, SegmentsComeInPairsAloneAndForOneBatchEntry) {
  const Tensor query({3, 8});
  const Tensor key({5, 8});
  const Tensor q = Tensor::from<std::int64_t>({0, 3}, {2});
  const Tensor k = Tensor::from<std::int64_t>({0, 5}, {2});
  const Tensor lengths = Tensor::from<std::int64_t>({5}, {1});
  EXPECT_EQ(message_of_inputs(query, key, key, {.query_segments = q}),
            "query_segments is given without key_segments; both or neither are expected");
  EXPECT_EQ(message_of_inputs(query, key, key, {.key_segments = k}),
            "key_segments is given without query_segments; both or neither are expected");
  EXPECT_EQ(
      message_of_inputs(query, key, key, {.kv_lengths = lengths, .query_segments = q, .key_segments = k}),
      "kv_lengths is given together with query_segments, which already tells the length of each sequence");
  EXPECT_EQ(message_of_options({.query_segments = q, .key_segments = k}),
            "query has batch size 2; 1 is expected with query_segments");
}

TEST(AttentionErrors, OutputsHaveTheShapesAndDtypesOfResults) {
  Tensor wrong({2, 4, 3, 7});
  Tensor doubles({2, 4, 3}, DType::f64);
  Tensor row({2, 4, 3});
  Tensor scores({2, 4, 3, 5});
  EXPECT_EQ(message_of_outputs({.output = wrong}),
            "outputs.output has shape [2, 4, 3, 7]; [2, 4, 3, 6] is expected");
  EXPECT_EQ(message_of_outputs({.weights = wrong}),
            "outputs.weights has shape [2, 4, 3, 7]; [2, 4, 3, 5] is expected");
  EXPECT_EQ(message_of_outputs({.scores = wrong}),
            "outputs.scores has shape [2, 4, 3, 7]; [2, 4, 3, 5] is expected");
  EXPECT_EQ(message_of_outputs({.lse = doubles}), "outputs.lse has dtype f64; f32 is expected");
  EXPECT_EQ(message_of_outputs({.max_score = doubles}), "outputs.max_score has dtype f64; f32 is expected");
  EXPECT_EQ(message_of_outputs({.entropy = scores}),
            "outputs.entropy has shape [2, 4, 3, 5]; [2, 4, 3] is expected");
  EXPECT_EQ(message_of_outputs({.distance = scores}),
            "outputs.distance has shape [2, 4, 3, 5]; [2, 4, 3] is expected");
  EXPECT_EQ(message_of_outputs({.received = row}),
            "outputs.received has shape [2, 4, 3]; [2, 4, 5] is expected");
  EXPECT_EQ(message_of_outputs({.received_last = row}, {.received_last = 1}),
            "outputs.received_last has shape [2, 4, 3]; [2, 4, 5] is expected");
  EXPECT_EQ(message_of_outputs({.received_last = row}),
            "received_last is 0 while outputs.received_last is given; the number of last rows, 1 or more, is "
            "expected");
}

TEST(AttentionErrors, OutputsOfTopKAndMapAgreeWithTheOptions) {
  Tensor index({2, 4, 3, 2}, DType::i64);
  Tensor weight({2, 4, 3, 3});
  Tensor floats({2, 4, 3, 2});
  Tensor map({2, 4, 6, 7});
  Tensor row({2, 4, 3});
  EXPECT_EQ(message_of_outputs({.top_k_index = index, .top_k_weight = weight}),
            "outputs.top_k_weight has shape [2, 4, 3, 3]; [2, 4, 3, 2] is expected");
  EXPECT_EQ(message_of_outputs({.top_k_index = floats}),
            "outputs.top_k_index has dtype f32; i64 is expected");
  EXPECT_EQ(message_of_outputs({.top_k_index = index}, {.top_k = 5}),
            "outputs.top_k_index has shape [2, 4, 3, 2]; [2, 4, 3, 5] is expected");
  EXPECT_EQ(message_of_outputs({.map = map}, {.map = {6, 6}}),
            "outputs.map has shape [2, 4, 6, 7]; [2, 4, 6, 6] is expected");
  EXPECT_EQ(message_of_outputs({.map = row}), "outputs.map has shape [2, 4, 3]; [2, 4, 4, 3] is expected");
  // Views that lack the axes whose sizes would tell what was requested.
  Tensor few({3}), none(heed::Dims{});
  EXPECT_EQ(message_of_outputs({.map = few}), "outputs.map has shape [3]; [2, 4, 0, 3] is expected");
  EXPECT_EQ(message_of_outputs({.top_k_weight = none}),
            "outputs.top_k_weight has shape []; [2, 4, 3, 0] is expected");
  const std::int64_t huge = std::int64_t{1} << 62;
  EXPECT_EQ(
      message_of_outputs({.map = MutableTensorView(map.mutable_view().data(), DType::f32, {2, 4, 6, 7})},
                         {.map = {huge, huge}}),
      "map is 4611686018427387904 x 4611686018427387904, which has more bins than 64 bits can count");
}

TEST(AttentionErrors, OutputsDoNotOverlapThemselves) {
  Tensor memory({400});
  void* data = memory.mutable_view().data();
  EXPECT_EQ(message_of_outputs({.lse = MutableTensorView(data, DType::f32, {2, 4, 3}, {12, 0, 1})}),
            "outputs.lse has shape [2, 4, 3] and strides [12, 0, 1], so it may overlap itself; separate "
            "memory for each element is expected");
  EXPECT_EQ(message_of_outputs({.lse = MutableTensorView(data, DType::f32, {2, 4, 3}, {12, 2, 1})}),
            "outputs.lse has shape [2, 4, 3] and strides [12, 2, 1], so it may overlap itself; separate "
            "memory for each element is expected");
  // Any order of axes, gaps and negative strides are allowed.
  auto* middle = static_cast<float*>(data) + 200;
  EXPECT_EQ(message_of_outputs({.lse = MutableTensorView(middle, {2, 4, 3}, {-1, 2, 20})}), "no error");
}

TEST(AttentionErrors, OutputsDoNotOverlapEachOther) {
  Tensor memory({400});
  auto* data = memory.values<float>().data();
  const auto rows = [](float* at) { return MutableTensorView(at, {2, 4, 3}); };
  EXPECT_EQ(message_of_outputs({.lse = rows(data), .entropy = rows(data)}),
            "outputs.entropy overlaps outputs.lse in memory; separate memory is expected");
  EXPECT_EQ(message_of_outputs({.lse = rows(data), .entropy = rows(data + 23)}),
            "outputs.entropy overlaps outputs.lse in memory; separate memory is expected");
  EXPECT_EQ(message_of_outputs({.max_score = rows(data + 23), .distance = rows(data)}),
            "outputs.distance overlaps outputs.max_score in memory; separate memory is expected");
  EXPECT_EQ(message_of_outputs({.lse = rows(data), .entropy = rows(data + 24)}), "no error");
  // The even and the odd elements of one array are allowed; then the same two with one element in common.
  const auto every_other = [](float* at) { return MutableTensorView(at, {2, 4, 3}, {24, 6, 2}); };
  EXPECT_EQ(message_of_outputs({.lse = every_other(data), .entropy = every_other(data + 1)}), "no error");
  EXPECT_EQ(message_of_outputs({.lse = every_other(data),
                                .entropy = MutableTensorView(data + 46, {2, 4, 3}, {-24, -6, -2})}),
            "outputs.entropy overlaps outputs.lse in memory; separate memory is expected");
}

TEST(AttentionErrors, OutputsDoNotOverlapInputs) {
  Tensor memory({1000});
  auto* data = memory.values<float>().data();
  const Tensor key({2, 4, 5, 6});
  const TensorView query(data, DType::f32, {2, 4, 3, 6});
  const auto message = [&](const MutableTensorView& output, const AttentionOptions& options = {}) {
    return message_of([&] { (void)heed::attention_into(query, key, key, options, {.output = output}); });
  };
  EXPECT_EQ(message(MutableTensorView(data, {2, 4, 3, 6})),
            "outputs.output overlaps query in memory; separate memory is expected");
  EXPECT_EQ(message(MutableTensorView(data + 143, {2, 4, 3, 6})),
            "outputs.output overlaps query in memory; separate memory is expected");
  EXPECT_EQ(message(MutableTensorView(data + 144, {2, 4, 3, 6})), "no error");
  EXPECT_EQ(
      message(MutableTensorView(data + 144, {2, 4, 3, 6}), {.bias = TensorView(data + 200, DType::f32, {5})}),
      "outputs.output overlaps bias in memory; separate memory is expected");
  // Rows of queries and outputs may alternate in one array, 6 elements each.
  const TensorView turns(data, DType::f32, {2, 4, 3, 6}, {144, 36, 12, 1});
  const MutableTensorView between(data + 6, DType::f32, {2, 4, 3, 6}, {144, 36, 12, 1});
  EXPECT_EQ(message_of([&] { (void)heed::attention_into(turns, key, key, {}, {.output = between}); }),
            "no error");
}

TEST(AttentionErrors, AKernelThatCannotDoTheCallIsRefused) {
  EXPECT_EQ(
      message_of_options({.scale = 1e300, .kernel = heed::Kernel::fused}),
      "kernel is fused, which supports f32, f16 and bf16, head and value dimensions from 1 to 1024, top_k up "
      "to "
      "1024 (of fewer than 2^31 keys) and maps up to 32768 columns; automatic or reference is expected for "
      "this call");
}

// The fused kernel has the same limits whether the caller or the library owns the results' memory.
TEST(AttentionErrors, TheFusedKernelRefusesTheSameCallsWhereverResultsGo) {
  const Tensor q({1, 2}), k({2000, 2});
  for (const heed::AttentionOptions& options :
       {heed::AttentionOptions{.top_k = 1500, .kernel = heed::Kernel::fused},
        heed::AttentionOptions{.map = {1, 40000}, .kernel = heed::Kernel::fused}}) {
    const std::string returned = message_of([&] { (void)heed::attention(q, k, k, options); });
    EXPECT_NE(returned.find("kernel is fused"), std::string::npos) << returned;
    Tensor output({1, 2}), index({1, 1500}, heed::DType::i64), weight({1, 1500}), map({1, 40000});
    heed::AttentionOutputs outputs{.output = output};
    if (options.top_k > 0) outputs.top_k_index = index, outputs.top_k_weight = weight;
    if (options.map.rows > 0) outputs.map = map;
    EXPECT_EQ(message_of([&] { (void)heed::attention_into(q, k, k, options, outputs); }), returned);
  }
}

TEST(AttentionErrors, TheFusedKernelGoesAsFarAsItsMessageSays) {
  const auto refuses = [](std::int64_t head_dim, std::int64_t value_dim, std::int64_t top_k,
                          std::int64_t columns) {
    const Tensor q({1, head_dim}), k({3, head_dim}), v({3, value_dim});
    const heed::AttentionOptions options{
        .top_k = top_k, .map = {columns > 0 ? 1 : 0, columns}, .kernel = heed::Kernel::fused};
    return message_of([&] { (void)heed::attention(q, k, v, options); }) != "no error";
  };
  EXPECT_FALSE(refuses(1024, 1024, 1024, 32768));
  EXPECT_TRUE(refuses(1025, 1, 0, 0));
  EXPECT_TRUE(refuses(1, 1025, 0, 0));
  EXPECT_TRUE(refuses(1, 1, 1025, 0));
  EXPECT_TRUE(refuses(1, 1, 0, 32769));
}

TEST(AttentionErrors, NothingIsWrittenWhenTheCallIsWrong) {
  const Call call;
  Tensor output({2, 4, 3, 6});
  for (float& x : output.values<float>()) x = 7;
  Tensor wrong({1});
  EXPECT_NE(message_of([&] {
              (void)heed::attention_into(call.query, call.key, call.value, {},
                                         {.output = output, .map = wrong});
            }),
            "no error");
  for (float x : output.values<float>()) EXPECT_EQ(x, 7);
}

}  // namespace
