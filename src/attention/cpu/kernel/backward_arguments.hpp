// What the driver (fused_backward.cpp) hands to a target, beside the forward's call.hpp: plain data.
#pragma once

#include "attention/cpu/kernel/arguments.hpp"

namespace heed::detail::cpu {

/// The gradients of a call. `forward` has the inputs and all that shapes the weights; of its results only
/// lse, which is read.
struct BackwardArguments {
  Arguments forward;
  float scale;  ///< of a score, in natural units
  /// [segments, H]: whether weights come from forward.row_shift and row_inverse, and not from lse.
  const char* recomputes_lse;
  Input output, lse;
  Input grad_output, grad_lse;
  Output grad_query, grad_key, grad_value;
  Output grad_bias;  ///< where each score has a bias of its own
  /// Where several share one: sums for grad_bias, strides as in an Output.
  double* bias_sums;
  std::int64_t bias_stride[4];
  Output delta;        ///< [B, H, Lq]: <g, out> - gradient of lse, written by tasks of split 0
  std::int64_t heads;  ///< H
};

/// Keys [key_begin, key_end) of a segment, for one key head: against all rows of the segment of all query
/// heads that read it. rows.head_begin and rows.head_count name those heads.
struct BackwardTask {
  Task rows;
  std::int64_t key_begin, key_end;  ///< within the segment
  std::int64_t split, splits;       ///< which one, of how many of the segment
  std::int64_t segment;
  /// Where its part of the query's gradient goes: [rows][head_count][D], unscaled. nullptr: the segment has
  /// one split, and the gradient is written.
  float* query_part = nullptr;
};

/// The parts of the query's gradient that the splits have of some rows of a head. Row r of split s is at
/// data + s * split_stride + r * row_stride.
struct QueryParts {
  const float* data;
  std::int64_t splits, split_stride, row_stride;
};

struct BackwardTiling {
  std::int64_t rows, keys;  ///< of the longest task
  std::size_t bytes;        ///< working memory a thread
};

}  // namespace heed::detail::cpu
