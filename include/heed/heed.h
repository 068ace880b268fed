// heed for C (C99), and for every language that calls C: scaled dot-product attention that can also return
// its weights. heed/attention/attention.hpp explains what it computes and what every option means.
//
//   heed_tensor q, k, v, out;                                  // [B, H, L, D], row-major
//   heed_tensor_init(&q, queries, HEED_F32, 4, (const int64_t[]){1, 8, 128, 64});
//   ...
//   heed_attention_options options;
//   heed_attention_options_init(&options);
//   options.causal = 1;
//   heed_attention_outputs outputs;
//   heed_attention_outputs_init(&outputs);
//   outputs.output = &out;
//   if (heed_attention(&q, &k, &v, &options, &outputs) != HEED_OK) puts(heed_last_error());
//
// Functions may be called from several threads at once, but a call that changes a heed_kv_cache needs
// exclusive access to it. No function keeps a pointer that it was given, except for caches over the caller's
// memory.
#ifndef HEED_HEED_H_
#define HEED_HEED_H_

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32) || defined(HEED_STATIC)
#define HEED_C_API
#else
#define HEED_C_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/// Result of a function.
typedef enum heed_status {
  HEED_OK = 0,
  HEED_INVALID_ARGUMENT = 1,  ///< the call is wrong; nothing was written
  HEED_IO = 2,                ///< a file is missing, unreadable or broken
  HEED_OUT_OF_MEMORY = 3,
  HEED_INTERNAL = 4  ///< a bug in heed
} heed_status;

/// The element types of tensors.
typedef enum heed_dtype {
  HEED_F64 = 0,
  HEED_F32 = 1,
  HEED_F16 = 2,
  HEED_BF16 = 3,
  HEED_I64 = 4,
  HEED_I32 = 5,
  HEED_U8 = 6,
  HEED_BOOL = 7  ///< one byte; 0 is false
} heed_dtype;

/// The position of query 0: heed::Align.
typedef enum heed_align { HEED_TOP_LEFT = 0, HEED_BOTTOM_RIGHT = 1 } heed_align;
/// The stage of returned scores: heed::ScoresStage.
typedef enum heed_scores_stage {
  HEED_SCORES_RAW = 0,
  HEED_SCORES_SOFTCAP = 1,
  HEED_SCORES_BIAS = 2
} heed_scores_stage;
/// The implementation that runs a call: heed::Kernel.
typedef enum heed_kernel {
  HEED_KERNEL_AUTOMATIC = 0,
  HEED_KERNEL_REFERENCE = 1,
  HEED_KERNEL_FUSED = 2
} heed_kernel;

#define HEED_MAX_RANK 5

/// A view of caller memory. Inputs are only read, although `data` is not const.
typedef struct heed_tensor {
  void* data;                      ///< element (0, ..., 0); may be NULL if there are no elements
  int32_t dtype;                   ///< a heed_dtype
  int32_t rank;                    ///< 1 to HEED_MAX_RANK
  int64_t shape[HEED_MAX_RANK];    ///< the first `rank` are read
  int64_t strides[HEED_MAX_RANK];  ///< in elements; may be negative, and 0 for inputs only
} heed_tensor;

/// Fills in `tensor` with row-major strides. `dtype` is a heed_dtype, `shape` has `rank` sizes.
HEED_C_API heed_status heed_tensor_init(heed_tensor* tensor, void* data, int32_t dtype, int32_t rank,
                                        const int64_t* shape);

/// A mask in O(L) memory (heed/attention/masks.hpp), made by the functions heed_mask_… below. Immutable; any
/// number of calls may use it at once.
typedef struct heed_mask heed_mask;

/// The allowed pairs of a slice: heed::SliceKind.
typedef enum heed_slice_kind {
  HEED_SLICE_FULL = 0,
  HEED_SLICE_CAUSAL = 1,          ///< j - key_end <= i - query_end
  HEED_SLICE_INVERSE_CAUSAL = 2,  ///< j - key_begin >= i - query_begin
  HEED_SLICE_BOTH_CAUSAL = 3
} heed_slice_kind;

/// Queries [query_begin, query_end) and keys [key_begin, key_end).
typedef struct heed_mask_slice {
  int64_t query_begin, query_end, key_begin, key_end;
  int64_t kind;  ///< a heed_slice_kind
} heed_mask_slice;

/// heed::GridAxis. A window of -1 means all keys; dilation is 1 or more; causal is 0 or 1.
typedef struct heed_grid_axis {
  int64_t size, window, dilation;
  int32_t causal;
} heed_grid_axis;

/// The tensors of FlexAttention's BlockMask (heed::BlockMaskView); the last three may be NULL.
typedef struct heed_block_mask {
  int64_t query_block, key_block;
  const heed_tensor* kv_num_blocks;       ///< [B, H, R]
  const heed_tensor* kv_indices;          ///< [B, H, R, C]
  const heed_tensor* full_kv_num_blocks;  ///< [B, H, R]
  const heed_tensor* full_kv_indices;     ///< [B, H, R, C]
  const heed_tensor* partial;             ///< HEED_BOOL [N, query_block, key_block]
} heed_block_mask;

/// A score modification (heed/attention/score_mod.hpp).
typedef struct heed_score_mod heed_score_mod;

/// Options; fill with heed_attention_options_init, then change. A struct from an older heed.h (smaller) gets
/// the defaults for missing members. One from a newer heed.h (larger) is refused if it requests something
/// that this library does not know. A NULL tensor is not given. Flags are 0 or 1.
typedef struct heed_attention_options {
  size_t struct_size;                 ///< sizeof(heed_attention_options)
  int32_t causal;                     ///< allow j <= p_i only
  int32_t align;                      ///< a heed_align; default HEED_TOP_LEFT
  int32_t has_scale;                  ///< 0: 1 / sqrt(D)
  int32_t has_query_offset;           ///< 0: by `align`
  double scale;                       ///< finite; read only if has_scale is 1
  int64_t query_offset;               ///< read only if has_query_offset is 1
  int64_t window_left;                ///< -1: open
  int64_t window_right;               ///< -1: open
  double softcap;                     ///< 0: off
  const heed_tensor* mask;            ///< HEED_BOOL, broadcasts to [B, H, Lq, Lk]; true allows
  const heed_tensor* bias;            ///< floating, broadcasts to [B, H, Lq, Lk]
  const heed_tensor* alibi_slopes;    ///< floating, broadcasts to [B, H]
  const heed_tensor* sinks;           ///< floating, [H]
  const heed_tensor* kv_lengths;      ///< HEED_I64 or HEED_I32, [B]
  const heed_tensor* query_segments;  ///< HEED_I64 or HEED_I32, [S + 1]
  const heed_tensor* key_segments;    ///< HEED_I64 or HEED_I32, [S + 1]
  double dropout_probability;         ///< in [0, 1)
  uint64_t dropout_seed;
  uint64_t dropout_offset;
  int32_t scores_stage;             ///< a heed_scores_stage; default HEED_SCORES_BIAS
  int32_t kernel;                   ///< a heed_kernel; default HEED_KERNEL_AUTOMATIC
  int64_t received_last;            ///< number of last rows that outputs.received_last sums over
  int32_t threads;                  ///< upper limit; 0: all processors
  int32_t reserved;                 ///< 0
  const heed_mask* sparse_mask;     ///< NULL: none
  const heed_score_mod* score_mod;  ///< NULL: none
  const heed_tensor* decay;         ///< floating, broadcasts to [B, H, L], L >= Lk: c_i - c_j is added
} heed_attention_options;

/// How a call was run.
typedef struct heed_attention_run {
  int32_t kernel;   ///< a heed_kernel
  int32_t threads;  ///< number of threads used
  char isa[32];     ///< instruction set of the kernel, a string
} heed_attention_run;

/// Destinations of results; NULL ones are not computed. Summaries (all but `output` and `top_k_index`) are
/// HEED_F64 for HEED_F64 inputs, otherwise HEED_F32. Inputs of rank 3 or 2 give results without the axes B,
/// or B and H.
typedef struct heed_attention_outputs {
  size_t struct_size;                ///< sizeof(heed_attention_outputs)
  const heed_tensor* output;         ///< [B, H, Lq, Dv], of the inputs' dtype or HEED_F32
  const heed_tensor* weights;        ///< [B, H, Lq, Lk]
  const heed_tensor* scores;         ///< [B, H, Lq, Lk], at options.scores_stage
  const heed_tensor* lse;            ///< [B, H, Lq]
  const heed_tensor* max_score;      ///< [B, H, Lq]
  const heed_tensor* entropy;        ///< [B, H, Lq]
  const heed_tensor* distance;       ///< [B, H, Lq]
  const heed_tensor* top_k_index;    ///< [B, H, Lq, K], HEED_I64
  const heed_tensor* top_k_weight;   ///< [B, H, Lq, K]
  const heed_tensor* received;       ///< [B, H, Lk]
  const heed_tensor* received_last;  ///< [B, H, Lk]
  const heed_tensor* map;            ///< [B, H, R, C]
  heed_attention_run* run;
  int64_t* recomputed_rows;  ///< number of rows that f32 cannot represent (NaN, scores beyond 2^19), computed
                             ///< in f64
  const heed_tensor* masked_mass;  ///< [B, H, Lq]: the weight that masks remove
} heed_attention_outputs;

/// Inputs of the backward pass (heed/attention/backward.hpp): the tensors of the forward call, its results,
/// and their gradients. The last two members may be NULL.
typedef struct heed_attention_backward_inputs {
  size_t struct_size;               ///< sizeof(heed_attention_backward_inputs)
  const heed_tensor* query;         ///< [B, H, Lq, D]
  const heed_tensor* key;           ///< [B, Hkv, Lk, D]
  const heed_tensor* value;         ///< [B, Hkv, Lk, Dv]
  const heed_tensor* output;        ///< [B, H, Lq, Dv], of the inputs' dtype or HEED_F32
  const heed_tensor* lse;           ///< [B, H, Lq], HEED_F64 for HEED_F64 inputs, otherwise HEED_F32
  const heed_tensor* grad_output;   ///< like output
  const heed_tensor* grad_lse;      ///< like lse
  const heed_tensor* grad_weights;  ///< [B, H, Lq, Lk], of lse's dtype
} heed_attention_backward_inputs;

/// Destinations of gradients, each in the dtype of its tensor; NULL ones are not computed.
typedef struct heed_attention_gradients {
  size_t struct_size;        ///< sizeof(heed_attention_gradients)
  const heed_tensor* query;  ///< [B, H, Lq, D]
  const heed_tensor* key;    ///< [B, Hkv, Lk, D]
  const heed_tensor* value;  ///< [B, Hkv, Lk, Dv]
  /// Like options.bias, or any shape that broadcasts to [B, H, Lq, Lk]; summed to that shape.
  const heed_tensor* bias;
  /// Like options.sinks, or any shape that broadcasts to [H]; summed to that shape.
  const heed_tensor* sinks;
  heed_attention_run* run;
  int64_t* recomputed_rows;  ///< as in heed_attention_outputs
  /// Like options.decay, or any shape that broadcasts to [B, H, L]; summed to that shape.
  const heed_tensor* decay;
} heed_attention_gradients;

/// The assignment of positions of a sequence to ranks (heed/attention/sharding.hpp), made by the functions
/// heed_sharding_… below. Immutable; any number of calls may use it at once.
typedef struct heed_sharding heed_sharding;

/// Positions [begin, end) on one rank.
typedef struct heed_sharding_range {
  int64_t begin, end;
  int64_t rank;
} heed_sharding_range;

/// A KV cache for decoding (heed/attention/kv_cache.hpp).
typedef struct heed_kv_cache heed_kv_cache;

/// The format of a cache's rows: heed::CacheFormat.
typedef enum heed_cache_format {
  HEED_CACHE_F32 = 0,
  HEED_CACHE_BF16 = 1,
  HEED_CACHE_F16 = 2,
  HEED_CACHE_INT8 = 3,
  HEED_CACHE_INT4 = 4,
  HEED_CACHE_FP8 = 5
} heed_cache_format;
/// The layout of a cache's rows: heed::CacheLayout.
typedef enum heed_cache_layout {
  HEED_CACHE_CONTIGUOUS = 0,
  HEED_CACHE_PAGED = 1,
  HEED_CACHE_RING = 2
} heed_cache_layout;
/// The order of axes in a page: heed::PageOrder.
typedef enum heed_page_order {
  HEED_PAGES_HND = 0,  ///< [pages, Hkv, page size, D]
  HEED_PAGES_NHD = 1   ///< [pages, page size, Hkv, D]
} heed_page_order;

/// Options of a cache; fill with heed_kv_cache_options_init, then change. heed::KvCacheOptions explains each
/// member.
typedef struct heed_kv_cache_options {
  size_t struct_size;      ///< sizeof(heed_kv_cache_options)
  int64_t sequences;       ///< default 1
  int64_t kv_heads;        ///< 1 or more
  int64_t head_dim;        ///< D, 1 or more
  int64_t value_dim;       ///< Dv; 0: head_dim
  int32_t format;          ///< a heed_cache_format; default HEED_CACHE_F32
  int32_t layout;          ///< a heed_cache_layout; default HEED_CACHE_CONTIGUOUS
  int64_t capacity;        ///< rows per sequence (contiguous) or in all (paged); 0 for a ring
  int64_t page_size;       ///< rows per page, 1 to 256; default 16
  int32_t order;           ///< a heed_page_order; default HEED_PAGES_HND
  int32_t rotate;          ///< 0 or 1; 1 needs a format of codes
  int64_t sinks;           ///< ring only: number of first rows that stay
  int64_t window;          ///< ring only: number of last rows that stay, 1 or more
  int64_t group;           ///< formats of codes only: a power of two from 8 to 256; default 32
  int32_t values_in_keys;  ///< 1: values are the first value_dim channels of the keys, stored once
  int32_t reserved;        ///< 0
} heed_kv_cache_options;

/// Size of a cache; heed::KvCacheStats explains each member.
typedef struct heed_kv_cache_stats {
  size_t struct_size;
  int64_t rows, capacity, pages, free_pages, shared_pages;
  int64_t bytes, tail_bytes, table_bytes;
} heed_kv_cache_stats;

/// The sequences that a call attends, and the tree of its draft queries (heed::CacheQuery).
typedef struct heed_cache_query {
  size_t struct_size;               ///< sizeof(heed_cache_query)
  const int64_t* sequences;         ///< one per batch entry or query segment b; NULL: sequence b
  int64_t sequence_count;           ///< length of `sequences`; 0 for NULL only
  const heed_tensor* tree_parents;  ///< HEED_I64 or HEED_I32, [Lq] or [B, Lq]; NULL: no tree
  const heed_tensor* tree_mask;     ///< HEED_BOOL, [Lq, Lq] or [B, Lq, Lq]; NULL: no tree
} heed_cache_query;

/// A target of the fused kernel, that is an instruction set.
typedef struct heed_target {
  char name[32];          ///< "avx512bf16", as the environment variable HEED_ISA takes it
  char description[128];  ///< one line
  char required[128];     ///< required processor features, separated by spaces
  int32_t available;      ///< 1 if this machine supports all of them
  int32_t chosen;         ///< 1 if calls use it
  char why[128];          ///< reason for `chosen`: "the processor has no amx_tile"
} heed_target;

/// These functions write the defaults into a struct of `struct_size` bytes: the sizeof that the caller was
/// compiled with.
HEED_C_API heed_status heed_attention_options_init_sized(heed_attention_options* options, size_t struct_size);
HEED_C_API heed_status heed_attention_outputs_init_sized(heed_attention_outputs* outputs, size_t struct_size);
HEED_C_API heed_status heed_attention_backward_inputs_init_sized(heed_attention_backward_inputs* inputs,
                                                                 size_t struct_size);
HEED_C_API heed_status heed_attention_gradients_init_sized(heed_attention_gradients* gradients,
                                                           size_t struct_size);
HEED_C_API heed_status heed_kv_cache_options_init_sized(heed_kv_cache_options* options, size_t struct_size);
HEED_C_API heed_status heed_cache_query_init_sized(heed_cache_query* which, size_t struct_size);

static inline heed_status heed_attention_options_init(heed_attention_options* options) {
  return heed_attention_options_init_sized(options, sizeof(heed_attention_options));
}
static inline heed_status heed_attention_outputs_init(heed_attention_outputs* outputs) {
  return heed_attention_outputs_init_sized(outputs, sizeof(heed_attention_outputs));
}
static inline heed_status heed_attention_backward_inputs_init(heed_attention_backward_inputs* inputs) {
  return heed_attention_backward_inputs_init_sized(inputs, sizeof(heed_attention_backward_inputs));
}
static inline heed_status heed_attention_gradients_init(heed_attention_gradients* gradients) {
  return heed_attention_gradients_init_sized(gradients, sizeof(heed_attention_gradients));
}
static inline heed_status heed_kv_cache_options_init(heed_kv_cache_options* options) {
  return heed_kv_cache_options_init_sized(options, sizeof(heed_kv_cache_options));
}
static inline heed_status heed_cache_query_init(heed_cache_query* which) {
  return heed_cache_query_init_sized(which, sizeof(heed_cache_query));
}

/// query [B, H, Lq, D], key [B, Hkv, Lk, D], value [B, Hkv, Lk, Dv], of one floating dtype and of rank 2, 3
/// or 4. `options` may be NULL: the defaults.
HEED_C_API heed_status heed_attention(const heed_tensor* query, const heed_tensor* key,
                                      const heed_tensor* value, const heed_attention_options* options,
                                      const heed_attention_outputs* outputs);

/// Plans heed_attention with these arguments, and computes nothing: heed::plan_attention() as JSON
/// (heed/io/plan.hpp). `outputs` says which results are wanted; their memory is not used. *length receives
/// the length of the JSON. `text` receives its first size - 1 bytes and a final 0; it may be NULL if `size`
/// is 0.
HEED_C_API heed_status heed_plan_attention(const heed_tensor* query, const heed_tensor* key,
                                           const heed_tensor* value, const heed_attention_options* options,
                                           const heed_attention_outputs* outputs, char* text, size_t size,
                                           size_t* length);

/// Computes gradients of a loss by the inputs of heed_attention from gradients by its results. `options` must
/// equal the forward call's; NULL: the defaults.
HEED_C_API heed_status heed_attention_backward(const heed_attention_backward_inputs* inputs,
                                               const heed_attention_options* options,
                                               const heed_attention_gradients* gradients);

/// Differential attention, out_i = sum_j (p_ij - lambda p'_ij) v_j (heed/attention/differential.hpp). query
/// [B, 2 H, Lq, D], whose heads 2h and 2h + 1 are the halves of head h; key [B, 2 Hkv, Lk, D] likewise, or
/// [B, Hkv, Lk, D] for both; value [B, Hkv, Lk, Dv]; lambda [H] or [B, H, Lq]. Output, weights, received,
/// received_last and map are signed and have H heads. The other results belong to a softmax and have the 2 H
/// heads of the query. `halves` takes the outputs of both softmaxes [B, 2 H, Lq, Dv], HEED_F32 for 16-bit
/// inputs, and may be NULL. Results are computed in memory of their own and then copied, so they must not
/// overlap each other.
HEED_C_API heed_status heed_differential_attention(const heed_tensor* query, const heed_tensor* key,
                                                   const heed_tensor* value, const heed_tensor* lambda,
                                                   const heed_attention_options* options,
                                                   const heed_attention_outputs* outputs,
                                                   const heed_tensor* halves);

/// Its gradients. `inputs` has `halves` as output, the lse [B, 2 H, Lq], and grad_output [B, H, Lq, Dv].
/// `gradients` may request query, key and value; grad_lambda has the shape of lambda and may be NULL.
HEED_C_API heed_status heed_differential_attention_backward(const heed_attention_backward_inputs* inputs,
                                                            const heed_tensor* lambda,
                                                            const heed_attention_options* options,
                                                            const heed_attention_gradients* gradients,
                                                            const heed_tensor* grad_lambda);

/// A gate on finished rows and its gradient (heed/attention/gate.hpp): result = rows * gate, of the shape and
/// dtype of rows [B, H, Lq, Dv], to which gate broadcasts; grad_gate = output * grad_output, summed to the
/// shape of gate and in its dtype. `threads`: 0 uses all processors.
HEED_C_API heed_status heed_gated(const heed_tensor* rows, const heed_tensor* gate, int32_t threads,
                                  const heed_tensor* result);
HEED_C_API heed_status heed_gate_gradient(const heed_tensor* gate, const heed_tensor* output,
                                          const heed_tensor* grad_output, int32_t threads,
                                          const heed_tensor* grad_gate);

/// n_ij = |(g_i * v_j) W_O|, what a weight of 1 moves (heed/inspect/moved.hpp). value [B, Hkv, Lk, Dv],
/// projection [H, Dv, M], gate [B, H, Lq, Dv] or [B, H, Lq, 1] or NULL; norms HEED_F32 [B, H, Lq, Lk], or
/// [B, H, 1, Lk] without a gate.
HEED_C_API heed_status heed_moved_norms(const heed_tensor* value, const heed_tensor* projection,
                                        const heed_tensor* gate, int32_t threads, const heed_tensor* norms);

/// Distances and maps of tokens first … first + N - 1 of queries and keys, which lie on a grid of `count`
/// axes with N places, the last axis fastest (heed/inspect/grid.hpp). Results are HEED_F64 for HEED_F64
/// inputs, otherwise HEED_F32.
///
/// distance [B, H, N, count]: the mean distance along each axis.
HEED_C_API heed_status heed_grid_distance(const heed_tensor* query, const heed_tensor* key,
                                          const int64_t* sizes, size_t count, int64_t first,
                                          const heed_attention_options* options, const heed_tensor* distance);
/// map [B, H, C, C]: the weights between the C cells of a coarser grid, `cells` along each axis.
HEED_C_API heed_status heed_grid_map(const heed_tensor* query, const heed_tensor* key, const int64_t* sizes,
                                     size_t count, int64_t first, const int64_t* cells,
                                     const heed_attention_options* options, const heed_tensor* map);

/// Create masks in O(L) memory. *mask receives the mask, to be freed by heed_mask_free, or NULL if the call
/// fails. Tensors are HEED_I64 or HEED_I32, and are copied. heed/attention/masks.hpp explains each mask.
HEED_C_API heed_status heed_mask_row_intervals(const heed_tensor* intervals, int64_t key_length,
                                               heed_mask** mask);
HEED_C_API heed_status heed_mask_column_intervals(const heed_tensor* intervals, int64_t query_length,
                                                  heed_mask** mask);
/// `counts` may be NULL: then -1 marks an unused entry of a list. `gather`: 0 automatic, 1 never, 2 always.
HEED_C_API heed_status heed_mask_key_lists(const heed_tensor* indices, const heed_tensor* counts,
                                           int64_t key_length, int32_t gather, heed_mask** mask);
/// Chooses keys for such lists. query [B, H, Lq, D], key [B, 1, Lk, D], weights [B, H, Lq]; `indices` is
/// HEED_I32 [B, 1, Lq, min(top_k, Lk)] and is written (heed/attention/lightning_indexer.hpp). `threads`: 0
/// uses all processors.
HEED_C_API heed_status heed_lightning_indexer(const heed_tensor* query, const heed_tensor* key,
                                              const heed_tensor* weights, int64_t top_k, int32_t causal,
                                              int64_t query_offset, int32_t threads,
                                              const heed_tensor* indices);
HEED_C_API heed_status heed_mask_slices(const heed_mask_slice* slices, size_t count, int64_t query_length,
                                        int64_t key_length, heed_mask** mask);
HEED_C_API heed_status heed_mask_blocks(const heed_tensor* offsets, const heed_tensor* indices,
                                        int64_t query_block, int64_t key_block, int64_t query_length,
                                        int64_t key_length, heed_mask** mask);
HEED_C_API heed_status heed_mask_from_block_mask(const heed_block_mask* from, int64_t query_length,
                                                 int64_t key_length, heed_mask** mask);
HEED_C_API heed_status heed_mask_from_flash_mask(const heed_tensor* startend_row_indices, int32_t causal,
                                                 int64_t query_length, heed_mask** mask);
/// `names` and `arrays` have `count` entries each; they may be NULL if it is 0.
HEED_C_API heed_status heed_mask_expression(const char* text, int64_t query_length, int64_t key_length,
                                            size_t count, const char* const* names,
                                            const heed_tensor* const* arrays, heed_mask** mask);
HEED_C_API heed_status heed_mask_prefix_lm(int64_t prefix, int64_t query_length, int64_t key_length,
                                           heed_mask** mask);
HEED_C_API heed_status heed_mask_documents(const int64_t* lengths, size_t count, int32_t causal,
                                           heed_mask** mask);
HEED_C_API heed_status heed_mask_sliding_window(int64_t left, int64_t right, int64_t query_length,
                                                int64_t key_length, heed_mask** mask);
HEED_C_API heed_status heed_mask_sinks_and_window(int64_t sinks, int64_t window, int64_t query_length,
                                                  int64_t key_length, heed_mask** mask);
HEED_C_API heed_status heed_mask_dilated(int64_t reach, int64_t step, int64_t query_length,
                                         int64_t key_length, heed_mask** mask);
HEED_C_API heed_status heed_mask_shared_question(int64_t question, const int64_t* answers, size_t count,
                                                 heed_mask** mask);
HEED_C_API heed_status heed_mask_bigbird(int64_t block, int64_t global, int64_t window, int64_t random,
                                         uint64_t seed, int64_t query_length, int64_t key_length,
                                         heed_mask** mask);
/// heed::masks::neighbourhood(); `count` axes. query_length -1: all tokens from first_query on; key_length
/// -1: all tokens.
HEED_C_API heed_status heed_mask_neighbourhood(const heed_grid_axis* axes, size_t count, int64_t first_query,
                                               int64_t query_length, int64_t key_length, heed_mask** mask);
/// heed::masks::axial(); `count` sizes; axis -1: all axes.
HEED_C_API heed_status heed_mask_axial(const int64_t* sizes, size_t count, int64_t axis, int64_t first_query,
                                       int64_t query_length, int64_t key_length, heed_mask** mask);
/// The intersection of both masks.
HEED_C_API heed_status heed_mask_and(const heed_mask* a, const heed_mask* b, heed_mask** mask);
HEED_C_API void heed_mask_free(heed_mask* mask);  ///< NULL is allowed

HEED_C_API heed_status heed_score_mod_expression(const char* text, size_t count, const char* const* names,
                                                 const heed_tensor* const* arrays, heed_score_mod** mod);
HEED_C_API void heed_score_mod_free(heed_score_mod* mod);

/// Create shardings. *sharding receives the sharding, to be freed by heed_sharding_free, or NULL if the call
/// fails.
HEED_C_API heed_status heed_sharding_contiguous(int64_t length, int32_t ranks, heed_sharding** sharding);
HEED_C_API heed_status heed_sharding_zigzag(int64_t length, int32_t ranks, heed_sharding** sharding);
HEED_C_API heed_status heed_sharding_striped(int64_t length, int32_t ranks, int64_t stripe,
                                             heed_sharding** sharding);
/// `ranges` come in any order and cover every position exactly once; the last position ends the sequence.
HEED_C_API heed_status heed_sharding_from_ranges(const heed_sharding_range* ranges, size_t count,
                                                 int32_t ranks, heed_sharding** sharding);
HEED_C_API void heed_sharding_free(heed_sharding* sharding);  ///< NULL is allowed

/// Return the number of rows of a rank, the position of a row, and the rank and row of a position.
HEED_C_API heed_status heed_sharding_rows(const heed_sharding* sharding, int32_t rank, int64_t* rows);
HEED_C_API heed_status heed_sharding_position(const heed_sharding* sharding, int32_t rank, int64_t row,
                                              int64_t* position);
HEED_C_API heed_status heed_sharding_row(const heed_sharding* sharding, int64_t position, int32_t* rank,
                                         int64_t* row);

/// Create caches. *cache receives the cache, to be freed by heed_kv_cache_free, or NULL if the call fails.
HEED_C_API heed_status heed_kv_cache_create(const heed_kv_cache_options* options, heed_kv_cache** cache);
/// Create caches over caller memory, which must outlive them. Tables are copied, rows are not. `writable`: 1
/// if rows may be appended to that memory, 0 if it is only read.
///
/// key [B, Hkv, capacity, D], value [B, Hkv, capacity, Dv], lengths HEED_I64 or HEED_I32 [B]. A value that
/// begins where key begins and has its strides makes a cache whose values are channels of its keys.
HEED_C_API heed_status heed_kv_cache_over(const heed_tensor* key, const heed_tensor* value,
                                          const heed_tensor* lengths, int32_t writable,
                                          heed_kv_cache** cache);
/// Takes vLLM's block table: pools of pages in `order`, a heed_page_order; block_table [B, most pages],
/// lengths [B].
HEED_C_API heed_status heed_kv_cache_over_block_table(const heed_tensor* key_pool,
                                                      const heed_tensor* value_pool,
                                                      const heed_tensor* block_table,
                                                      const heed_tensor* lengths, int32_t order,
                                                      int32_t writable, heed_kv_cache** cache);
/// Takes FlashInfer's page table: indptr [B + 1], indices [pages in use], last_page_len [B].
HEED_C_API heed_status heed_kv_cache_over_page_indices(const heed_tensor* key_pool,
                                                       const heed_tensor* value_pool,
                                                       const heed_tensor* indptr, const heed_tensor* indices,
                                                       const heed_tensor* last_page_len, int32_t order,
                                                       int32_t writable, heed_kv_cache** cache);
/// Write a cache to a safetensors file, and create the cache that such a file holds. HEED_IO if the file
/// cannot be written or read, or holds no cache.
HEED_C_API heed_status heed_kv_cache_write(const heed_kv_cache* cache, const char* path);
HEED_C_API heed_status heed_kv_cache_read(const char* path, heed_kv_cache** cache);
HEED_C_API void heed_kv_cache_free(heed_kv_cache* cache);  ///< NULL is allowed

/// Functions that change a cache complete, or fail and leave it unchanged.
///
/// Appends rows. If `offsets` is NULL: L rows to every sequence, key [B, Hkv, L, D], value [B, Hkv, L, Dv] or
/// NULL if the cache has values_in_keys.
/// Otherwise a ragged batch, key [1, Hkv, T, D]: rows [offsets[b], offsets[b + 1]) go to sequence
/// sequences[b], or to sequence b if `sequences` is NULL and `count` 0. `offsets` is HEED_I64 or HEED_I32.
HEED_C_API heed_status heed_kv_cache_append(heed_kv_cache* cache, const heed_tensor* key,
                                            const heed_tensor* value, const heed_tensor* offsets,
                                            const int64_t* sequences, size_t count);
HEED_C_API heed_status heed_kv_cache_truncate(heed_kv_cache* cache, int64_t sequence, int64_t length);
/// *number receives the number of the new sequence.
HEED_C_API heed_status heed_kv_cache_fork(heed_kv_cache* cache, int64_t sequence, int64_t* number);
/// Releases a sequence. A later fork may reuse its number; until then it cannot be changed or attended.
HEED_C_API heed_status heed_kv_cache_release(heed_kv_cache* cache, int64_t sequence);
HEED_C_API heed_status heed_kv_cache_clear(heed_kv_cache* cache, int64_t sequence);
HEED_C_API heed_status heed_kv_cache_evict(heed_kv_cache* cache, int64_t sequence, const int64_t* positions,
                                           size_t count);
HEED_C_API heed_status heed_kv_cache_reserve(heed_kv_cache* cache, int64_t rows);
/// received [B, H, Lk]; `sequences` as in heed_kv_cache_append.
HEED_C_API heed_status heed_kv_cache_add_received(heed_kv_cache* cache, const heed_tensor* received,
                                                  double decay, const int64_t* sequences, size_t count);

/// Return the contents of a cache: the number of sequences; and for one sequence the position of its next
/// row, its number of rows, and their positions, ascending. `count` must be the number of rows.
HEED_C_API heed_status heed_kv_cache_sequences(const heed_kv_cache* cache, int64_t* sequences);
HEED_C_API heed_status heed_kv_cache_length(const heed_kv_cache* cache, int64_t sequence, int64_t* length);
HEED_C_API heed_status heed_kv_cache_rows(const heed_kv_cache* cache, int64_t sequence, int64_t* rows);
HEED_C_API heed_status heed_kv_cache_positions(const heed_kv_cache* cache, int64_t sequence,
                                               int64_t* positions, size_t count);
/// Copy the rows as attention reads them into HEED_F32 [Hkv, rows, D] and [Hkv, rows, Dv], and the running
/// sums of heed_kv_cache_add_received into HEED_F32 [Hkv, rows].
HEED_C_API heed_status heed_kv_cache_keys(const heed_kv_cache* cache, int64_t sequence,
                                          const heed_tensor* keys);
HEED_C_API heed_status heed_kv_cache_values(const heed_kv_cache* cache, int64_t sequence,
                                            const heed_tensor* values);
HEED_C_API heed_status heed_kv_cache_received(const heed_kv_cache* cache, int64_t sequence,
                                              const heed_tensor* received);
/// Fills a struct of `struct_size` bytes: the sizeof that the caller was compiled with.
HEED_C_API heed_status heed_kv_cache_get_stats_sized(const heed_kv_cache* cache, heed_kv_cache_stats* stats,
                                                     size_t struct_size);
static inline heed_status heed_kv_cache_get_stats(const heed_kv_cache* cache, heed_kv_cache_stats* stats) {
  return heed_kv_cache_get_stats_sized(cache, stats, sizeof(heed_kv_cache_stats));
}

/// heed_attention over a cache. query [B, H, Lq, D], or [1, H, T, D] with options.query_segments, one segment
/// per sequence; HEED_F32, HEED_F16 or HEED_BF16. Queries are at the last positions of their sequence unless
/// options.query_offset is set. Lk is the number of rows of the longest sequence; with segments, the rows of
/// all. top_k_index receives positions. `options` and `which` may be NULL: the defaults.
HEED_C_API heed_status heed_kv_cache_attention(const heed_tensor* query, const heed_kv_cache* cache,
                                               const heed_attention_options* options,
                                               const heed_cache_query* which,
                                               const heed_attention_outputs* outputs);

/// heed_differential_attention over a cache with Hkv key heads, whose keys have D channels for both halves,
/// or 2 D: the first half's and then the second's.
HEED_C_API heed_status heed_kv_cache_differential_attention(
    const heed_tensor* query, const heed_kv_cache* cache, const heed_tensor* lambda,
    const heed_attention_options* options, const heed_cache_query* which,
    const heed_attention_outputs* outputs, const heed_tensor* halves);

/// *count receives the number of targets of this build.
HEED_C_API heed_status heed_target_count(size_t* count);
/// Target `index` of this build, the best first.
HEED_C_API heed_status heed_get_target(size_t index, heed_target* target);
/// Selects the target for all later calls. Must not run while calls are in progress.
HEED_C_API heed_status heed_set_target(const char* name);

/// One sentence on the last failure in this thread; "" if the last call succeeded. Valid until the thread's
/// next call.
HEED_C_API const char* heed_last_error(void);

/// For libraries built on this one: sets what heed_last_error() returns in this thread; NULL stands for "".
/// Returns `status`.
HEED_C_API heed_status heed_set_last_error(heed_status status, const char* message);

/// "0.1.0".
HEED_C_API const char* heed_version(void);

#ifdef __cplusplus
}
#endif

#endif  // HEED_HEED_H_
