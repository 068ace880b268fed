// How a call would run: its passes, why they take the way they take, what they hold and what they cost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "heed/attention/attention.hpp"
#include "heed/attention/backward.hpp"
#include "heed/attention/kv_cache.hpp"
#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// One pass over the keys with one unit: kernels for one instruction set and one format of products.
struct PlannedPass {
  std::string name;        ///< "forward", "weights", "scores", "forward without masks", "backward"
  std::string unit;        ///< "avx512"
  std::string path;        ///< the way to the keys: "decode", "packed_kv_blocks", …
  std::string schedule;    ///< how threads share the work: "whole_tasks", "split_kv", "shared_spans", …
  std::string because;     ///< the reasons, in sentences
  std::int64_t tasks = 0;  ///< pieces of work for threads
  std::int64_t rows = 0;   ///< query rows of a task, at most
  std::int64_t keys = 0;   ///< keys of a step; in the weights and backward passes, of a task
  int threads = 1;
  std::size_t bytes = 0;  ///< working memory, of all threads together
};

/// How a call would run, and what it would cost.
struct AttentionPlan {
  Kernel kernel = Kernel::reference;
  std::string_view isa;             ///< as in AttentionResult::isa
  std::string because;              ///< why this kernel and this target
  std::vector<PlannedPass> passes;  ///< in the order of execution; none for the reference kernel
  double multiply_adds = 0;         ///< of the pairs of queries and keys that positions allow
  std::size_t result_bytes = 0;     ///< memory of all results that the call returns
  std::string falls_back;           ///< what is computed again, and when
};

/// Plans attention() with these arguments, and computes nothing. The plan depends on shapes, strides, options
/// and the machine; of the tensors, only lengths and segments are read. Throws as attention() does.
[[nodiscard]] HEED_API AttentionPlan plan_attention(const TensorView& query, const TensorView& key,
                                                    const TensorView& value,
                                                    const AttentionOptions& options = {});

/// Plans attention() over a cache likewise.
[[nodiscard]] HEED_API AttentionPlan plan_attention(const TensorView& query, const KvCache& cache,
                                                    const AttentionOptions& options = {},
                                                    const CacheQuery& which = {});

/// Plans attention_backward() likewise.
[[nodiscard]] HEED_API AttentionPlan plan_attention_backward(const AttentionBackwardInputs& inputs,
                                                             const AttentionOptions& options = {},
                                                             const GradientRequest& request = {});

}  // namespace heed
