// Calls that show their results to the caller before they compute them.
#pragma once

#include <functional>

#include "heed/attention/attention.hpp"
#include "heed/attention/differential.hpp"

namespace heed::detail {

/// Looks at results that have memory, but no values yet: the call is checked and not begun. An exception ends
/// the call.
using SeeResults = std::function<void(const AttentionResult&)>;

[[nodiscard]] AttentionResult attention(const TensorView& query, const TensorView& key,
                                        const TensorView& value, const AttentionOptions& options,
                                        const SeeResults& see);
[[nodiscard]] AttentionResult attention(const TensorView& query, const KvCache& cache,
                                        const AttentionOptions& options, const CacheQuery& which,
                                        const SeeResults& see);

/// `see` looks at the results of each half.
[[nodiscard]] DifferentialResult differential_attention(const TensorView& query, const TensorView& key,
                                                        const TensorView& value, const TensorView& lambda,
                                                        const AttentionOptions& options,
                                                        const SeeResults& see);
[[nodiscard]] DifferentialResult differential_attention(const TensorView& query, const KvCache& cache,
                                                        const TensorView& lambda,
                                                        const AttentionOptions& options,
                                                        const CacheQuery& which, const SeeResults& see);

}  // namespace heed::detail
