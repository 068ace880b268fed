// A part of a call of attention(): some of its rows, batch entries and heads, with the bits that they have in
// the whole. So a call can be cut over machines, or over time.
#pragma once

#include <cstdint>
#include <span>

#include "heed/attention.hpp"
#include "heed/backward.hpp"
#include "heed/export.hpp"
#include "heed/sharding.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// Where query, key and value of a part stand in the whole call. Heads are whole groups: all query heads that
/// read a key head.
struct CallPart {
  std::int64_t batch = 1;                 ///< of the whole, as heads and query_length are
  std::int64_t heads = 1;                 ///< query heads
  std::int64_t query_length = 0;          ///< Lq
  std::int64_t batch_begin = 0;           ///< the part's first batch entry
  std::int64_t head_begin = 0;            ///< and query head
  std::span<const PositionRange> rows{};  ///< the part's rows, rising: together as many as query has
};

/// As attention_into(), for a part. `options` are those of the whole call, but mask, bias, alibi_slopes,
/// sinks and kv_lengths, which are the part's own: they broadcast to its rows, heads and batch entries.
/// Throws Error (invalid_argument) besides for a part that query does not fit, and where `outputs` has
/// received, received_last or map (sums over all rows) while rows are missing.
HEED_API AttentionRun attention_part_into(const TensorView& query, const TensorView& key,
                                          const TensorView& value, const AttentionOptions& options,
                                          const CallPart& part, const AttentionOutputs& outputs);

/// Throws what attention_part_into() would, and computes nothing: of key and value only shape, strides and
/// dtype are looked at. Returns the kernel and instruction set that it would take.
HEED_API AttentionRun check_attention_part(const TensorView& query, const TensorView& key,
                                           const TensorView& value, const AttentionOptions& options,
                                           const CallPart& part, const AttentionOutputs& outputs);

/// The same for attention_backward_part_into(), but that rows may be missing.
HEED_API AttentionRun check_backward_part(const AttentionBackwardInputs& inputs,
                                          const AttentionOptions& options, const CallPart& part,
                                          const AttentionGradientViews& gradients);

/// As attention_backward_into(), for all rows of some batch entries and heads. A gradient that the whole sums
/// over others (of a shared bias, of sinks) is the part's share.
HEED_API AttentionRun attention_backward_part_into(const AttentionBackwardInputs& inputs,
                                                   const AttentionOptions& options, const CallPart& part,
                                                   const AttentionGradientViews& gradients);

}  // namespace heed
