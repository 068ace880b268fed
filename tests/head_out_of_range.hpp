// A call in which one head has a number that f32 cannot hold.
#pragma once

#include <cstdint>

#include "attention_support.hpp"
#include "heed/attention/backward.hpp"

namespace heed::test {

/// B 2, H 4, Hkv 2, Lq 20, Lk 800, D 16: two splits per key head. One value of batch entry 0, key head 1 is
/// too large. Weights are so uneven that many gradients are 0 or -0 in f16.
struct HeadOutOfRange {
  static constexpr std::int64_t kBatch = 0, kKvHead = 1;

  explicit HeadOutOfRange(DType dtype, bool out_of_range = true)
      : query(normal_tensor({2, 4, 20, 16}, 1, dtype)),
        key(normal_tensor({2, 2, 800, 16}, 2, dtype)),
        grad_output(normal_tensor({2, 4, 20, 16}, 4, dtype)) {
    Tensor values = normal_tensor({2, 2, 800, 16}, 3, DType::f32);
    if (out_of_range) values.at<float>(kBatch, kKvHead, 77, 3) = 1e30F;  // infinite in f16
    value = Tensor::copy_of(values, dtype);
    AttentionOptions forward_options = options;
    forward_options.need = Need::lse;
    forward = attention(query, key, value, forward_options);
  }

  [[nodiscard]] AttentionBackwardInputs inputs() const {
    return {query, key, value, forward.output, forward.lse, grad_output};
  }

  Tensor query, key, value, grad_output;
  AttentionOptions options{.scale = 1, .causal = true, .align = Align::bottom_right};
  AttentionResult forward;
};

}  // namespace heed::test
