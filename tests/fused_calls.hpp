// Sizes of random calls that reach every path of the fused kernels.
#pragma once

#include <vector>

#include "random_call.hpp"

namespace heed::test {

inline CallLimits small_calls() {
  CallLimits limits;
  limits.dtypes = {DType::f32, DType::f32, DType::f16, DType::bf16};
  return limits;
}

inline std::vector<Family> mostly_normal() {
  return {Family::normal,   Family::normal, Family::normal,    Family::one_hot,
          Family::negative, Family::spread, Family::ascending, Family::cancelling};
}

/// The number of queries of a call, or of its shortest packed sequence.
inline std::int64_t least_queries(const RandomCall& call) {
  if (!call.options.query_segments) return call.query.size(-2);
  const Tensor offsets = Tensor::copy_of(*call.options.query_segments, DType::i64);
  const auto ends = offsets.values<std::int64_t>();
  std::int64_t least = call.query.size(-2);
  for (std::size_t s = 1; s < ends.size(); ++s) least = std::min(least, ends[s] - ends[s - 1]);
  return least;
}

/// Numbers at the limits of their dtypes.
inline CallLimits extreme_calls() {
  CallLimits limits = small_calls();
  limits.extremes = true;
  return limits;
}

/// Sizes around the tile sizes: 4 and 12 rows, panels of 12, 24 and 48 keys, KV blocks of 192.
inline CallLimits tile_calls() {
  CallLimits limits = small_calls();
  limits.batches = {1, 1, 2};
  limits.kv_heads = {1, 1, 2};
  limits.lengths = {1, 3, 11, 12, 13, 24, 25, 47, 48, 49, 95, 97, 128, 191, 192, 193, 200};
  limits.dims = {1, 3, 15, 16, 17, 24, 28, 31, 48, 59, 64, 80, 111};
  limits.families = mostly_normal();
  return limits;
}

/// Several key splits (spans of 3072 keys) for few rows; most calls have enough work for two threads.
inline CallLimits span_calls() {
  CallLimits limits = small_calls();
  limits.batches = {1};
  limits.kv_heads = {1, 1, 2};
  limits.groups = {1, 2, 2};
  limits.query_lengths = {1, 13, 13, 20};
  limits.lengths = {3072, 3073, 6144, 6145, 6145, 6145};
  limits.dims = {48, 49};
  limits.contiguous = 0.6;
  limits.families = mostly_normal();
  limits.poison = false;
  return limits;
}

/// Several KV blocks, and tasks of more than one block of rows.
inline CallLimits long_calls() {
  CallLimits limits = small_calls();
  limits.batches = {1};
  limits.kv_heads = {1};
  limits.groups = {1, 2};
  limits.lengths = {384, 385, 500, 777};
  limits.dims = {16, 28, 64};
  return limits;
}

/// Packed sequences on both sides of the sizes that choose a path. At 12 rows these are a row group or few
/// rows. At 192 keys a KV block ends, and beyond it the backward pass need not recompute the lse. At 768 keys
/// it splits the keys.
inline CallLimits document_calls() {
  CallLimits limits = small_calls();
  limits.kv_heads = {1, 1, 2};
  limits.groups = {1, 1, 2};
  limits.dims = {5, 16};
  limits.poison = false;  // so that the kernel itself computes the rows
  limits.document_queries = {1, 3, 12, 13, 40, 97};
  limits.document_keys = {1, 49, 150, 192, 193, 300, 700, 801};
  limits.families = mostly_normal();  // so that most rows have an lse small enough to normalise them by
  return limits;
}

/// Packed sequences with as many rows as a task, or more.
inline CallLimits long_document_calls() {
  CallLimits limits = document_calls();
  limits.most_documents = 2;
  limits.document_queries = {384, 385, 400};
  limits.document_keys = {12, 49};
  return limits;
}

/// Full and partial blocks of rows (192) that keep their weights for received masses. Where f32 and f16 use
/// matrix tiles, only bf16 does so.
inline CallLimits received_calls() {
  CallLimits limits = small_calls();
  limits.dtypes = {DType::f32, DType::f16, DType::bf16, DType::bf16, DType::bf16};
  limits.batches = {1, 1, 2};
  limits.kv_heads = {1};
  limits.groups = {1, 2};
  limits.query_lengths = {192, 193, 230};
  limits.lengths = {1, 49, 191, 193, 400};
  limits.dims = {3, 16};
  limits.received = true;
  return limits;
}

inline CallLimits wide_calls() {
  CallLimits limits = small_calls();
  limits.batches = {1};
  limits.kv_heads = {1};
  limits.lengths = {1, 13, 49};
  limits.dims = {128, 192, 255, 256, 512};
  return limits;
}

/// Keys and values that are too large to stay packed.
inline CallLimits uncached_calls() {
  CallLimits limits = small_calls();
  limits.batches = {1};
  limits.kv_heads = {1};
  limits.groups = {1};
  limits.query_lengths = {13, 20};
  limits.lengths = {700, 769};
  limits.dims = {900, 1024};
  limits.families = {Family::normal, Family::one_hot, Family::negative};
  limits.poison = false;
  return limits;
}

/// Few rows against many keys, with dims of whole vectors. The kernel then reads keys and values in place,
/// about 1500 keys before their values.
inline CallLimits decoding_calls() {
  CallLimits limits = small_calls();
  limits.dtypes = {DType::f32, DType::f16, DType::bf16, DType::bf16, DType::bf16};
  limits.groups = {1, 1, 2, 4};
  limits.batches = {1, 1, 2};
  limits.kv_heads = {1, 1, 2};
  limits.query_lengths = {1, 1, 2, 5, 8, 20, 24, 31};
  limits.lengths = {1, 5, 49, 100, 191, 192, 193, 400, 1600};
  limits.dims = {16, 32, 32, 64, 96, 96};
  limits.contiguous = 0.8;
  limits.families = mostly_normal();
  limits.poison = false;
  return limits;
}

/// The same, with NaN and infinity in rows that are masked out, and sometimes in others.
inline CallLimits poisoned_decoding_calls() {
  CallLimits limits = decoding_calls();
  limits.dtypes = {DType::f32, DType::bf16, DType::bf16};
  limits.query_lengths = {1, 5, 8, 20};
  limits.dims = {32, 64};
  limits.poison = true;
  return limits;
}

/// For gradients: several KV blocks and blocks of rows. From 769 keys on, keys are split.
inline CallLimits long_gradient_calls() {
  CallLimits limits = small_calls();
  limits.batches = {1};
  limits.kv_heads = {1};
  limits.lengths = {97, 193, 801};
  limits.dims = {5, 16};
  return limits;
}

/// For gradients by matrix tiles: several panels of 32 or 64 keys and groups of 32 rows, and more keys than a
/// KV block.
inline CallLimits matrix_gradient_calls() {
  CallLimits limits = small_calls();
  limits.dtypes = {DType::bf16};
  limits.batches = {1};
  limits.kv_heads = {1};
  limits.groups = {1, 2};
  limits.query_lengths = {32, 63, 130, 200};
  limits.lengths = {64, 65, 97, 128, 200, 320, 801};
  limits.dims = {16, 33, 64};
  limits.poison = false;
  return limits;
}

/// The same with all keys allowed and scores that are plain products, many of them large.
inline CallLimits bare_gradient_calls() {
  CallLimits limits = matrix_gradient_calls();
  limits.bare = true;
  limits.families = {Family::normal, Family::spread, Family::one_hot, Family::ascending};
  return limits;
}

/// For gradients: numbers of keys on both sides of 192. With more keys the given lse normalises rows, and
/// some rows have an lse that is too large for it.
inline CallLimits threshold_calls() {
  CallLimits limits = small_calls();
  limits.batches = {1, 2};
  limits.query_lengths = {1, 12, 13, 40, 97};
  limits.lengths = {150, 191, 192, 193, 300, 777};
  limits.dims = {5, 16};
  limits.contiguous = 0.6;
  limits.poison = false;
  return limits;
}

}  // namespace heed::test
