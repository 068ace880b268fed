// The data that the driver passes to a target. It is plain: a target compiled for one instruction set must
// share no inline function with code that runs anywhere.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/kernels/shared/paths.hpp"
#include "attention/problem/cache_rows.hpp"
#include "attention/problem/call.hpp"

namespace heed::detail::cpu {

constexpr std::int64_t bits_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
      return 64;
    case DType::f32:
    case DType::i32:
      return 32;
    case DType::f16:
    case DType::bf16:
      return 16;
    default:
      return 8;
  }
}

/// Dropout: a weight becomes 0 if its random word is below `threshold`; else it is multiplied by keep_scale.
struct Drop {
  std::uint32_t threshold;  ///< 0: off
  float keep_scale;
  std::uint64_t seed, offset;
  PartPlace place;
};

/// The result of a row.
enum class RowStatus : std::uint8_t {
  done,
  out_of_range,  ///< its scores exceed what f32 holds; nothing of it was written
  output_only,   ///< its output has a NaN or an infinity: values, or their sum, exceed what f32 holds
};

/// Notes of a pass about each query row, for the next pass: [B, H, Lq].
struct RowNotes {
  /// A weight is exp2(score - row_shift) * row_inverse; row_sink is exp(sink - lse). forward writes them if
  /// they have memory; the weights pass and the backward pass read them.
  Output row_shift, row_inverse, row_sink;
  /// The result of each row; the driver zeroes it. It may only be null in the backward pass, where null means
  /// that every row takes part.
  RowStatus* row_status;
};

/// Unnormalised weights of all rows, [B, H, Lq] of [keys]. Calls with few rows keep them, because a second
/// pass for results that need the final sums would read the keys again. `shifts` holds the shift that each KV
/// block of a row was computed with, or kNotKept if no weight was written.
struct KeptWeights {
  float* weights;  ///< nullptr: not kept
  float* shifts;
  std::int64_t keys, kv_blocks;  ///< per row
};
inline constexpr float kNotKept = 0x1p30f;

/// How far ahead, and into which cache, calls with few rows prefetch keys and values. The best choice depends
/// on the processor.
struct ReadAhead {
  std::int64_t bytes, bytes16;  ///< for f32, and for 16-bit types
  std::int64_t rows;            ///< at most
  bool to_first_cache;          ///< else to the second-level cache
  /// Values are prefetched while the keys of their KV block are read, and the next keys with values.
  bool by_phases = false;
  bool by_lines = false;  ///< rows of keys are prefetched line by line, as others are read, not all at once
};

/// The arguments that are the same for all tasks.
struct Arguments : ProblemShape, ScoreRules, ResultOutputs, RowNotes {
  Operand query, key, value;
  std::int64_t group;      ///< query heads per key head
  std::int64_t most_rows;  ///< queries of the longest sequence
  /// The rules' scale and softcap times log2(e): scores are in units of log 2.
  float log2_scale, log2_softcap;
  const MaskSource* sparse_masks;
  std::int64_t sparse_mask_count;
  const CacheRows* cache;  ///< if not null, key and value hold the cache's rows by row number
  Drop dropout;
  KeptWeights kept;
  ReadAhead ahead;
  bool has_byte_dots;       ///< the processor has dot products of bytes
  bool keeps_task_weights;  ///< forward_received() takes the call; the rows of a task are of one head
  bool keeps_row_sums;      ///< RowNotes get memory for shifts and sums before forward() runs
  std::int64_t* paths;      ///< [kPaths], counted for tests; else nullptr
};

/// Rows [row_begin, row_end) of `head_count` query heads from `head_begin` on, all of one key head, against
/// keys [key_begin, key_end). Row i stands at position i + position_offset. Key j stands at positions[j -
/// key_begin], or at j - key_begin.
struct Task {
  std::int64_t batch, head_begin, head_count;
  std::int64_t row_begin, row_end;
  std::int64_t key_begin, key_end;
  std::int64_t position_offset;
  std::int64_t segment_row_end;  ///< the end of the segment's rows, for "the last W rows"
  std::int64_t sequence = 0;     ///< index in the cache, if there is one
  const std::int64_t* positions = nullptr;
  std::int64_t first_key = 0;  ///< the tensors of keys and values begin with this key
};

/// Some KV blocks of one head for the weights pass: keys [block_begin, block_end), counted within the
/// segment, against all its rows.
struct WeightsTask {
  Task rows;
  std::int64_t block_begin, block_end;
};

/// Result of a backward task. out_of_range: numbers exceed what f32 holds (NaN, infinities, products of norms
/// over 2^19, scores over 2^20 with bias and ALiBi). The driver then finds these rows, leaves them out, and
/// starts again.
enum class Status : std::uint8_t { done, out_of_range };

/// The sizes that a target works with; the driver plans tasks by them.
struct Tiling {
  std::int64_t rows;         ///< query rows per task
  std::int64_t step;         ///< keys packed at a time
  std::size_t bytes;         ///< working memory per thread
  std::size_t state_bytes;   ///< memory for the softmax states of a task's rows
  Path path;                 ///< the way to the keys: one of the first seven, or weights_pass
  std::int64_t cached_keys;  ///< keys in packed KV blocks that stay in working memory; in the weights pass,
                             ///< keys per task
};

/// Keys per span, counted within their segment. A row's sums over one span do not depend on other spans, and
/// spans are merged in order (softmax_state.hpp). So threads may share a row's spans without changing its
/// bits.
inline constexpr std::int64_t kSpan = 3072;

/// A task, and the memory for its rows' states over one span.
struct SpanTask {
  const Task* task;
  void* states;
};
/// Most tasks that go over a span together; what they share stays in the second-level cache.
inline constexpr std::int64_t kTasksTogether = 16;

/// The sums of a task's weights, for each key of the segment from `first_key` on, up to whole KV blocks.
struct TaskSums {
  float* data;
  std::int64_t first_key;
};

/// The weights of a thread's last task, kept until its next task overwrites them (forward/received.hpp).
struct KeptTask {
  std::int64_t row_count;       ///< Tiling::rows
  float* weights;               ///< [KV blocks of the call][row_count][kv_block], unnormalised
  float* shifts;                ///< [KV blocks][row_count]: shifts that the weights were computed with
  float *last_shift, *inverse;  ///< [row_count]: the rows' final shifts, and 1 / their sums
  std::int64_t rows = 0;        ///< rows of this task
  std::int64_t next_key = 0, end_key = 0;  ///< the KV blocks that are not summed yet
  TaskSums sums = {};
};

struct BackwardArguments;
struct QueryParts;
struct BackwardTask;
struct BackwardTiling;

/// ggml's block formats of weights (products/blocks.hpp).
enum class BlockKind : int {
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  iq4_nl,
  mxfp4,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_xs
};
inline constexpr int kBlockKinds = 13;

/// A row of x in signed bytes: x[i] is scales[i / 32] codes[i], nearly. The length is a multiple of 32.
struct CodedRow {
  const std::int8_t* codes;
  const float* scales;
  const float *sums, *run_sums;  ///< of each four numbers of x, and of each run
  const std::int32_t* start;     ///< of each four codes: their sum times -BlockProducts::less
};

/// The functions for rows of one format.
struct BlockProducts {
  int summed;        ///< add_dots() reads the sum of each so many numbers of x; 0: none
  float sum_factor;  ///< of these sums
  /// Converts `count` numbers, a multiple of the block's, to f32.
  void (*read)(const void* from, std::int64_t count, float* to);
  /// y[output] += sum_i x[i] w[output][i] over `depth` numbers, a multiple of the block's.
  void (*add_dots)(const float* x, const float* sums, const void* rows, std::int64_t depth,
                   std::int64_t outputs, float* y);
  /// The same for a row of x in signed bytes. nullptr in units without dot products of bytes.
  void (*add_coded_dots)(const CodedRow& x, const void* rows, std::int64_t depth, std::int64_t outputs,
                         float* y);
  int less;  ///< codes of weights are unsigned bytes less this
};

/// c[row][output] += sum_i a[row][i] b[output][i], for 32 outputs, in bf16, summed in f32. A lane holds a
/// pair of bf16; a step has 16 pairs.
struct Bf16Panel {
  float* a;                  ///< tiles [rows / 16][steps], each [16][16]
  std::int64_t rows, a_row;  ///< a multiple of 16; the distance of rows of tiles
  float* b;                  ///< [16 steps][32]
  std::int64_t steps;
  float* c;  ///< [rows][32]
  std::int64_t c_stride;
};

/// y[row][output] += sum_i x[row][i] w[output][i]. The strides are between rows.
template <class Number>
struct DotProducts {
  const float* x;
  std::int64_t x_stride;
  const Number* w;
  std::int64_t w_stride;
  float* y;
  std::int64_t y_stride;
  std::int64_t rows, outputs, depth;
};

/// Products of rows with a model's weights, and activation functions (products/products.hpp).
struct Products {
  int tile_rows = 0, tile_outputs = 0;
  void (*add_tile)(const float* a, const float* b, std::int64_t depth, float* c,
                   std::int64_t stride) = nullptr;
  void (*pack_transposed)(const float* rows, std::int64_t stride, int count, std::int64_t depth, int width,
                          float* to) = nullptr;
  void (*add_dots)(const DotProducts<float>&) = nullptr;
  void (*add_dots_bf16)(const DotProducts<std::uint16_t>&) = nullptr;
  void (*add_dots_f16)(const DotProducts<std::uint16_t>&) = nullptr;
  const BlockProducts* blocks = nullptr;  ///< by BlockKind
  bool needs_byte_dots = false;           ///< add_coded_dots() needs VNNI, which the processor lacks
  void (*add_four_rows)(const float* factor, const float* w, std::int64_t w_stride, std::int64_t size,
                        float* y) = nullptr;
  void (*widen_bf16)(const std::uint16_t* from, std::int64_t size, float* to) = nullptr;
  void (*widen_f16)(const std::uint16_t* from, std::int64_t size, float* to) = nullptr;
  /// These work in place. Errors are at most 2^-21 |x| (tests/products_test.cpp walks the floats).
  void (*gelu)(float* x, std::int64_t size) = nullptr;
  void (*gelu_tanh)(float* x, std::int64_t size) = nullptr;
  void (*silu)(float* x, std::int64_t size) = nullptr;
};

/// c[row][column] += sum_k a[row][k] b[k][column], with terms in order of k. `columns` is a multiple of
/// kF64Columns.
struct F64Product {
  const double* a;
  std::int64_t a_row, a_step;  ///< strides of rows and of k
  const double* b;
  std::int64_t b_row;
  double* c;
  std::int64_t c_row;
  std::int64_t rows, depth, columns;
};
inline constexpr std::int64_t kF64Columns = 8;

/// One unit: kernels for one instruction set. A target has one unit that computes everything. Units before it
/// take only some calls.
struct Kernels {
  const char* name;
  const char* takes;  ///< the calls that it takes, in words
  bool (*takes_forward)(const Arguments&);
  bool (*takes_weights_pass)(const Arguments&);  ///< without forward()'s results
  bool (*takes_backward)(const BackwardArguments&);

  /// The members from here to weights_pass are nullptr in a unit for gradients alone.
  Tiling (*plan_tiling)(const Arguments&) = nullptr;
  Tiling (*plan_weights_pass)(const Arguments&) = nullptr;  ///< without forward()'s results
  /// `workspace` has Tiling::bytes bytes, aligned to 64. Call reset() before its first use in a call.
  void (*reset)(const Arguments&, const Tiling&, void* workspace) = nullptr;
  /// These mark the rows that they left out in Arguments::row_status.
  void (*forward)(const Arguments&, const Tiling&, const Task&, void* workspace) = nullptr;
  /// forward() for a task of one head, whose weights stay in `kept`. They replace the weights of the thread's
  /// previous task, whose sums are then complete. This task's `sums`, zeroed by the caller, are complete
  /// after the thread's next task or after finish_received(). Only for calls that takes_received() takes; set
  /// Arguments::keeps_task_weights before plan_tiling().
  void (*forward_received)(const Arguments&, const Tiling&, const Task&, void* workspace, KeptTask& kept,
                           const TaskSums& sums) = nullptr;
  void (*finish_received)(const Arguments&, KeptTask& kept) = nullptr;
  bool (*takes_received)(const Arguments&) = nullptr;
  /// forward() in parts that several threads can run. attend_span() computes the states of 1 to
  /// kTasksTogether tasks' rows over span number `span` alone; it needs as many times Tiling::bytes.
  /// merge_spans() computes results from the states of `spans` consecutive spans in `states`, all that the
  /// rows see. Not for calls with a map.
  void (*attend_span)(const Arguments&, const Tiling&, const SpanTask* tasks, std::int64_t count,
                      std::int64_t span, void* workspace) = nullptr;
  void (*merge_spans)(const Arguments&, const Tiling&, const Task&, std::int64_t spans, void* states,
                      void* workspace) = nullptr;
  /// The same for keys that arrive span by span. clear_states() makes empty states; merge_states() merges a
  /// span's states into them and destroys those; finish_states() computes the results. The last two need no
  /// keys.
  void (*clear_states)(const Arguments&, const Tiling&, const Task&, void* states) = nullptr;
  void (*merge_states)(const Arguments&, const Tiling&, const Task&, void* span, void* states,
                       void* workspace) = nullptr;
  void (*finish_states)(const Arguments&, const Tiling&, const Task&, void* states,
                        void* workspace) = nullptr;
  void (*weights_pass)(const Arguments&, const Tiling&, const WeightsTask&, void* workspace) = nullptr;
  std::int64_t kv_block = 0;  ///< keys whose weights share a shift

  /// Working memory of a task with these rows and keys; it needs no preparation. The members from here to
  /// add_query_parts are nullptr in units without a backward pass.
  std::size_t (*backward_bytes)(const BackwardArguments&, std::int64_t rows, std::int64_t keys) = nullptr;
  Status (*backward)(const BackwardArguments&, const BackwardTiling&, const BackwardTask&,
                     void* workspace) = nullptr;
  /// Sums the parts of the query gradient for `rows` rows of a head from `row` on. `workspace` holds one row.
  void (*add_query_parts)(const BackwardArguments&, const QueryParts&, std::int64_t batch, std::int64_t head,
                          std::int64_t row, std::int64_t rows, void* workspace) = nullptr;
  /// Set in units of matrix tiles for bf16 alone. round_bf16() rounds to nearest, ties to even.
  void (*add_bf16_panel)(const Bf16Panel&) = nullptr;
  void (*round_bf16)(const float* from, std::int64_t size, std::uint16_t* to) = nullptr;
  /// The members below are set only in the unit that computes everything.
  void (*scores_pass)(const Arguments&, const Tiling&, const WeightsTask&, void* workspace) = nullptr;
  void (*add_f64_product)(const F64Product&) = nullptr;
  Products products = {};
};

}  // namespace heed::detail::cpu
