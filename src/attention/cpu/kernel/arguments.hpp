// What the driver hands to a target: plain data, so that a target compiled for one instruction
// set shares no inline function with code that must run anywhere.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/cpu/kernel/paths.hpp"
#include "attention/kv_cache/cache_rows.hpp"
#include "attention/masks/mask_source.hpp"
#include "heed/result_set.hpp"

namespace heed::detail::cpu {

/// Element types, with the values of heed::DType; and halves of bytes, which caches alone have.
enum class Type : std::uint8_t { f64, f32, f16, bf16, i64, i32, u8, boolean, u4 };

constexpr std::int64_t bits_of(Type type) {
  switch (type) {
    case Type::f64:
    case Type::i64:
      return 64;
    case Type::f32:
    case Type::i32:
      return 32;
    case Type::f16:
    case Type::bf16:
      return 16;
    case Type::u4:
      return 4;
    default:
      return 8;
  }
}

/// A tensor seen as [B, H, L, C]; strides count elements. data == nullptr: not given.
struct Input {
  const void* data;
  Type type;
  std::int64_t stride[4];
};
struct Output {
  void* data;
  Type type;
  std::int64_t stride[4];
};

/// Dropout: a weight is 0 where its random word is below `threshold`, and times keep_scale elsewhere.
struct Drop {
  std::uint32_t threshold;  ///< 0: off
  float keep_scale;
  std::uint64_t seed, offset;
  PartPlace place;
};

/// What became of a row.
enum class RowStatus : std::uint8_t {
  done,
  out_of_range,  ///< its scores are beyond what f32 holds: nothing of it was written
  output_only,   ///< its output has a NaN or an infinity: values, or their sum, are beyond what f32 holds
};

struct Shape {
  std::int64_t heads;
  std::int64_t group;  ///< query heads a key head
  std::int64_t query_length, key_length;
  std::int64_t most_rows;  ///< queries of the longest sequence: those of a task at most
  std::int64_t head_dim, value_dim;
};

/// What becomes of a score, and which scores there are (rules/score_rules.hpp).
struct ScoreRules {
  float scale;    ///< times log2(e): scores are kept in units of log 2
  float softcap;  ///< times log2(e); 0: off
  ScoreModSource score_mod;
  Input bias, alibi_slopes, sinks, mask;
  const MaskSource* sparse_masks;
  std::int64_t sparse_mask_count;
  bool causal;
  std::int64_t window_left, window_right;  ///< -1: open
};

/// Where results go.
struct ResultTargets : ResultSet<Output> {
  int scores_stage;    ///< 0 raw, 1 after softcap, 2 after bias and masks
  std::int64_t top_k;  ///< 0 where nobody takes them; of the map, too
  std::int64_t received_last_rows;
  std::int64_t map_rows, map_columns;
};

/// What one pass writes of each query row for the next: [B, H, Lq].
struct RowNotes {
  /// What turns exp2(score - shift) into a weight, and exp(sink - lse). Written by forward where they have
  /// memory, read by the weights pass and by the backward pass.
  Output row_shift, row_inverse, row_sink;
  /// Zeroed by the driver: what became of each row. Not null but for the backward pass, where null says that
  /// every row takes part.
  RowStatus* row_status;
};

/// Unnormalised weights of all rows, [B, H, Lq] of [keys], where few rows keep them as they see them: a pass
/// of its own for what needs the final sums would read the keys once more. With each KV block of a row the
/// shift that its weights were taken with; kNotKept where no weight was written.
struct KeptWeights {
  float* weights;  ///< nullptr: not kept
  float* shifts;
  std::int64_t keys, kv_blocks;  ///< of a row
};
inline constexpr float kNotKept = 0x1p30f;

/// How far on, and into which cache, few rows ask memory for keys and values: which of it is fast depends on
/// the processor.
struct ReadAhead {
  std::int64_t bytes, bytes16;  ///< of f32, and of 16 bits
  bool to_first_cache;          ///< else to the second
};

/// The part of a problem that is the same for all tasks.
struct Arguments : Shape, ScoreRules, ResultTargets, RowNotes {
  Input query, key, value;
  const CacheRows* cache;  ///< not null: key and value hold its rows by their numbers
  Drop dropout;
  KeptWeights kept;
  ReadAhead ahead;
  bool keeps_task_weights;  ///< forward_received() takes the call: tasks have rows of one head
  std::int64_t* paths;      ///< [kPaths], counted by tests; else nullptr
};

/// Rows [row_begin, row_end) of `head_count` query heads from `head_begin` on (all of one key head) against
/// the keys [key_begin, key_end). Row i stands at position i + position_offset, key j at
/// positions[j - key_begin], or at j - key_begin.
struct Task {
  std::int64_t batch, head_begin, head_count;
  std::int64_t row_begin, row_end;
  std::int64_t key_begin, key_end;
  std::int64_t position_offset;
  std::int64_t segment_row_end;  ///< the end of the segment's rows, for "the last W rows"
  std::int64_t sequence = 0;     ///< of the cache, where there is one
  const std::int64_t* positions = nullptr;
  std::int64_t first_key = 0;  ///< that memory holds: the tensors of keys and values begin with it
};

/// Some KV blocks of one head for the weights pass: keys [block_begin, block_end), counted within the
/// segment, against all its rows.
struct WeightsTask {
  Task rows;
  std::int64_t block_begin, block_end;
};

/// Why a task of the backward pass gave up: numbers are beyond what f32 holds (NaN, infinities, products of
/// norms over 2^19, scores over 2^20 with bias and ALiBi). The driver finds the rows concerned, leaves them
/// out, and starts again.
enum class Status : std::uint8_t { done, out_of_range };

/// The sizes that a target works with; the driver plans tasks by them.
struct Tiling {
  std::int64_t rows;         ///< query rows a task
  std::int64_t step;         ///< keys packed at a time
  std::size_t bytes;         ///< working memory a thread
  std::size_t state_bytes;   ///< memory for the softmax states of a task's rows
  bool keys_in_place;        ///< matrix tiles read keys where they lie
  std::int64_t cached_keys;  ///< packed KV blocks that stay in the working memory, in keys; the keys of a
                             ///< task of the weights pass
};

/// Keys a span, counted within their segment: what a row sums of one span does not depend on another, and
/// spans are folded in their order (softmax_state.hpp). So threads may share a row's spans and its bits stay
/// the same.
inline constexpr std::int64_t kSpan = 3072;

/// A task, and the memory for the states of its rows over one span.
struct SpanTask {
  const Task* task;
  void* states;
};
/// Tasks that go over a span side by side, at most: what they share stays in the second cache.
inline constexpr std::int64_t kTasksTogether = 16;

/// What the rows of a task give to each key of its segment from `first_key` on, up to whole KV blocks.
struct TaskSums {
  float* data;
  std::int64_t first_key;
};

/// The weights of the task that a thread did last, until its next task overwrites them (kernel/received.hpp).
struct KeptTask {
  std::int64_t row_count;                  ///< Tiling::rows
  float* weights;                          ///< [KV blocks of the call][row_count][kv_block], unnormalised
  float* shifts;                           ///< [KV blocks][row_count]: those that weights were taken with
  float *last_shift, *inverse;             ///< [row_count]: of the rows, at the end
  std::int64_t rows = 0;                   ///< of the task
  std::int64_t next_key = 0, end_key = 0;  ///< the KV blocks that are not summed yet
  TaskSums sums = {};
};

struct BackwardArguments;
struct QueryParts;
struct BackwardTask;
struct BackwardTiling;

/// Products with a model's weights and what lies between them (kernel/products.hpp).
struct Products {
  int tile_rows = 0, tile_outputs = 0;
  void (*add_tile)(const float* a, const float* b, std::int64_t depth, float* c,
                   std::int64_t stride) = nullptr;
  void (*pack_transposed)(const float* rows, std::int64_t stride, int count, std::int64_t depth, int width,
                          float* to) = nullptr;
  void (*add_dots)(const float* x, std::int64_t x_stride, std::int64_t rows, const float* w,
                   std::int64_t w_stride, std::int64_t outputs, std::int64_t depth, float* y,
                   std::int64_t y_stride) = nullptr;
  void (*add_four_rows)(const float* factor, const float* w, std::int64_t w_stride, std::int64_t size,
                        float* y) = nullptr;
  void (*widen_bf16)(const std::uint16_t* from, std::int64_t size, float* to) = nullptr;
  void (*widen_f16)(const std::uint16_t* from, std::int64_t size, float* to) = nullptr;
  /// In place. Errors are at most 2^-21 |x| (tests/products_test.cpp walks the floats).
  void (*gelu)(float* x, std::int64_t size) = nullptr;
  void (*gelu_tanh)(float* x, std::int64_t size) = nullptr;
  void (*silu)(float* x, std::int64_t size) = nullptr;
};

/// c[row][column] += sum_k a[row][k] b[k][column], terms in order of k. `columns` is a multiple of
/// kF64Columns.
struct F64Product {
  const double* a;
  std::int64_t a_row, a_step;  ///< from a row to the next, and from k to k + 1
  const double* b;
  std::int64_t b_row;
  double* c;
  std::int64_t c_row;
  std::int64_t rows, depth, columns;
};
inline constexpr std::int64_t kF64Columns = 8;

/// One unit: kernels for one instruction set. A target has one that computes everything, and may have others
/// before it for the calls that they take.
struct Kernels {
  const char* name;
  bool (*takes_forward)(const Arguments&);
  bool (*takes_weights_pass)(const Arguments&);  ///< of a call without what forward has written
  bool (*takes_backward)(const BackwardArguments&);

  /// nullptr in a unit for gradients alone, as far as weights_pass.
  Tiling (*plan)(const Arguments&) = nullptr;
  Tiling (*plan_weights_pass)(const Arguments&) = nullptr;  ///< of a call without what forward has written
  /// `workspace` is 64-byte aligned, of Tiling::bytes; reset() before its first use in a call.
  void (*reset)(const Arguments&, const Tiling&, void* workspace) = nullptr;
  /// These note in Arguments::row_status which rows they left out.
  void (*forward)(const Arguments&, const Tiling&, const Task&, void* workspace) = nullptr;
  /// forward() of a task of one head, whose weights stay in `kept` in place of those of the task before: the
  /// sums of that one are then complete. `sums` of this one, zeroed, are complete after the thread's next
  /// task, or after finish_received(). Of the calls that takes_received() takes; their
  /// Arguments::keeps_task_weights is set before plan().
  void (*forward_received)(const Arguments&, const Tiling&, const Task&, void* workspace, KeptTask& kept,
                           const TaskSums& sums) = nullptr;
  void (*finish_received)(const Arguments&, KeptTask& kept) = nullptr;
  bool (*takes_received)(const Arguments&) = nullptr;
  /// forward() in parts that several threads can do: the states of the rows of 1 to kTasksTogether tasks
  /// after span number `span` alone, and results from the states of `spans` spans, all that the rows see, one
  /// after the other in `states`. Of calls without a map. attend_span() works in as many times Tiling::bytes.
  void (*attend_span)(const Arguments&, const Tiling&, const SpanTask* tasks, std::int64_t count,
                      std::int64_t span, void* workspace) = nullptr;
  void (*fold_spans)(const Arguments&, const Tiling&, const Task&, std::int64_t spans, void* states,
                     void* workspace) = nullptr;
  /// The same where keys arrive span by span: `states` of no key; a span's, which are used up, join them; and
  /// results from them. The last two need no keys.
  void (*clear_states)(const Arguments&, const Tiling&, const Task&, void* states) = nullptr;
  void (*fold_span)(const Arguments&, const Tiling&, const Task&, void* span, void* states,
                    void* workspace) = nullptr;
  void (*finish_states)(const Arguments&, const Tiling&, const Task&, void* states,
                        void* workspace) = nullptr;
  void (*weights_pass)(const Arguments&, const Tiling&, const WeightsTask&, void* workspace) = nullptr;
  /// Whether forward() keeps the weights of a call where Arguments::kept has memory for them; no pass is then
  /// needed for what they tell.
  bool (*keeps_weights)(const Arguments&, const Tiling&) = nullptr;
  std::int64_t kv_block = 0;  ///< keys whose weights have one shift

  /// Working memory for a task of so many rows and keys; it need not be prepared. nullptr in units
  /// that take no backward pass, as far as add_query_parts.
  std::size_t (*backward_bytes)(const BackwardArguments&, std::int64_t rows, std::int64_t keys) = nullptr;
  Status (*backward)(const BackwardArguments&, const BackwardTiling&, const BackwardTask&,
                     void* workspace) = nullptr;
  /// Adds up parts of the query's gradient for `rows` rows of a head from `row` on. `workspace` holds a row.
  void (*add_query_parts)(const BackwardArguments&, const QueryParts&, std::int64_t batch, std::int64_t head,
                          std::int64_t row, std::int64_t rows, void* workspace) = nullptr;
  /// nullptr but in the unit that computes everything.
  void (*scores_pass)(const Arguments&, const Tiling&, const WeightsTask&, void* workspace) = nullptr;
  void (*add_f64_product)(const F64Product&) = nullptr;
  Products products = {};
};

}  // namespace heed::detail::cpu
