/* Caches through the C ABI: compiled as C99, linked with the library. */
#include <math.h>
#include <stdlib.h>

#include "c_expect.h"

enum { kKvHeads = 2, kHeads = 4, kDim = 8, kValueDim = 6, kMost = 64 };

/* An element of row `position` of sequence `sequence`, from a formula that makes all rows different. */
static float key_of(int sequence, int head, int position, int c) {
  return (float)sin(1 + sequence * 7.0 + head * 3.0 + position * 1.7 + c * 0.9);
}
static float value_of(int sequence, int head, int position, int c) {
  return (float)cos(2 + sequence * 5.0 + head * 2.0 + position * 1.3 + c * 0.7);
}
static float query_of(int batch, int head, int row, int c) {
  return (float)(2 * sin(3 + batch + head * 1.1 + row * 0.6 + c * 1.9));
}

/* Contiguous f32 rows in memory of their own. */
typedef struct rows {
  float data[kMost * kHeads * kDim];
  heed_tensor tensor;
} rows;

static void shape_rows(rows* to, int a, int b, int c, int d) {
  const int64_t shape[] = {a, b, c, d};
  EXPECT(a * b * c * d <= (int)(sizeof to->data / sizeof to->data[0]));
  EXPECT(heed_tensor_init(&to->tensor, to->data, HEED_F32, 4, shape) == HEED_OK);
}

/* Positions [begin, begin + count) of one sequence as [1, Hkv, count, D | Dv]. */
static void make_rows(rows* key, rows* value, int sequence, int begin, int count) {
  int h, r, c;
  shape_rows(key, 1, kKvHeads, count, kDim);
  shape_rows(value, 1, kKvHeads, count, kValueDim);
  for (h = 0; h < kKvHeads; ++h)
    for (r = 0; r < count; ++r) {
      for (c = 0; c < kDim; ++c) key->data[(h * count + r) * kDim + c] = key_of(sequence, h, begin + r, c);
      for (c = 0; c < kValueDim; ++c)
        value->data[(h * count + r) * kValueDim + c] = value_of(sequence, h, begin + r, c);
    }
}

static heed_kv_cache* make_cache(int32_t layout, int32_t format, int64_t sequences) {
  heed_kv_cache_options options;
  heed_kv_cache* cache = NULL;
  EXPECT(heed_kv_cache_options_init(&options) == HEED_OK);
  options.sequences = sequences;
  options.kv_heads = kKvHeads;
  options.head_dim = kDim;
  options.value_dim = kValueDim;
  options.layout = layout;
  options.format = format;
  options.group = 8;
  if (layout == HEED_CACHE_RING) {
    options.sinks = 2;
    options.window = 5;
  } else {
    options.capacity = layout == HEED_CACHE_PAGED ? 80 : 40;
    options.page_size = 4;
  }
  EXPECT(heed_kv_cache_create(&options, &cache) == HEED_OK);
  return cache;
}

static void append_to(heed_kv_cache* cache, int sequence, int begin, int count) {
  static rows key, value;
  const int64_t offsets_data[] = {0, count}, shape[] = {2}, which[] = {sequence};
  heed_tensor offsets;
  make_rows(&key, &value, sequence, begin, count);
  EXPECT(heed_tensor_init(&offsets, (void*)offsets_data, HEED_I64, 1, shape) == HEED_OK);
  EXPECT(heed_kv_cache_append(cache, &key.tensor, &value.tensor, &offsets, which, 1) == HEED_OK);
}

/* The results for one query over one sequence, from the formula in f64. */
typedef struct expected {
  double weights[kHeads][kMost], output[kHeads][kValueDim];
} expected;

static void expect_rows(expected* to, int batch, int sequence, const int64_t* positions, int count) {
  int h, j, c;
  memset(to, 0, sizeof *to);
  for (h = 0; h < kHeads; ++h) {
    double sum = 0;
    for (j = 0; j < count; ++j) {
      double score = 0;
      for (c = 0; c < kDim; ++c)
        score += (double)query_of(batch, h, 0, c) *
                 (double)key_of(sequence, h * kKvHeads / kHeads, (int)positions[j], c);
      to->weights[h][j] = exp(score / sqrt((double)kDim));
      sum += to->weights[h][j];
    }
    for (j = 0; j < count; ++j) {
      to->weights[h][j] /= sum;
      for (c = 0; c < kValueDim; ++c)
        to->output[h][c] +=
            to->weights[h][j] * (double)value_of(sequence, h * kKvHeads / kHeads, (int)positions[j], c);
    }
  }
}

/* The results for `batch` sequences with one query each. */
typedef struct results {
  float output_data[2 * kHeads * kValueDim], weights_data[2 * kHeads * kMost],
      top_weight_data[2 * kHeads * 3];
  float received_data[2 * kHeads * kMost];
  int64_t top_index_data[2 * kHeads * 3];
  rows query;
  heed_tensor output, weights, top_index, top_weight, received;
  heed_attention_outputs outputs;
} results;

static void make_results(results* r, int batch, int most) {
  const int64_t output[] = {batch, kHeads, 1, kValueDim}, weights[] = {batch, kHeads, 1, most};
  const int64_t top[] = {batch, kHeads, 1, 3}, received[] = {batch, kHeads, most};
  int b, h, c;
  shape_rows(&r->query, batch, kHeads, 1, kDim);
  for (b = 0; b < batch; ++b)
    for (h = 0; h < kHeads; ++h)
      for (c = 0; c < kDim; ++c) r->query.data[(b * kHeads + h) * kDim + c] = query_of(b, h, 0, c);
  EXPECT(heed_tensor_init(&r->output, r->output_data, HEED_F32, 4, output) == HEED_OK);
  EXPECT(heed_tensor_init(&r->weights, r->weights_data, HEED_F32, 4, weights) == HEED_OK);
  EXPECT(heed_tensor_init(&r->top_index, r->top_index_data, HEED_I64, 4, top) == HEED_OK);
  EXPECT(heed_tensor_init(&r->top_weight, r->top_weight_data, HEED_F32, 4, top) == HEED_OK);
  EXPECT(heed_tensor_init(&r->received, r->received_data, HEED_F32, 3, received) == HEED_OK);
  EXPECT(heed_attention_outputs_init(&r->outputs) == HEED_OK);
  r->outputs.output = &r->output;
  r->outputs.weights = &r->weights;
  r->outputs.top_k_index = &r->top_index;
  r->outputs.top_k_weight = &r->top_weight;
  r->outputs.received = &r->received;
}

/* Checks output, weights, received and top_k of batch entry b. `tolerance` is 2e-6 for sums of fewer than 64
 * terms of at most 1 in f32, or the step of the cache's format. */
static void expect_results(const results* r, int b, int sequence, const int64_t* positions, int count,
                           int most, double tolerance) {
  expected e;
  int h, j, c, k;
  expect_rows(&e, b, sequence, positions, count);
  for (h = 0; h < kHeads; ++h) {
    const int row = b * kHeads + h;
    for (c = 0; c < kValueDim; ++c)
      EXPECT(fabs((double)r->output_data[row * kValueDim + c] - e.output[h][c]) <= tolerance);
    for (j = 0; j < most; ++j) {
      EXPECT(fabs((double)r->weights_data[row * most + j] - e.weights[h][j]) <= tolerance);
      EXPECT(r->received_data[row * most + j] == r->weights_data[row * most + j]);
    }
    for (k = 0; k < 3 && k < count; ++k) { /* the k-th largest weight, at its position */
      int larger = 0, at = -1;
      for (j = 0; j < count; ++j) {
        if (positions[j] == r->top_index_data[row * 3 + k]) at = j;
        larger += r->weights_data[row * most + j] > r->top_weight_data[row * 3 + k];
      }
      EXPECT(at >= 0 && larger == k);
      if (at >= 0) EXPECT(r->top_weight_data[row * 3 + k] == r->weights_data[row * most + at]);
    }
  }
}

static void decoding_over_every_layout_is_the_formula(void) {
  static results r;
  int32_t layout;
  for (layout = HEED_CACHE_CONTIGUOUS; layout <= HEED_CACHE_RING; ++layout) {
    heed_kv_cache* cache = make_cache(layout, HEED_CACHE_F32, 1);
    int step, j;
    for (step = 0; step < 20; ++step) {
      int64_t held[kMost], positions[kMost], length = 0, count = 0;
      int expected_count = 0;
      append_to(cache, 0, step, 1);
      for (j = 0; j <= step; ++j) /* a ring keeps 2 sinks and the last 5 rows */
        if (layout != HEED_CACHE_RING || j < 2 || j > step - 5) held[expected_count++] = j;
      EXPECT(heed_kv_cache_length(cache, 0, &length) == HEED_OK && length == step + 1);
      EXPECT(heed_kv_cache_rows(cache, 0, &count) == HEED_OK && count == expected_count);
      EXPECT(heed_kv_cache_positions(cache, 0, positions, (size_t)count) == HEED_OK);
      EXPECT(memcmp(positions, held, (size_t)count * sizeof held[0]) == 0);
      make_results(&r, 1, (int)count);
      if (count < 3) r.outputs.top_k_index = r.outputs.top_k_weight = NULL;
      EXPECT(heed_kv_cache_attention(&r.query.tensor, cache, NULL, NULL, &r.outputs) == HEED_OK);
      if (count >= 3) expect_results(&r, 0, 0, held, (int)count, (int)count, 2e-6);
    }
    heed_kv_cache_free(cache);
  }
}

static void every_format_keeps_rows_within_its_steps(void) {
  /* The errors of rows of at most 1: half a unit of the last place, or half a step of a group. (For int4 the
   * range is 2, in 15 steps, and the offset adds bf16's 1 / 256.) An output has the errors of its values
   * and its weights. */
  const double steps[] = {0, 1.0 / 256, 1.0 / 2048, 1.0 / 200, 1.0 / 12, 1.0 / 15};
  int32_t format;
  for (format = HEED_CACHE_F32; format <= HEED_CACHE_FP8; ++format) {
    static float keys[kKvHeads * 20 * kDim], values[kKvHeads * 20 * kValueDim];
    const int64_t key_shape[] = {kKvHeads, 20, kDim}, value_shape[] = {kKvHeads, 20, kValueDim};
    static results r;
    heed_kv_cache* cache = make_cache(HEED_CACHE_PAGED, format, 1);
    heed_tensor tensor;
    expected e;
    int64_t positions[20];
    int h, j, c;
    append_to(cache, 0, 0, 20);
    EXPECT(heed_tensor_init(&tensor, keys, HEED_F32, 3, key_shape) == HEED_OK);
    EXPECT(heed_kv_cache_keys(cache, 0, &tensor) == HEED_OK);
    EXPECT(heed_tensor_init(&tensor, values, HEED_F32, 3, value_shape) == HEED_OK);
    EXPECT(heed_kv_cache_values(cache, 0, &tensor) == HEED_OK);
    for (h = 0; h < kKvHeads; ++h)
      for (j = 0; j < 20; ++j) {
        positions[j] = j;
        for (c = 0; c < kDim; ++c)
          EXPECT(fabs((double)(keys[(h * 20 + j) * kDim + c] - key_of(0, h, j, c))) <= steps[format]);
        for (c = 0; c < kValueDim; ++c)
          EXPECT(fabs((double)(values[(h * 20 + j) * kValueDim + c] - value_of(0, h, j, c))) <=
                 steps[format]);
      }
    make_results(&r, 1, 20);
    EXPECT(heed_kv_cache_attention(&r.query.tensor, cache, NULL, NULL, &r.outputs) == HEED_OK);
    expect_rows(&e, 0, 0, positions, 20);
    /* A score changes by at most |q| = 2 * 8 / sqrt(8) steps, and its weight by e to that power. */
    for (h = 0; h < kHeads; ++h)
      for (j = 0; j < 20; ++j)
        EXPECT(fabs((double)r.weights_data[h * 20 + j] - e.weights[h][j]) <=
               2e-6 + e.weights[h][j] * (exp(2 * 16 / sqrt(8.0) * steps[format]) - 1));
    heed_kv_cache_free(cache);
  }
}

/* Whether an f32 cache's sequence holds the rows of sequence `source` at these positions. */
static int holds_rows(const heed_kv_cache* cache, int sequence, int source, const int64_t* positions,
                      int count) {
  static float keys[kKvHeads * kMost * kDim], values[kKvHeads * kMost * kValueDim];
  const int64_t key_shape[] = {kKvHeads, count, kDim}, value_shape[] = {kKvHeads, count, kValueDim};
  heed_tensor tensor;
  int64_t at[kMost];
  int h, j, c, same = 1;
  if (heed_kv_cache_positions(cache, sequence, at, (size_t)count) != HEED_OK) return 0;
  EXPECT(heed_tensor_init(&tensor, keys, HEED_F32, 3, key_shape) == HEED_OK);
  EXPECT(heed_kv_cache_keys(cache, sequence, &tensor) == HEED_OK);
  EXPECT(heed_tensor_init(&tensor, values, HEED_F32, 3, value_shape) == HEED_OK);
  EXPECT(heed_kv_cache_values(cache, sequence, &tensor) == HEED_OK);
  for (j = 0; j < count; ++j) {
    same = same && at[j] == positions[j];
    for (h = 0; h < kKvHeads; ++h) {
      for (c = 0; c < kDim; ++c)
        same = same && keys[(h * count + j) * kDim + c] == key_of(source, h, (int)positions[j], c);
      for (c = 0; c < kValueDim; ++c)
        same = same && values[(h * count + j) * kValueDim + c] == value_of(source, h, (int)positions[j], c);
    }
  }
  return same;
}

static void operations_do_what_they_say(void) {
  const int64_t first[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, left[] = {0, 2, 3, 4, 6}, gone[] = {1, 5};
  heed_kv_cache* cache = make_cache(HEED_CACHE_PAGED, HEED_CACHE_F32, 2);
  heed_kv_cache_stats stats;
  int64_t number = -1, count = -1;
  static rows key, value;
  append_to(cache, 0, 0, 10);
  append_to(cache, 1, 0, 3);
  EXPECT(holds_rows(cache, 0, 0, first, 10) && holds_rows(cache, 1, 1, first, 3));

  EXPECT(heed_kv_cache_fork(cache, 0, &number) == HEED_OK && number == 2);
  EXPECT(heed_kv_cache_sequences(cache, &count) == HEED_OK && count == 3);
  EXPECT(heed_kv_cache_get_stats(cache, &stats) == HEED_OK);
  EXPECT(stats.struct_size == sizeof stats && stats.rows == 23 && stats.capacity == 80 && stats.pages == 20);
  EXPECT(stats.free_pages == 16 && stats.shared_pages == 3);
  EXPECT(stats.bytes == 80 * kKvHeads * (kDim + kValueDim) * 4 && stats.tail_bytes == 0);

  EXPECT(heed_kv_cache_truncate(cache, 2, 7) == HEED_OK && holds_rows(cache, 2, 0, first, 7));
  EXPECT(heed_kv_cache_evict(cache, 2, gone, 2) == HEED_OK && holds_rows(cache, 2, 0, left, 5));
  EXPECT(holds_rows(cache, 0, 0, first, 10));
  EXPECT(heed_kv_cache_clear(cache, 0) == HEED_OK && holds_rows(cache, 2, 0, left, 5));
  EXPECT(heed_kv_cache_rows(cache, 0, &count) == HEED_OK && count == 0);

  EXPECT(heed_kv_cache_reserve(cache, 100) == HEED_OK);
  EXPECT(heed_kv_cache_get_stats(cache, &stats) == HEED_OK && stats.capacity == 100);
  EXPECT(holds_rows(cache, 2, 0, left, 5) && holds_rows(cache, 1, 1, first, 3));

  /* The next fork takes the number of a released sequence. */
  EXPECT(heed_kv_cache_release(cache, 0) == HEED_OK);
  EXPECT_FAILURE(heed_kv_cache_clear(cache, 0),
                 "sequence is 0, which is released; a sequence in use is expected");
  EXPECT(heed_kv_cache_fork(cache, 2, &number) == HEED_OK && number == 0 && holds_rows(cache, 0, 0, left, 5));
  EXPECT(heed_kv_cache_clear(cache, 0) == HEED_OK);

  EXPECT(heed_kv_cache_clear(cache, 1) == HEED_OK && heed_kv_cache_clear(cache, 2) == HEED_OK);
  make_rows(&key, &value, 0, 0, 1);
  shape_rows(&key, 3, kKvHeads, 1, kDim);
  shape_rows(&value, 3, kKvHeads, 1, kValueDim);
  memcpy(key.data + kKvHeads * kDim, key.data, kKvHeads * kDim * sizeof(float));
  memcpy(key.data + 2 * kKvHeads * kDim, key.data, kKvHeads * kDim * sizeof(float));
  memcpy(value.data + kKvHeads * kValueDim, value.data, kKvHeads * kValueDim * sizeof(float));
  memcpy(value.data + 2 * kKvHeads * kValueDim, value.data, kKvHeads * kValueDim * sizeof(float));
  EXPECT(heed_kv_cache_append(cache, &key.tensor, &value.tensor, NULL, NULL, 0) == HEED_OK);
  EXPECT(holds_rows(cache, 0, 0, first, 1) && holds_rows(cache, 1, 0, first, 1));
  EXPECT(holds_rows(cache, 2, 0, first, 1));
  heed_kv_cache_free(cache);
}

/* One row is key and value: the rows of the keys alone are stored, and value is NULL. */
static void values_may_be_channels_of_the_keys(void) {
  static rows key, value;
  static float keys[kKvHeads * 6 * kDim], values[kKvHeads * 6 * kValueDim];
  const int64_t key_shape[] = {kKvHeads, 6, kDim}, value_shape[] = {kKvHeads, 6, kValueDim};
  heed_kv_cache_options options;
  heed_kv_cache_stats stats;
  heed_kv_cache *cache = NULL, *beside = make_cache(HEED_CACHE_PAGED, HEED_CACHE_F32, 1);
  heed_tensor tensor;
  int h, r, c;
  EXPECT(heed_kv_cache_options_init(&options) == HEED_OK);
  options.kv_heads = kKvHeads;
  options.head_dim = kDim;
  options.value_dim = kValueDim;
  options.layout = HEED_CACHE_PAGED;
  options.capacity = 80;
  options.page_size = 4;
  options.values_in_keys = 1;
  EXPECT(heed_kv_cache_create(&options, &cache) == HEED_OK);
  make_rows(&key, &value, 0, 0, 6);
  EXPECT(heed_kv_cache_append(cache, &key.tensor, NULL, NULL, NULL, 0) == HEED_OK);
  EXPECT(heed_kv_cache_get_stats(cache, &stats) == HEED_OK && stats.bytes == 80 * kKvHeads * kDim * 4);
  EXPECT(heed_tensor_init(&tensor, keys, HEED_F32, 3, key_shape) == HEED_OK);
  EXPECT(heed_kv_cache_keys(cache, 0, &tensor) == HEED_OK);
  EXPECT(heed_tensor_init(&tensor, values, HEED_F32, 3, value_shape) == HEED_OK);
  EXPECT(heed_kv_cache_values(cache, 0, &tensor) == HEED_OK);
  for (h = 0; h < kKvHeads; ++h)
    for (r = 0; r < 6; ++r) {
      for (c = 0; c < kDim; ++c) EXPECT(keys[(h * 6 + r) * kDim + c] == key_of(0, h, r, c));
      for (c = 0; c < kValueDim; ++c) EXPECT(values[(h * 6 + r) * kValueDim + c] == key_of(0, h, r, c));
    }
  EXPECT_FAILURE(
      heed_kv_cache_append(cache, &key.tensor, &value.tensor, NULL, NULL, 0),
      "value is given, but the values of this cache are channels of its keys; key alone is expected");
  EXPECT_FAILURE(heed_kv_cache_append(beside, &key.tensor, NULL, NULL, NULL, 0), "value is NULL");
  heed_kv_cache_free(cache);
  heed_kv_cache_free(beside);
}

static void sums_of_what_rows_received_are_kept(void) {
  static float sums_data[kKvHeads * 4], received_data[kHeads * 4];
  const int64_t received_shape[] = {1, kHeads, 4}, sums_shape[] = {kKvHeads, 4};
  heed_kv_cache* cache = make_cache(HEED_CACHE_CONTIGUOUS, HEED_CACHE_F32, 1);
  heed_tensor received, sums;
  int n, h, j;
  for (n = 0; n < kHeads * 4; ++n) received_data[n] = (float)n;
  append_to(cache, 0, 0, 4);
  EXPECT(heed_tensor_init(&received, received_data, HEED_F32, 3, received_shape) == HEED_OK);
  EXPECT(heed_tensor_init(&sums, sums_data, HEED_F32, 2, sums_shape) == HEED_OK);
  EXPECT(heed_kv_cache_add_received(cache, &received, 1, NULL, 0) == HEED_OK);
  EXPECT(heed_kv_cache_add_received(cache, &received, 0.5, NULL, 0) == HEED_OK);
  EXPECT(heed_kv_cache_received(cache, 0, &sums) == HEED_OK);
  for (h = 0; h < kKvHeads; ++h) /* heads 2h and 2h + 1 share key head h; whole numbers are exact */
    for (j = 0; j < 4; ++j)
      EXPECT(sums_data[h * 4 + j] == 1.5f * (float)(2 * h * 4 + j + (2 * h + 1) * 4 + j));
  heed_kv_cache_free(cache);
}

/* Two sequences of 5 and 7 rows in a pool [8, 2, Hkv, D] of pages of 2 rows. */
typedef struct pool {
  rows key, value;
  int64_t table_data[8], length_data[2], indptr_data[3], index_data[8], last_data[2];
  heed_tensor table, lengths, indptr, indices, last;
} pool;

static void make_pool(pool* p) {
  const int64_t table[] = {6, 1, 4, 3, 0, 7, 2, 5}, table_shape[] = {2, 4};
  const int64_t two[] = {2}, three[] = {3}, seven[] = {7};
  const int lengths[] = {5, 7};
  int b, j, h, c;
  shape_rows(&p->key, 8, 2, kKvHeads, kDim);
  shape_rows(&p->value, 8, 2, kKvHeads, kValueDim);
  memcpy(p->table_data, table, sizeof table);
  p->indptr_data[0] = 0; /* three pages and four pages */
  p->indptr_data[1] = 3;
  p->indptr_data[2] = 7;
  memcpy(p->index_data, table, 3 * sizeof table[0]);
  memcpy(p->index_data + 3, table + 4, 4 * sizeof table[0]);
  for (b = 0; b < 2; ++b) {
    p->length_data[b] = lengths[b];
    p->last_data[b] = 1;
    for (j = 0; j < lengths[b]; ++j)
      for (h = 0; h < kKvHeads; ++h) {
        const int row = ((int)table[b * 4 + j / 2] * 2 + j % 2) * kKvHeads + h;
        for (c = 0; c < kDim; ++c) p->key.data[row * kDim + c] = key_of(b, h, j, c);
        for (c = 0; c < kValueDim; ++c) p->value.data[row * kValueDim + c] = value_of(b, h, j, c);
      }
  }
  EXPECT(heed_tensor_init(&p->table, p->table_data, HEED_I64, 2, table_shape) == HEED_OK);
  EXPECT(heed_tensor_init(&p->lengths, p->length_data, HEED_I64, 1, two) == HEED_OK);
  EXPECT(heed_tensor_init(&p->indptr, p->indptr_data, HEED_I64, 1, three) == HEED_OK);
  EXPECT(heed_tensor_init(&p->indices, p->index_data, HEED_I64, 1, seven) == HEED_OK);
  EXPECT(heed_tensor_init(&p->last, p->last_data, HEED_I64, 1, two) == HEED_OK);
}

static void pools_of_others_are_read_and_written_in_place(void) {
  static pool p;
  static results r;
  static rows key, value;
  const int64_t first[] = {0, 1, 2, 3, 4, 5, 6};
  heed_kv_cache *table = NULL, *pages = NULL;
  heed_kv_cache_stats stats;
  int row, c;
  make_pool(&p);
  EXPECT(heed_kv_cache_over_block_table(&p.key.tensor, &p.value.tensor, &p.table, &p.lengths, HEED_PAGES_NHD,
                                        1, &table) == HEED_OK);
  EXPECT(heed_kv_cache_over_page_indices(&p.key.tensor, &p.value.tensor, &p.indptr, &p.indices, &p.last,
                                         HEED_PAGES_NHD, 0, &pages) == HEED_OK);
  EXPECT(holds_rows(table, 0, 0, first, 5) && holds_rows(table, 1, 1, first, 7));
  EXPECT(holds_rows(pages, 0, 0, first, 5) && holds_rows(pages, 1, 1, first, 7));
  EXPECT(heed_kv_cache_get_stats(table, &stats) == HEED_OK && stats.bytes == 0 && stats.rows == 12);
  make_results(&r, 2, 7);
  EXPECT(heed_kv_cache_attention(&r.query.tensor, table, NULL, NULL, &r.outputs) == HEED_OK);
  expect_results(&r, 0, 0, first, 5, 7, 2e-6);
  expect_results(&r, 1, 1, first, 7, 7, 2e-6);

  append_to(table, 0, 5, 2); /* writes the second row of page 4, and the first of page 3 */
  EXPECT(holds_rows(table, 0, 0, first, 7));
  row = (4 * 2 + 1) * kKvHeads;
  for (c = 0; c < kDim; ++c) EXPECT(p.key.data[row * kDim + c] == key_of(0, 0, 5, c));
  row = 3 * 2 * kKvHeads;
  for (c = 0; c < kValueDim; ++c) EXPECT(p.value.data[row * kValueDim + c] == value_of(0, 0, 6, c));

  shape_rows(&key, 2, kKvHeads, 1, kDim);
  shape_rows(&value, 2, kKvHeads, 1, kValueDim);
  EXPECT_FAILURE(heed_kv_cache_append(pages, &key.tensor, &value.tensor, NULL, NULL, 0),
                 "the memory of this cache is read-only; mutable views are expected for append()");
  heed_kv_cache_free(table);
  heed_kv_cache_free(pages);
}

static void tensors_of_others_are_caches(void) {
  static rows key, value;
  const int64_t length_data[] = {6}, one[] = {1}, first[] = {0, 1, 2, 3, 4, 5};
  heed_kv_cache* cache = NULL;
  heed_tensor lengths;
  make_rows(&key, &value, 0, 0, 9);
  EXPECT(heed_tensor_init(&lengths, (void*)length_data, HEED_I64, 1, one) == HEED_OK);
  EXPECT(heed_kv_cache_over(&key.tensor, &value.tensor, &lengths, 0, &cache) == HEED_OK);
  EXPECT(holds_rows(cache, 0, 0, first, 6));
  heed_kv_cache_free(cache);
  EXPECT_FAILURE(heed_kv_cache_over(&key.tensor, &value.tensor, &lengths, 2, &cache),
                 "writable is 2; 0 or 1 is expected");
  EXPECT(cache == NULL);
}

static void caches_are_written_and_read(void) {
  static results r;
  const char* path = "c_kv_cache_test.safetensors";
  const int64_t held[] = {0, 2, 3, 4, 5, 6, 7, 8}, gone[] = {1};
  heed_kv_cache_options options;
  heed_kv_cache *cache = NULL, *again = NULL;
  EXPECT(heed_kv_cache_options_init(&options) == HEED_OK);
  options.kv_heads = kKvHeads;
  options.head_dim = kDim;
  options.value_dim = kValueDim;
  options.capacity = 12;
  EXPECT(heed_kv_cache_create(&options, &cache) == HEED_OK);
  append_to(cache, 0, 0, 9);
  EXPECT(heed_kv_cache_evict(cache, 0, gone, 1) == HEED_OK);
  EXPECT(heed_kv_cache_write(cache, path) == HEED_OK);
  EXPECT(heed_kv_cache_read(path, &again) == HEED_OK);
  EXPECT(holds_rows(again, 0, 0, held, 8));
  make_results(&r, 1, 8);
  EXPECT(heed_kv_cache_attention(&r.query.tensor, again, NULL, NULL, &r.outputs) == HEED_OK);
  expect_results(&r, 0, 0, held, 8, 8, 2e-6);
  heed_kv_cache_free(again);
  EXPECT_FAILURE(heed_kv_cache_write(cache, NULL), "path is NULL");
  EXPECT_FAILURE(heed_kv_cache_read(NULL, &again), "path is NULL");
  EXPECT(again == NULL);
  EXPECT(remove(path) == 0);
  expect_failure(heed_kv_cache_read(path, &again), HEED_IO,
                 "cannot open 'c_kv_cache_test.safetensors': No such file or directory", __LINE__);
  heed_kv_cache_free(cache);
}

static void sequences_and_trees_are_chosen(void) {
  static results r;
  const int64_t first[] = {0, 1, 2, 3, 4, 5, 6}, chosen[] = {1};
  const int64_t parent_data[] = {-1, 0, 0}, three[] = {3}, query_shape[] = {1, kHeads, 3, kDim};
  const int64_t weights_shape[] = {1, kHeads, 3, 7};
  unsigned char mask_data[] = {1, 0, 0, 1, 1, 0, 1, 0, 1};
  const int64_t mask_shape[] = {3, 3};
  static float weights_data[2][kHeads * 3 * 7];
  heed_tensor parents, mask, query, weights;
  heed_attention_outputs outputs;
  heed_cache_query which;
  heed_kv_cache* cache = make_cache(HEED_CACHE_CONTIGUOUS, HEED_CACHE_F32, 2);
  int h, i, j;
  append_to(cache, 0, 0, 2);
  append_to(cache, 1, 0, 7);
  EXPECT(heed_cache_query_init(&which) == HEED_OK);
  which.sequences = chosen;
  which.sequence_count = 1;
  make_results(&r, 1, 7);
  EXPECT(heed_kv_cache_attention(&r.query.tensor, cache, NULL, &which, &r.outputs) == HEED_OK);
  expect_results(&r, 0, 1, first, 7, 7, 2e-6);

  /* Three drafts. The last two have the same parent and do not see each other. */
  EXPECT(heed_tensor_init(&query, r.query.data, HEED_F32, 4, query_shape) == HEED_OK);
  for (h = 0; h < kHeads * 3 * kDim; ++h) r.query.data[h] = (float)sin(h);
  EXPECT(heed_tensor_init(&parents, (void*)parent_data, HEED_I64, 1, three) == HEED_OK);
  EXPECT(heed_tensor_init(&mask, mask_data, HEED_BOOL, 2, mask_shape) == HEED_OK);
  EXPECT(heed_attention_outputs_init(&outputs) == HEED_OK);
  outputs.weights = &weights;
  which.tree_parents = &parents;
  EXPECT(heed_tensor_init(&weights, weights_data[0], HEED_F32, 4, weights_shape) == HEED_OK);
  EXPECT(heed_kv_cache_attention(&query, cache, NULL, &which, &outputs) == HEED_OK);
  which.tree_parents = NULL;
  which.tree_mask = &mask;
  EXPECT(heed_tensor_init(&weights, weights_data[1], HEED_F32, 4, weights_shape) == HEED_OK);
  EXPECT(heed_kv_cache_attention(&query, cache, NULL, &which, &outputs) == HEED_OK);
  for (h = 0; h < kHeads; ++h)
    for (i = 0; i < 3; ++i)
      for (j = 0; j < 7; ++j) {
        const int sees = j < 4 || mask_data[i * 3 + j - 4] == 1;
        EXPECT((weights_data[0][(h * 3 + i) * 7 + j] > 0) == sees);
        EXPECT(weights_data[1][(h * 3 + i) * 7 + j] == weights_data[0][(h * 3 + i) * 7 + j]);
      }
  heed_kv_cache_free(cache);
}

static void structs_of_other_sizes_are_understood(void) {
  struct {
    heed_kv_cache_options options;
    int64_t unknown;
  } newer;
  char text[256];
  heed_kv_cache_stats stats;
  heed_kv_cache* cache = NULL;
  EXPECT(heed_kv_cache_options_init_sized(&newer.options, sizeof newer) == HEED_OK && newer.unknown == 0);
  newer.options.kv_heads = newer.options.head_dim = newer.options.capacity = 1;
  EXPECT(heed_kv_cache_create(&newer.options, &cache) == HEED_OK);
  memset(&stats, 0x7f, sizeof stats); /* an older struct ends after `capacity` */
  EXPECT(heed_kv_cache_get_stats_sized(cache, &stats, 24) == HEED_OK);
  EXPECT(stats.struct_size == 24 && stats.rows == 0 && stats.capacity == 1 &&
         stats.pages == 0x7f7f7f7f7f7f7f7f);
  heed_kv_cache_free(cache);
  newer.unknown = 1;
  sprintf(text,
          "options requests something that heed %s does not know: byte %d of its %d bytes is not 0, but this "
          "version knows only the first %d",
          heed_version(), (int)sizeof(heed_kv_cache_options), (int)sizeof newer,
          (int)sizeof(heed_kv_cache_options));
  EXPECT_FAILURE(heed_kv_cache_create(&newer.options, &cache), text);
  EXPECT(cache == NULL);
}

static void what_is_wrong_is_said(void) {
  static results r;
  static rows key, value;
  static pool p;
  const int64_t held[] = {0, 1, 2};
  heed_kv_cache_options options;
  heed_cache_query which;
  heed_kv_cache *cache = make_cache(HEED_CACHE_CONTIGUOUS, HEED_CACHE_F32, 1), *none = cache;
  int64_t number = 0;
  append_to(cache, 0, 0, 3);
  make_rows(&key, &value, 0, 3, 1);
  make_results(&r, 1, 3);
  make_pool(&p);
  EXPECT(heed_kv_cache_options_init(&options) == HEED_OK);

  EXPECT_FAILURE(heed_kv_cache_create(NULL, &none), "options is NULL");
  EXPECT(none == NULL);
  EXPECT_FAILURE(heed_kv_cache_create(&options, NULL), "cache is NULL");
  EXPECT_FAILURE(heed_kv_cache_create(&options, &none), "kv_heads is 0; 1 to 65536 is expected");
  options.format = 6;
  EXPECT_FAILURE(heed_kv_cache_create(&options, &none), "options.format is 6; 0 to 5 is expected");
  options.format = 0;
  options.layout = -1;
  EXPECT_FAILURE(heed_kv_cache_create(&options, &none), "options.layout is -1; 0 to 2 is expected");
  options.layout = 0;
  options.order = 2;
  EXPECT_FAILURE(heed_kv_cache_create(&options, &none), "options.order is 2; 0 to 1 is expected");
  options.order = 0;
  options.rotate = 2;
  EXPECT_FAILURE(heed_kv_cache_create(&options, &none), "options.rotate is 2; 0 or 1 is expected");
  options.rotate = 0;
  options.reserved = 1;
  EXPECT_FAILURE(heed_kv_cache_create(&options, &none), "options.reserved is 1; 0 is expected");
  EXPECT_FAILURE(
      heed_kv_cache_over_block_table(&p.key.tensor, &p.value.tensor, &p.table, &p.lengths, 3, 0, &none),
      "order is 3; 0 to 1 is expected");
  p.table_data[2] = 8;
  EXPECT_FAILURE(heed_kv_cache_over_block_table(&p.key.tensor, &p.value.tensor, &p.table, &p.lengths,
                                                HEED_PAGES_NHD, 0, &none),
                 "block_table has page 8 at 2; 0 to 7, a page of the pool, is expected");
  EXPECT(none == NULL);

  EXPECT_FAILURE(heed_kv_cache_append(NULL, &key.tensor, &value.tensor, NULL, NULL, 0), "cache is NULL");
  EXPECT_FAILURE(heed_kv_cache_append(cache, NULL, &value.tensor, NULL, NULL, 0), "key is NULL");
  EXPECT_FAILURE(heed_kv_cache_append(cache, &key.tensor, NULL, NULL, NULL, 0), "value is NULL");
  EXPECT_FAILURE(heed_kv_cache_append(cache, &key.tensor, &value.tensor, NULL, held, 1),
                 "sequences is given without offsets; both or none are expected");
  EXPECT_FAILURE(heed_kv_cache_append(cache, &key.tensor, &value.tensor, NULL, NULL, 1), "sequences is NULL");
  /* A list without a count would stand for all sequences. */
  EXPECT_FAILURE(heed_kv_cache_append(cache, &key.tensor, &value.tensor, NULL, held, 0),
                 "count is 0 while sequences is given; 1 or more is expected");
  EXPECT_FAILURE(heed_kv_cache_add_received(cache, &key.tensor, 1, held, 0),
                 "count is 0 while sequences is given; 1 or more is expected");
  EXPECT_FAILURE(heed_kv_cache_truncate(cache, 0, 4),
                 "length is 4; 0 to 3, the length of sequence 0, is expected");
  EXPECT_FAILURE(heed_kv_cache_fork(cache, 0, NULL), "number is NULL");
  EXPECT_FAILURE(heed_kv_cache_clear(cache, 1), "sequence is 1; 0 to 0 is expected");
  EXPECT_FAILURE(heed_kv_cache_evict(cache, 0, NULL, 2), "positions is NULL");
  EXPECT_FAILURE(heed_kv_cache_reserve(cache, -1), "rows is -1; 0 or more is expected");
  EXPECT_FAILURE(heed_kv_cache_rows(cache, 0, NULL), "rows is NULL");
  EXPECT_FAILURE(heed_kv_cache_positions(cache, 0, &number, 1),
                 "count is 1; 3, the rows of sequence 0, is expected");
  EXPECT_FAILURE(heed_kv_cache_positions(cache, 0, NULL, 3), "positions is NULL");
  EXPECT_FAILURE(heed_kv_cache_keys(cache, 0, &key.tensor),
                 "keys has shape [1, 2, 1, 8]; [2, 3, 8] is expected");
  EXPECT_FAILURE(heed_kv_cache_get_stats(cache, NULL), "stats is NULL");

  EXPECT(heed_cache_query_init(&which) == HEED_OK);
  which.sequence_count = -1;
  EXPECT_FAILURE(heed_kv_cache_attention(&r.query.tensor, cache, NULL, &which, &r.outputs),
                 "which.sequence_count is -1; 0 or more is expected");
  which.sequence_count = 1;
  EXPECT_FAILURE(heed_kv_cache_attention(&r.query.tensor, cache, NULL, &which, &r.outputs),
                 "which.sequences is NULL");
  which.sequences = held;
  which.sequence_count = 0;
  EXPECT_FAILURE(heed_kv_cache_attention(&r.query.tensor, cache, NULL, &which, &r.outputs),
                 "which.sequence_count is 0 while which.sequences is given; 1 or more is expected");
  EXPECT_FAILURE(heed_kv_cache_attention(NULL, cache, NULL, NULL, &r.outputs), "query is NULL");
  EXPECT_FAILURE(heed_kv_cache_attention(&r.query.tensor, NULL, NULL, NULL, &r.outputs), "cache is NULL");
  EXPECT_FAILURE(heed_kv_cache_attention(&r.query.tensor, cache, NULL, NULL, NULL), "outputs is NULL");

  EXPECT(holds_rows(cache, 0, 0, held, 3));
  heed_kv_cache_free(cache);
  heed_kv_cache_free(NULL);
}

/* Heads 2h and 2h + 1 of the query are the halves of head h, and read the same keys. */
static void differential_attention_decodes_over_a_cache(void) {
  static results r;
  heed_kv_cache* cache = make_cache(HEED_CACHE_PAGED, HEED_CACHE_F32, 1);
  const int64_t shape[] = {1, kHeads / 2, 1, kValueDim}, one[] = {kHeads / 2}, held[] = {0, 1, 2, 3, 4, 5, 6};
  float output_data[kHeads / 2 * kValueDim], factors[kHeads / 2] = {0.5f, 0.25f};
  heed_tensor output, lambda;
  expected e;
  int h, c;
  append_to(cache, 0, 0, 7);
  make_results(&r, 1, 7);
  expect_rows(&e, 0, 0, held, 7);
  EXPECT(heed_tensor_init(&output, output_data, HEED_F32, 4, shape) == HEED_OK);
  EXPECT(heed_tensor_init(&lambda, factors, HEED_F32, 1, one) == HEED_OK);
  r.outputs.weights = r.outputs.received = NULL;
  r.outputs.output = &output;
  EXPECT(heed_kv_cache_differential_attention(&r.query.tensor, cache, &lambda, NULL, NULL, &r.outputs,
                                              &r.output) == HEED_OK);
  for (h = 0; h < kHeads; ++h) {
    const double top = (double)r.top_weight_data[h * 3];
    EXPECT(fabs(top - e.weights[h][r.top_index_data[h * 3]]) <= 2e-6);
    for (c = 0; c < kValueDim; ++c) {
      const double factor = (double)factors[h / 2];
      EXPECT(fabs((double)r.output_data[h * kValueDim + c] - e.output[h][c]) <= 2e-6);
      if (h % 2 == 0)
        EXPECT(fabs((double)output_data[h / 2 * kValueDim + c] -
                    (e.output[h][c] - factor * e.output[h + 1][c])) <= 4e-6);
    }
  }
  EXPECT_FAILURE(
      heed_kv_cache_differential_attention(&r.query.tensor, NULL, &lambda, NULL, NULL, &r.outputs, NULL),
      "cache is NULL");
  heed_kv_cache_free(cache);
}

int main(void) {
  differential_attention_decodes_over_a_cache();
  decoding_over_every_layout_is_the_formula();
  every_format_keeps_rows_within_its_steps();
  operations_do_what_they_say();
  values_may_be_channels_of_the_keys();
  sums_of_what_rows_received_are_kept();
  pools_of_others_are_read_and_written_in_place();
  tensors_of_others_are_caches();
  caches_are_written_and_read();
  sequences_and_trees_are_chosen();
  structs_of_other_sizes_are_understood();
  what_is_wrong_is_said();
  if (failures > 0) fprintf(stderr, "%d expectations failed\n", failures);
  return failures > 0;
}
