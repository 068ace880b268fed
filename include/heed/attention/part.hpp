// Parts of an attention() call: some of its rows, batch entries and heads, with the same bits as in the whole
// call. So a call can be split over machines or over time.
#pragma once

#include <cstdint>
#include <span>

#include "heed/attention/attention.hpp"
#include "heed/attention/backward.hpp"
#include "heed/attention/sharding.hpp"
#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// The place of a part's query, key and value in the whole call. Heads come in whole groups: all query heads
/// that read a key head.
struct CallPart {
  std::int64_t batch = 1;                 ///< of the whole call, like heads and query_length
  std::int64_t heads = 1;                 ///< query heads
  std::int64_t query_length = 0;          ///< Lq
  std::int64_t batch_begin = 0;           ///< the part's first batch entry
  std::int64_t head_begin = 0;            ///< the part's first query head
  std::span<const PositionRange> rows{};  ///< the part's rows, ascending; as many in all as query has
};

/// Runs attention_into() for a part. `options` are the whole call's, except that mask, bias, alibi_slopes,
/// decay, sinks and kv_lengths belong to the part and broadcast to its rows, heads and batch entries. Also
/// throws Error (invalid_argument) if query does not fit the part. So it does if rows are missing and
/// `outputs` has received, received_last or map, which sum over all rows.
HEED_API AttentionRun attention_part_into(const TensorView& query, const TensorView& key,
                                          const TensorView& value, const AttentionOptions& options,
                                          const CallPart& part, const AttentionOutputs& outputs);

/// Throws what attention_part_into() would throw, but computes nothing. Reads only shape, strides and dtype
/// of key and value. Returns the kernel and instruction set that the call would use.
HEED_API AttentionRun check_attention_part(const TensorView& query, const TensorView& key,
                                           const TensorView& value, const AttentionOptions& options,
                                           const CallPart& part, const AttentionOutputs& outputs);

/// The same for attention_backward_part_into(), except that rows may be missing.
HEED_API AttentionRun check_backward_part(const AttentionBackwardInputs& inputs,
                                          const AttentionOptions& options, const CallPart& part,
                                          const AttentionGradientViews& gradients);

/// Runs attention_backward_into() for all rows of some batch entries and heads. A gradient that sums over
/// other parts too (of a shared bias, of sinks) gets this part's share.
HEED_API AttentionRun attention_backward_part_into(const AttentionBackwardInputs& inputs,
                                                   const AttentionOptions& options, const CallPart& part,
                                                   const AttentionGradientViews& gradients);

}  // namespace heed
