// The bytes that a call touches: none beside its tensors, and the right ones however far apart they are.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "attention_support.hpp"
#include "guarded.hpp"
#include "heed/attention/attention.hpp"

namespace {

using heed::attention;
using heed::AttentionOptions;
using heed::Dims;
using heed::DType;
using heed::MutableTensorView;
using heed::Need;
using heed::Tensor;
using heed::TensorView;
using heed::test::Guarded;
using heed::test::Mapping;
using heed::test::normal_tensor;
using heed::test::same_bits;
using heed::test::Side;

class AttentionGuards : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    const std::string reason = heed::test::why_not_fused();
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};

// Widths and lengths around the sizes of vectors, panels and tiles. The fused kernel reads and writes them if
// it supports the dtype.
TEST_P(AttentionGuards, NoByteBesideATensorOfAnySizeIsTouched) {
  const DType dtype = GetParam();
  for (const std::int64_t width : {1, 3, 8, 15, 16, 17, 31, 33, 48, 64, 100, 129})
    for (const std::int64_t rows : {1, 2, 13, 50})
      for (const Side side : {Side::first_byte, Side::last_byte}) {
        const std::int64_t keys = rows == 2 ? 201 : rows + 5;
        const std::int64_t value_width = 130 - width;
        const Tensor query = normal_tensor({2, rows, width}, 1, dtype);
        const Tensor key = normal_tensor({2, keys, width}, 2, dtype);
        const Tensor value = normal_tensor({2, keys, value_width}, 3, dtype);
        const Guarded q(query, side), k(key, side), v(value, side);
        const Guarded out(Tensor({2, rows, value_width}, dtype), side);
        heed::AttentionOutputs outputs;
        outputs.output = out.view();
        (void)attention_into(q.view(), k.view(), v.view(), {.causal = true}, outputs);
        ASSERT_TRUE(same_bits(outputs.output, attention(query, key, value, {.causal = true}).output))
            << width << " " << rows;
      }
}

// 5 queries, 7 keys, 24 and 3 dimensions: no row fills a vector register, and the last row of each tensor
// would show an overrun first.
TEST_P(AttentionGuards, NoByteBesideATensorIsTouched) {
  const DType dtype = GetParam();
  const DType summary = dtype == DType::f64 ? DType::f64 : DType::f32;
  const Tensor query = normal_tensor({2, 4, 5, 24}, 1, dtype);
  const Tensor key = normal_tensor({2, 2, 7, 24}, 2, dtype);
  const Tensor value = normal_tensor({2, 2, 7, 3}, 3, dtype);
  const Tensor bias = normal_tensor({4, 5, 7}, 4, dtype);
  const Tensor mask = Tensor::copy_of(normal_tensor({5, 7}, 5), DType::boolean);
  const Tensor slopes = normal_tensor({4}, 6, dtype);
  const Tensor sinks = normal_tensor({4}, 7, dtype);
  const Tensor decay = normal_tensor({4, 7}, 8, dtype);
  const Tensor lengths = Tensor::from<std::int32_t>({7, 6}, {2});
  for (Side side : {Side::first_byte, Side::last_byte}) {
    std::vector<Guarded> guarded;
    for (const Tensor* tensor : {&query, &key, &value, &bias, &mask, &slopes, &sinks, &lengths, &decay})
      guarded.emplace_back(*tensor, side);
    const auto result = [&](const Dims& shape, DType type) {
      guarded.emplace_back(Tensor(shape, type), side);
      return guarded.back().view();
    };
    AttentionOptions options;
    options.bias = guarded[3].view();
    options.mask = guarded[4].view();
    options.alibi_slopes = guarded[5].view();
    options.sinks = guarded[6].view();
    options.kv_lengths = guarded[7].view();
    options.decay = guarded[8].view();
    options.received_last = 2;
    heed::AttentionOutputs outputs;
    outputs.output = result({2, 4, 5, 3}, dtype);
    outputs.weights = result({2, 4, 5, 7}, summary);
    outputs.scores = result({2, 4, 5, 7}, summary);
    outputs.lse = result({2, 4, 5}, summary);
    outputs.max_score = result({2, 4, 5}, summary);
    outputs.entropy = result({2, 4, 5}, summary);
    outputs.distance = result({2, 4, 5}, summary);
    outputs.top_k_index = result({2, 4, 5, 3}, DType::i64);
    outputs.top_k_weight = result({2, 4, 5, 3}, summary);
    outputs.received = result({2, 4, 7}, summary);
    outputs.received_last = result({2, 4, 7}, summary);
    outputs.map = result({2, 4, 2, 3}, summary);
    for (const heed::Kernel kernel : {heed::Kernel::automatic, heed::Kernel::reference}) {
      options.kernel = kernel;
      (void)attention_into(guarded[0].view(), guarded[1].view(), guarded[2].view(), options, outputs);
      AttentionOptions plain = options;
      plain.need = Need::lse;
      const auto expected = attention(query, key, value, plain);
      EXPECT_TRUE(same_bits(outputs.output, expected.output));
      EXPECT_TRUE(same_bits(outputs.lse, expected.lse));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OfEveryDtype, AttentionGuards,
                         ::testing::Values(DType::f64, DType::f32, DType::f16, DType::bf16),
                         [](const auto& dtype) { return std::string(heed::name_of(dtype.param)); });

// Rows that are 2^32 + 8 elements apart, forwards and backwards. A 32-bit index would read other memory,
// which is all zeros.
TEST(AttentionMemory, StridesBeyond32BitsReachTheirElements) {
  const std::string reason = heed::test::why_not_fused();
  if (!reason.empty()) GTEST_SKIP() << reason;
  const std::int64_t stride = (std::int64_t{1} << 32) + 8;
  const Mapping mapping(static_cast<std::size_t>(2 * stride + 8) * 4);
  if (!mapping.ok()) GTEST_SKIP() << "the system gives no sparse mapping of 32 GiB";
  auto* first = static_cast<float*>(static_cast<void*>(mapping.data()));
  const Tensor rows = normal_tensor({3, 8}, 1, DType::f32);
  const MutableTensorView far(first, {3, 8}, {stride, 1});
  heed::copy(rows, far);
  const TensorView backwards(first + 2 * stride, {3, 8}, {-stride, 1});
  const Tensor reversed = Tensor::copy_of(backwards);
  for (const heed::Kernel kernel : {heed::Kernel::automatic, heed::Kernel::reference}) {
    const AttentionOptions options{.causal = true, .kernel = kernel};
    EXPECT_TRUE(
        same_bits(attention(far, far, far, options).output, attention(rows, rows, rows, options).output));
    EXPECT_TRUE(same_bits(attention(rows, backwards, backwards, options).output,
                          attention(rows, reversed, reversed, options).output));
  }
}

}  // namespace
