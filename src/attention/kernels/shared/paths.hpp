// The paths of the fused kernels, which tests count.
#pragma once

#include <cstdint>

namespace heed::detail::cpu {

enum class Path : std::uint8_t {
  // The forward pass, each counted once per task:
  decode,            // few rows: keys and values are read in place
  decode_pairs,      // the same with products of bf16 pairs
  decode_digits,     // the same with codes of int8 or int4 multiplied as bytes
  decode_tiles,      // the same in bf16 by tile registers
  matrix_keys,       // few rows: matrix tiles read keys in place; values are packed
  packed_panels,     // few rows: keys are packed one panel at a time
  packed_kv_blocks,  // many rows: keys are packed one KV block at a time
  packed_pairs,      // the same with products of bf16 pairs
  // Within a task, counted once per block of rows, panel of keys, or row:
  repacked,         // a KV block is packed again, because not all can stay packed
  tail,             // the last panel of a sequence, with fewer keys than a panel
  masked,           // tiles that a mask cuts, or whose scores a rule modifies (a decay alone: not always)
  outgrown,         // tiles whose scores outgrow their shift
  tracked_late,     // shifts start to move after the first KV block
  spans_merged,     // a span of rows that see several spans
  spans_shared,     // a span that a thread computes separately from the other spans of its rows
  rescaled,         // a row's sums are rescaled because its shift moves
  dropped,          // dropout
  top_k_tightened,  // candidates are removed before they are gathered
  top_k_insertion,  // candidates are inserted into lists
  top_k_completed,  // a list is completed with keys of weight 0
  map_wide,         // map columns at least as wide as vectors
  map_narrow,
  // Packed sequences, once per sequence and head (heads that share a task count once):
  sequence_in_one_task,
  sequence_in_several_tasks,
  sequence_in_one_step,  // at most as many keys as are packed at a time
  sequence_in_several_steps,
  // Sums of `received`, from weights that a task kept, once per KV block:
  received_from_kept,
  // The weights pass, once per KV block and block of rows:
  weights_pass,
  weights_pass_unseen,  // no row of the block sees the KV block
  scores_pass,
  // Rows that the reference recomputes:
  fallback,
  // The backward pass, each once per head of a task:
  backward_plain,           // weights from the given lse
  backward_recomputed_lse,  // weights from a recomputed lse
  backward_sequence_plain,
  backward_sequence_recomputed_lse,
  // Once per task:
  backward_split_keys,           // the keys are split into several parts
  backward_sequence_split_keys,  // the same for packed sequences
  backward_sequence_undivided,   // packed sequences with one part
  backward_bias_sums,            // several scores share a bias
  backward_own_bias,             // each score has its own bias
  // Once per panel of keys and some rows:
  backward_tiles,
  backward_flushed,       // tiles whose weights may underflow
  backward_masked,        // tiles by way of memory
  backward_matrix_tiles,  // the same by matrix tiles
  backward_matrix_flushed,
  backward_matrix_cut,       // panels that a row's position cuts
  backward_matrix_modified,  // scores are more than scale times a product
  backward_fallback,
  // Results of boolean and sparse masks for some keys, once per step of a task, or per KV block of a block of
  // rows:
  mask_empty,  // no row may see any key
  mask_full,   // all rows may see all keys
  mask_cut,
  spans_together,  // a task's span beside spans of other tasks that share its prefix
  count
};
inline constexpr int kPaths = static_cast<int>(Path::count);

/// Whether few rows read keys and values in place.
[[gnu::always_inline]] constexpr bool decodes(Path path) { return path <= Path::decode_tiles; }

/// `paths` is [kPaths], or nullptr if nothing counts. Always inlined, so that targets do not share it.
[[gnu::always_inline]] inline void count_path(std::int64_t* paths, Path path, std::int64_t times = 1) {
  if (paths != nullptr) __atomic_fetch_add(paths + static_cast<int>(path), times, __ATOMIC_RELAXED);
}

}  // namespace heed::detail::cpu
