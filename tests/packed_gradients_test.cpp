// Gradients of packed sequences: each document has the gradients that it has alone, whatever is packed beside
// it.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "attention_support.hpp"
#include "naive_attention.hpp"
#include "naive_backward.hpp"

namespace {

using heed::AttentionOptions;
using heed::DType;
using heed::Kernel;
using heed::Tensor;
using heed::test::normal_tensor;
using heed::test::why_not_fused;

Tensor offsets(const std::vector<std::int64_t>& values) {
  Tensor tensor({static_cast<std::int64_t>(values.size())}, DType::i64);
  std::copy(values.begin(), values.end(), tensor.values<std::int64_t>().begin());
  return tensor;
}

void expect_near(const Tensor& got, const heed::test::Cube& expected, const heed::test::Cube& magnitude,
                 const char* name) {
  ASSERT_EQ(got.count(), static_cast<std::int64_t>(expected.values.size()));
  for (std::size_t n = 0; n < expected.values.size(); ++n)
    // Sums of up to 400 f32 terms whose weights have errors of about 20 ulp.
    ASSERT_NEAR(got.values<float>()[n], static_cast<double>(expected.values[n]),
                1e-6 + 4e-5 * static_cast<double>(magnitude.values[n]))
        << name << " at element " << n;
}

// Rows with up to 192 keys recompute their lse; longer ones need not. Here one batch has both.
TEST(PackedGradients, DocumentsOnBothSidesOfAThresholdDoNotDisturbEachOther) {
  if (const std::string reason = why_not_fused(); !reason.empty()) GTEST_SKIP() << reason;
  for (const std::vector<std::int64_t>& documents :
       {std::vector<std::int64_t>{0, 300, 350, 700}, {0, 192, 385, 386, 600}, {0, 50, 500}})
    for (const double magnitude : {1.0, 8.0}) {  // the larger one has an lse beyond 16
      const std::int64_t length = documents.back();
      const heed::Dims shape{1, length, 16};
      Tensor q = normal_tensor(shape, 1, DType::f32);
      for (float& x : q.values<float>()) x *= static_cast<float>(magnitude);
      const Tensor k = normal_tensor(shape, 2, DType::f32), v = normal_tensor(shape, 3, DType::f32);
      const Tensor g = normal_tensor(shape, 4, DType::f32);
      const Tensor segments = offsets(documents);
      const AttentionOptions options{.causal = true,
                                     .query_segments = segments,
                                     .key_segments = segments,
                                     .need = heed::Need::lse,
                                     .kernel = Kernel::fused};
      const auto forward = heed::attention(q, k, v, options);
      const heed::AttentionBackwardInputs inputs{q, k, v, forward.output, forward.lse, g};
      const auto gradients = heed::attention_backward(inputs, options);
      ASSERT_EQ(gradients.kernel, Kernel::fused);
      const heed::test::Naive naive = heed::test::naive_attention(q, k, v, options);
      const auto expected = heed::test::naive_backward(inputs, options, naive);
      expect_near(gradients.query, expected.query, expected.query_magnitude, "dQ");
      expect_near(gradients.key, expected.key, expected.key_magnitude, "dK");
      expect_near(gradients.value, expected.value, expected.value_magnitude, "dV");
    }
}

}  // namespace
