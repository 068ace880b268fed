// The data that the driver (execute/backward.cpp) passes to a target beside the forward's arguments.hpp;
// plain data.
#pragma once

#include "attention/kernels/shared/arguments.hpp"

namespace heed::detail::cpu {

/// The gradients of a call. `forward` has the inputs and everything that shapes the weights. lse is its only
/// result, and is read.
struct BackwardArguments {
  Arguments forward;
  float scale;  ///< scale of a score, in natural units
  /// [segments, H]: whether weights come from forward.row_shift and row_inverse instead of lse.
  const char* recomputes_lse;
  Operand output, lse;
  Operand grad_output, grad_lse;
  Output grad_query, grad_key, grad_value;
  Output grad_bias;  ///< set if each score has its own bias
  /// Set if several scores share a bias: the sums that become grad_bias, and their strides.
  double* bias_sums;
  std::int64_t bias_stride[4];
  double* key_sums;    ///< [B, H, Lk]: the sums of score gradients over the rows; nullptr: not wanted
  Output delta;        ///< [B, H, Lq]: <g, out> - gradient of lse, written by tasks of split 0
  std::int64_t heads;  ///< H
};

/// Keys [key_begin, key_end) of a segment and one key head, against all the segment's rows of all query heads
/// that read it. rows.head_begin and rows.head_count name those heads.
struct BackwardTask {
  Task rows;
  std::int64_t key_begin, key_end;  ///< within the segment
  std::int64_t split, splits;       ///< number of this split, and of splits in the segment
  std::int64_t segment;
  /// Output of the task's part of the query gradient: [rows][head_count][D], unscaled. nullptr if the segment
  /// has one split; then the gradient itself is written.
  float* query_part = nullptr;
};

/// The splits' parts of the query gradient, for some rows of a head. Row r of split s is at data + s *
/// split_stride + r * row_stride.
struct QueryParts {
  const float* data;
  std::int64_t splits, split_stride, row_stride;
};

struct BackwardTiling {
  std::int64_t rows, keys;  ///< of the largest task
  std::size_t bytes;        ///< working memory per thread
};

}  // namespace heed::detail::cpu
