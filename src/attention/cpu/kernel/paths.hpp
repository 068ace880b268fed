// The paths that the fused kernels take, as tests count them.
#pragma once

#include <cstdint>

namespace heed::detail::cpu {

enum class Path : std::uint8_t {
  // The forward pass, each counted once a task:
  decode,            // few rows: keys and values are read where they lie
  decode_pairs,      // the same with products of pairs of bf16
  matrix_keys,       // the same of keys by matrix tiles; values are packed
  packed_panels,     // few rows: keys are packed a panel at a time
  packed_kv_blocks,  // many rows: keys are packed a KV block at a time
  packed_pairs,      // the same with products of pairs of bf16
  // Within a task, once a block of rows, a panel of keys or a row:
  repacked,         // a KV block is packed again: they are too many to stay packed
  tail,             // the last panel of a sequence, fewer keys than a panel
  masked,           // tiles by way of memory: a mask cuts them, or scores are more than scale times a product
  outgrown,         // tiles whose scores outgrow their shift
  tracked_late,     // shifts begin to move after the first KV block
  spans_folded,     // a span of rows that see several
  spans_shared,     // a span that a thread computes apart from the others of its rows
  rescaled,         // what a row has summed is multiplied because its shift moves
  dropped,          // dropout
  top_k_tightened,  // candidates are taken away before they are gathered
  top_k_insertion,  // candidates go into lists
  top_k_completed,  // a list goes on with keys of weight 0
  map_wide,         // columns of the map as wide as vectors
  map_narrow,
  // Packed sequences, once a sequence and head (a head that a task takes together with others counts once):
  sequence_in_one_task,
  sequence_in_several_tasks,
  sequence_in_one_step,  // as many keys as are packed at a time, or fewer
  sequence_in_several_steps,
  // What keys receive, from weights that a task kept, once a KV block:
  received_from_kept,
  // The weights pass, once a KV block and a block of rows:
  weights_pass,
  weights_pass_unseen,  // no row of the block sees the KV block
  scores_pass,
  // Rows that the reference computes again:
  fallback,
  // The backward pass, each once a head of a task:
  backward_plain,           // weights by the lse that was given
  backward_recomputed_lse,  // by one that is computed again
  backward_sequence_plain,
  backward_sequence_recomputed_lse,
  // Once a task:
  backward_split_keys,           // keys split into several parts
  backward_sequence_split_keys,  // the same of packed sequences
  backward_sequence_undivided,   // and of those with one part
  backward_bias_sums,            // scores that share a bias
  backward_own_bias,             // each score has one
  // Once a panel of keys and some rows:
  backward_tiles,
  backward_flushed,       // tiles whose weights may run out of exponents
  backward_masked,        // tiles by way of memory
  backward_matrix_tiles,  // the same by matrix tiles
  backward_matrix_flushed,
  backward_matrix_cut,       // panels that a row's position cuts
  backward_matrix_modified,  // scores that are more than scale times a product
  backward_fallback,
  // What boolean and sparse masks leave of some keys, once a step of a task or a KV block of a block of rows:
  mask_empty,  // nothing to any row
  mask_full,   // all to all
  mask_cut,
  spans_together,  // a span of a task beside those of others, whose prefix it shares
  count
};
inline constexpr int kPaths = static_cast<int>(Path::count);

/// `paths` [kPaths], or nullptr where nobody counts. Always inlined, so that targets do not share it.
[[gnu::always_inline]] inline void count_path(std::int64_t* paths, Path path, std::int64_t times = 1) {
  if (paths != nullptr) __atomic_fetch_add(paths + static_cast<int>(path), times, __ATOMIC_RELAXED);
}

}  // namespace heed::detail::cpu
