/* The C ABI as a C program uses it: compiled as C99, linked with the library. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "c_expect.h"
#include "heed/heed.h"

enum { kQueries = 3, kKeys = 4, kDim = 2 };

/* A call of rank 2: three queries, four keys, head dimension 2. */
typedef struct call {
  double query_data[kQueries * kDim], key_data[kKeys * kDim], value_data[kKeys * kDim];
  double output_data[kQueries * kDim];
  heed_tensor query, key, value, output;
  heed_attention_options options;
  heed_attention_outputs outputs;
} call;

static void make_call(call* c) {
  const int64_t query_shape[] = {kQueries, kDim};
  const int64_t key_shape[] = {kKeys, kDim};
  int n;
  memset(c, 0, sizeof *c);
  for (n = 0; n < kQueries * kDim; ++n) c->query_data[n] = sin(n + 1.0);
  for (n = 0; n < kKeys * kDim; ++n) {
    c->key_data[n] = cos(2.0 * n);
    c->value_data[n] = n;
  }
  EXPECT(heed_tensor_init(&c->query, c->query_data, HEED_F64, 2, query_shape) == HEED_OK);
  EXPECT(heed_tensor_init(&c->key, c->key_data, HEED_F64, 2, key_shape) == HEED_OK);
  EXPECT(heed_tensor_init(&c->value, c->value_data, HEED_F64, 2, key_shape) == HEED_OK);
  EXPECT(heed_tensor_init(&c->output, c->output_data, HEED_F64, 2, query_shape) == HEED_OK);
  EXPECT(heed_attention_options_init(&c->options) == HEED_OK);
  EXPECT(heed_attention_outputs_init(&c->outputs) == HEED_OK);
  c->outputs.output = &c->output;
}

static heed_status attend(call* c) {
  return heed_attention(&c->query, &c->key, &c->value, &c->options, &c->outputs);
}

/* Column `column` of row i of the output, with keys up to `last`, from the formula. */
static double expected_output(const call* c, int i, int last, int column) {
  double sum = 0, weighted = 0;
  int j;
  for (j = 0; j <= last && j < kKeys; ++j) {
    const double* q = c->query_data + i * kDim;
    const double* k = c->key_data + j * kDim;
    const double e = exp((q[0] * k[0] + q[1] * k[1]) / sqrt(2.0));
    sum += e;
    weighted += e * c->value_data[j * kDim + column];
  }
  return weighted / sum;
}

/* The tolerance 1e-14 is for sums of four terms of at most 8 in f64. */
static int output_is_right(const call* c, int causal) {
  int i, column, right = 1;
  for (i = 0; i < kQueries; ++i)
    for (column = 0; column < kDim; ++column)
      if (!(fabs(c->output_data[i * kDim + column] - expected_output(c, i, causal ? i : kKeys, column)) <=
            1e-14))
        right = 0;
  return right;
}

static void attention_is_the_formula(void) {
  call c;
  make_call(&c);
  EXPECT(attend(&c) == HEED_OK);
  EXPECT(output_is_right(&c, 0));
  EXPECT(strcmp(heed_last_error(), "") == 0);
  memset(c.output_data, 0, sizeof c.output_data);
  EXPECT(heed_attention(&c.query, &c.key, &c.value, NULL, &c.outputs) == HEED_OK);
  EXPECT(output_is_right(&c, 0));
  c.options.causal = 1;
  EXPECT(attend(&c) == HEED_OK);
  EXPECT(output_is_right(&c, 1));
}

static void every_output_can_be_asked_for(void) {
  double weights_data[kQueries * kKeys], scores_data[kQueries * kKeys], rows[4][kQueries], keys[2][kKeys];
  double map_data[4], top_weight_data[kQueries * 2];
  int64_t top_index_data[kQueries * 2];
  const int64_t matrix[] = {kQueries, kKeys}, row[] = {kQueries}, key[] = {kKeys};
  const int64_t top[] = {kQueries, 2}, grid[] = {2, 2};
  heed_tensor weights, scores, lse, max_score, entropy, distance, top_index, top_weight, received, last, map;
  heed_attention_run run;
  double sum = 0;
  int j;
  call c;
  make_call(&c);
  EXPECT(heed_tensor_init(&weights, weights_data, HEED_F64, 2, matrix) == HEED_OK);
  EXPECT(heed_tensor_init(&scores, scores_data, HEED_F64, 2, matrix) == HEED_OK);
  EXPECT(heed_tensor_init(&lse, rows[0], HEED_F64, 1, row) == HEED_OK);
  EXPECT(heed_tensor_init(&max_score, rows[1], HEED_F64, 1, row) == HEED_OK);
  EXPECT(heed_tensor_init(&entropy, rows[2], HEED_F64, 1, row) == HEED_OK);
  EXPECT(heed_tensor_init(&distance, rows[3], HEED_F64, 1, row) == HEED_OK);
  EXPECT(heed_tensor_init(&received, keys[0], HEED_F64, 1, key) == HEED_OK);
  EXPECT(heed_tensor_init(&last, keys[1], HEED_F64, 1, key) == HEED_OK);
  EXPECT(heed_tensor_init(&top_index, top_index_data, HEED_I64, 2, top) == HEED_OK);
  EXPECT(heed_tensor_init(&top_weight, top_weight_data, HEED_F64, 2, top) == HEED_OK);
  EXPECT(heed_tensor_init(&map, map_data, HEED_F64, 2, grid) == HEED_OK);
  c.outputs.weights = &weights;
  c.outputs.scores = &scores;
  c.outputs.lse = &lse;
  c.outputs.max_score = &max_score;
  c.outputs.entropy = &entropy;
  c.outputs.distance = &distance;
  c.outputs.received = &received;
  c.outputs.received_last = &last;
  c.outputs.top_k_index = &top_index;
  c.outputs.top_k_weight = &top_weight;
  c.outputs.map = &map;
  c.outputs.run = &run;
  c.options.received_last = 1;
  c.options.kernel = HEED_KERNEL_REFERENCE;
  EXPECT(attend(&c) == HEED_OK);
  for (j = 0; j < kKeys; ++j) {
    sum += weights_data[j];
    EXPECT(fabs(weights_data[j] - exp(scores_data[j] - rows[0][0])) <= 1e-14);
    EXPECT(keys[1][j] == weights_data[2 * kKeys + j]);
  }
  EXPECT(fabs(sum - 1) <= 1e-14);
  EXPECT(top_weight_data[0] == weights_data[top_index_data[0]]);
  EXPECT(rows[1][0] == scores_data[top_index_data[0]]);
  EXPECT(rows[2][0] > 0 && rows[2][0] <= log(4.0) + 1e-14);
  EXPECT(rows[3][0] > 0 && rows[3][0] < 3);
  EXPECT(fabs(map_data[0] + map_data[1] + map_data[2] + map_data[3] - 3) <= 1e-14);
  EXPECT(run.kernel == HEED_KERNEL_REFERENCE && run.threads == 1);
  EXPECT(strcmp(run.isa, "f64 reference") == 0);
}

static void a_plan_is_text_of_any_length(void) {
  char text[4096], whole[4096];
  double weights_data[kQueries * kKeys];
  const int64_t matrix[] = {kQueries, kKeys};
  heed_tensor weights;
  size_t length = 0, again = 0;
  char bytes[64];
  call c;
  make_call(&c);
  c.options.causal = 1;
  EXPECT(heed_tensor_init(&weights, weights_data, HEED_F64, 2, matrix) == HEED_OK);
  c.outputs.weights = &weights;
  c.output_data[0] = weights_data[0] = -7;
  EXPECT(heed_plan_attention(&c.query, &c.key, &c.value, &c.options, &c.outputs, NULL, 0, &length) ==
         HEED_OK);
  EXPECT(length > 0 && length < sizeof whole);
  EXPECT(heed_plan_attention(&c.query, &c.key, &c.value, &c.options, &c.outputs, whole, sizeof whole,
                             &again) == HEED_OK);
  EXPECT(again == length && strlen(whole) == length && whole[0] == '{' && whole[length - 1] == '}');
  EXPECT(strstr(whole, "\"kernel\":\"reference\"") != NULL);
  /* 1 + 2 + 3 keys that causality lets three queries see, by kDim numbers of key and of value */
  sprintf(bytes, "\"flops\":%d.0,\"result_bytes\":%d,", 2 * 6 * 2 * kDim,
          (int)sizeof(double) * kQueries * (kDim + kKeys));
  EXPECT(strstr(whole, bytes) != NULL);
  EXPECT(heed_plan_attention(&c.query, &c.key, &c.value, &c.options, &c.outputs, text, 9, &again) == HEED_OK);
  EXPECT(again == length && strlen(text) == 8 && strncmp(text, whole, 8) == 0);
  EXPECT(c.output_data[0] == -7 && weights_data[0] == -7);
  EXPECT_FAILURE(heed_plan_attention(&c.query, &c.key, &c.value, NULL, &c.outputs, NULL, 1, &length),
                 "text is NULL");
  EXPECT_FAILURE(heed_plan_attention(&c.query, &c.key, &c.value, NULL, &c.outputs, text, 9, NULL),
                 "length is NULL");
  EXPECT_FAILURE(heed_plan_attention(&c.query, &c.key, &c.value, NULL, NULL, text, 9, &length),
                 "outputs is NULL");
  c.options.softcap = -1;
  EXPECT_FAILURE(heed_plan_attention(&c.query, &c.key, &c.value, &c.options, &c.outputs, text, 9, &length),
                 "softcap is -1; a finite number of 0 (off) or more is expected");
}

static void every_option_is_passed_on(void) {
  const int64_t shape_keys[] = {kKeys}, shape_one[] = {1}, shape_two[] = {2};
  const int64_t grid[] = {kQueries, kKeys};
  unsigned char allowed[] = {1, 0, 1, 0};
  double bias_data[] = {0, 0, -INFINITY, 0}, slope_data[] = {0.5}, sink_data[] = {3};
  double decay_data[] = {0, -1, -3, -6};
  int32_t length_data[] = {3};
  int64_t query_offsets[] = {0, kQueries}, key_offsets[] = {0, kKeys};
  double scores_data[kQueries * kKeys];
  heed_tensor mask, bias, slopes, decay, sinks, lengths, query_segments, key_segments, scores;
  call c;
  make_call(&c);
  EXPECT(heed_tensor_init(&mask, allowed, HEED_BOOL, 1, shape_keys) == HEED_OK);
  EXPECT(heed_tensor_init(&bias, bias_data, HEED_F64, 1, shape_keys) == HEED_OK);
  EXPECT(heed_tensor_init(&slopes, slope_data, HEED_F64, 1, shape_one) == HEED_OK);
  EXPECT(heed_tensor_init(&decay, decay_data, HEED_F64, 1, shape_keys) == HEED_OK);
  EXPECT(heed_tensor_init(&sinks, sink_data, HEED_F64, 1, shape_one) == HEED_OK);
  EXPECT(heed_tensor_init(&lengths, length_data, HEED_I32, 1, shape_one) == HEED_OK);
  EXPECT(heed_tensor_init(&query_segments, query_offsets, HEED_I64, 1, shape_two) == HEED_OK);
  EXPECT(heed_tensor_init(&key_segments, key_offsets, HEED_I64, 1, shape_two) == HEED_OK);
  EXPECT(heed_tensor_init(&scores, scores_data, HEED_F64, 2, grid) == HEED_OK);
  c.outputs.scores = &scores;

  c.options.mask = &mask;
  EXPECT(attend(&c) == HEED_OK && isinf(scores_data[1]) && isinf(scores_data[3]) && !isinf(scores_data[0]));
  c.options.mask = NULL;
  c.options.bias = &bias;
  EXPECT(attend(&c) == HEED_OK && isinf(scores_data[2]) && !isinf(scores_data[1]));
  c.options.scores_stage = HEED_SCORES_RAW;
  EXPECT(attend(&c) == HEED_OK && !isinf(scores_data[2]));
  c.options.bias = NULL;
  c.options.has_scale = 1;
  c.options.scale = 0;
  c.options.alibi_slopes = &slopes;
  c.options.scores_stage = HEED_SCORES_BIAS;
  c.options.has_query_offset = 1;
  c.options.query_offset = 1;
  EXPECT(attend(&c) == HEED_OK && scores_data[0] == -0.5 && scores_data[1] == 0 && scores_data[3] == -1);
  c.options.has_query_offset = 0;
  c.options.alibi_slopes = NULL;
  c.options.decay = &decay;
  EXPECT(attend(&c) == HEED_OK && scores_data[0] == 0 && scores_data[1] == 1 && scores_data[kKeys] == -1);
  c.options.decay = NULL;
  c.options.scale = 1e6;
  c.options.softcap = 2;
  EXPECT(attend(&c) == HEED_OK && fabs(scores_data[0]) == 2);
  c.options.softcap = 0;
  c.options.scale = 0;
  c.options.sinks = &sinks;
  EXPECT(attend(&c) == HEED_OK && c.output_data[0] < 1);
  c.options.sinks = NULL;
  c.options.kv_lengths = &lengths;
  c.options.align = HEED_BOTTOM_RIGHT;
  c.options.window_left = 0;
  EXPECT(attend(&c) == HEED_OK && isinf(scores_data[3]) && isinf(scores_data[kKeys]) &&
         !isinf(scores_data[0]));
  c.options.kv_lengths = NULL;
  c.options.window_left = -1;
  c.options.window_right = 0;
  c.options.query_segments = &query_segments;
  c.options.key_segments = &key_segments;
  EXPECT(attend(&c) == HEED_OK && !isinf(scores_data[1]) && isinf(scores_data[2]));
  c.options.dropout_probability = 0.999;
  c.options.dropout_seed = 1;
  c.options.dropout_offset = 2;
  c.options.threads = 2;
  EXPECT(attend(&c) == HEED_OK && c.output_data[1] == 0);
}

static void an_output_of_narrow_inputs_may_be_f32(void) {
  uint16_t one[] = {0x3f80, 0x3f80}; /* 1 in bf16 */
  const int64_t shape[] = {1, 2};
  float wide[2] = {0, 0};
  heed_tensor tensor, output;
  heed_attention_outputs outputs;
  EXPECT(heed_tensor_init(&tensor, one, HEED_BF16, 2, shape) == HEED_OK);
  EXPECT(heed_tensor_init(&output, wide, HEED_F32, 2, shape) == HEED_OK);
  EXPECT(heed_attention_outputs_init(&outputs) == HEED_OK);
  outputs.output = &output;
  EXPECT(heed_attention(&tensor, &tensor, &tensor, NULL, &outputs) == HEED_OK);
  EXPECT(wide[0] == 1 && wide[1] == 1);
}

static void structs_of_other_sizes_are_understood(void) {
  struct {
    heed_attention_options options;
    int64_t unknown[2];
  } newer;
  struct {
    heed_attention_outputs outputs;
    int64_t unknown;
  } newer_outputs;
  char text[256];
  call c;
  make_call(&c);
  memset(&newer, 0xff, sizeof newer);
  EXPECT(heed_attention_options_init_sized(&newer.options, sizeof newer) == HEED_OK);
  EXPECT(newer.options.struct_size == sizeof newer && newer.unknown[1] == 0);
  newer.options.causal = 1;
  EXPECT(heed_attention(&c.query, &c.key, &c.value, &newer.options, &c.outputs) == HEED_OK);
  EXPECT(output_is_right(&c, 1));
  newer.unknown[1] = 1;
  sprintf(text,
          "options requests something that heed %s does not know: byte %d of its %d bytes is not 0, but this "
          "version knows only the first %d",
          heed_version(), (int)sizeof(heed_attention_options) + 8, (int)sizeof newer,
          (int)sizeof(heed_attention_options));
  EXPECT_FAILURE(heed_attention(&c.query, &c.key, &c.value, &newer.options, &c.outputs), text);

  EXPECT(heed_attention_outputs_init_sized(&newer_outputs.outputs, sizeof newer_outputs) == HEED_OK);
  newer_outputs.outputs.output = &c.output;
  newer_outputs.unknown = 1;
  EXPECT(heed_attention(&c.query, &c.key, &c.value, NULL, &newer_outputs.outputs) == HEED_INVALID_ARGUMENT);
  newer_outputs.unknown = 0;
  EXPECT(heed_attention(&c.query, &c.key, &c.value, NULL, &newer_outputs.outputs) == HEED_OK);

  /* An older struct ends after `align`; the library must not read beyond. */
  memset(&c.options, 0x7f, sizeof c.options);
  EXPECT(heed_attention_options_init_sized(&c.options, 16) == HEED_OK);
  EXPECT(c.options.struct_size == 16 && c.options.has_scale == 0x7f7f7f7f);
  c.options.causal = 1;
  EXPECT(attend(&c) == HEED_OK);
  EXPECT(output_is_right(&c, 1));

  c.options.struct_size = 12;
  EXPECT_FAILURE(attend(&c),
                 "options.struct_size is 12; the sizeof of the struct, as its init function sets it, "
                 "is expected");
  c.options.struct_size = 1 << 20;
  EXPECT_FAILURE(attend(&c),
                 "options.struct_size is 1048576; the sizeof of the struct, as its init function sets "
                 "it, is expected");
  EXPECT_FAILURE(
      heed_attention_outputs_init_sized(&c.outputs, 0),
      "outputs.struct_size is 0; the sizeof of the struct, as its init function sets it, is expected");
}

static void what_is_wrong_with_a_tensor_is_said(void) {
  const int64_t shape[] = {1, 1, 1, 1, 1, 1}, negative[] = {2, -3};
  call c;
  make_call(&c);
  EXPECT_FAILURE(heed_tensor_init(NULL, NULL, HEED_F32, 1, shape), "tensor is NULL");
  EXPECT_FAILURE(heed_tensor_init(&c.query, NULL, HEED_F32, 1, NULL), "shape is NULL");
  EXPECT_FAILURE(heed_tensor_init(&c.query, NULL, 8, 1, shape),
                 "tensor.dtype is 8; a heed_dtype, 0 to 7, is expected");
  EXPECT_FAILURE(heed_tensor_init(&c.query, NULL, HEED_F32, 6, shape),
                 "tensor.rank is 6; 1 to 5 is expected");
  EXPECT_FAILURE(heed_tensor_init(&c.query, NULL, HEED_F32, 2, negative),
                 "tensor has shape [2, -3]; sizes of 0 or more are expected");
  EXPECT_FAILURE(heed_attention(NULL, &c.key, &c.value, NULL, &c.outputs), "query is NULL");
  EXPECT_FAILURE(heed_attention(&c.query, &c.key, &c.value, NULL, NULL), "outputs is NULL");
  EXPECT_FAILURE(heed_attention_options_init(NULL), "options is NULL");
  c.key.dtype = -1;
  EXPECT_FAILURE(attend(&c), "key.dtype is -1; a heed_dtype, 0 to 7, is expected");
  c.key.dtype = HEED_F64;
  c.key.rank = 0;
  EXPECT_FAILURE(attend(&c), "key.rank is 0; 1 to 5 is expected");
  c.key.rank = 2;
  c.value.data = NULL;
  EXPECT_FAILURE(attend(&c), "value.data is NULL for shape [4, 2]");
  c.value.data = c.value_data;
  c.output.dtype = HEED_F16;
  EXPECT_FAILURE(attend(&c), "outputs.output has dtype f16; f64 is expected");
  c.output.dtype = HEED_F64;
  c.output.strides[0] = 0;
  EXPECT_FAILURE(attend(&c),
                 "outputs.output has shape [3, 2] and strides [0, 1], so it may overlap itself; separate "
                 "memory for each element is expected");
}

static void what_is_wrong_with_an_option_is_said(void) {
  call c;
  make_call(&c);
  c.options.causal = 2;
  EXPECT_FAILURE(attend(&c), "options.causal is 2; 0 or 1 is expected");
  c.options.causal = 0;
  c.options.align = 2;
  EXPECT_FAILURE(attend(&c), "options.align is 2; 0 to 1 is expected");
  c.options.align = 0;
  c.options.has_scale = -1;
  EXPECT_FAILURE(attend(&c), "options.has_scale is -1; 0 or 1 is expected");
  c.options.has_scale = 1;
  c.options.scale = NAN;
  EXPECT_FAILURE(attend(&c), "scale is nan; a finite number is expected");
  c.options.has_scale = 0;
  c.options.has_query_offset = 3;
  EXPECT_FAILURE(attend(&c), "options.has_query_offset is 3; 0 or 1 is expected");
  c.options.has_query_offset = 0;
  c.options.scores_stage = 3;
  EXPECT_FAILURE(attend(&c), "options.scores_stage is 3; 0 to 2 is expected");
  c.options.scores_stage = 0;
  c.options.kernel = -1;
  EXPECT_FAILURE(attend(&c), "options.kernel is -1; 0 to 2 is expected");
  c.options.kernel = 0;
  c.options.reserved = 1;
  EXPECT_FAILURE(attend(&c), "options.reserved is 1; 0 is expected");
}

/* The backward pass of a call. The loss is the sum of its output and of its lse. */
typedef struct backward_call {
  call forward;
  double lse_data[kQueries], one[1], grad_data[3][kKeys * kDim];
  heed_tensor lse, ones, grad_lse, grad_query, grad_key, grad_value;
  heed_attention_backward_inputs inputs;
  heed_attention_gradients gradients;
} backward_call;

static void make_backward_call(backward_call* c) {
  const int64_t row[] = {kQueries}, query_shape[] = {kQueries, kDim}, key_shape[] = {kKeys, kDim};
  call* f = &c->forward;
  make_call(f);
  c->one[0] = 1;
  EXPECT(heed_tensor_init(&c->lse, c->lse_data, HEED_F64, 1, row) == HEED_OK);
  EXPECT(heed_tensor_init(&c->grad_lse, c->one, HEED_F64, 1, row) == HEED_OK);
  EXPECT(heed_tensor_init(&c->ones, c->one, HEED_F64, 2, query_shape) == HEED_OK);
  c->grad_lse.strides[0] = c->ones.strides[0] = c->ones.strides[1] = 0;
  EXPECT(heed_tensor_init(&c->grad_query, c->grad_data[0], HEED_F64, 2, query_shape) == HEED_OK);
  EXPECT(heed_tensor_init(&c->grad_key, c->grad_data[1], HEED_F64, 2, key_shape) == HEED_OK);
  EXPECT(heed_tensor_init(&c->grad_value, c->grad_data[2], HEED_F64, 2, key_shape) == HEED_OK);
  EXPECT(heed_attention_backward_inputs_init(&c->inputs) == HEED_OK);
  c->inputs.query = &f->query;
  c->inputs.key = &f->key;
  c->inputs.value = &f->value;
  c->inputs.output = &f->output;
  c->inputs.lse = &c->lse;
  c->inputs.grad_output = &c->ones;
  EXPECT(heed_attention_gradients_init(&c->gradients) == HEED_OK);
  c->gradients.query = &c->grad_query;
  c->gradients.key = &c->grad_key;
  c->gradients.value = &c->grad_value;
  f->outputs.lse = &c->lse;
}

static heed_status differentiate(backward_call* c) {
  return heed_attention_backward(&c->inputs, &c->forward.options, &c->gradients);
}

/* The loss after adding h to element n of `data`. */
static double moved_loss(backward_call* c, double* data, int n, double h, int with_lse) {
  const double before = data[n];
  double loss = 0;
  int i;
  data[n] = before + h;
  EXPECT(attend(&c->forward) == HEED_OK);
  for (i = 0; i < kQueries * kDim; ++i) loss += c->forward.output_data[i];
  for (i = 0; with_lse && i < kQueries; ++i) loss += c->lse_data[i];
  data[n] = before;
  return loss;
}

/* The tolerance 1e-8 covers h^2 times third derivatives of values up to 8, and 1e-16 * 50 / h. */
static int gradient_is_right(backward_call* c, double* data, const double* gradient, int count,
                             int with_lse) {
  const double h = 1e-5;
  int n, right = 1;
  for (n = 0; n < count; ++n) {
    const double slope =
        (moved_loss(c, data, n, h, with_lse) - moved_loss(c, data, n, -h, with_lse)) / (2 * h);
    if (!(fabs(gradient[n] - slope) <= 1e-8)) right = 0;
  }
  return right;
}

static void gradients_are_the_slopes_of_the_output(void) {
  backward_call c;
  heed_attention_run run;
  int with_lse;
  make_backward_call(&c);
  c.forward.options.causal = 1;
  c.gradients.run = &run;
  for (with_lse = 0; with_lse < 2; ++with_lse) {
    if (with_lse) c.inputs.grad_lse = &c.grad_lse;
    EXPECT(attend(&c.forward) == HEED_OK);
    EXPECT(differentiate(&c) == HEED_OK);
    EXPECT(strcmp(heed_last_error(), "") == 0);
    EXPECT(gradient_is_right(&c, c.forward.query_data, c.grad_data[0], kQueries * kDim, with_lse));
    EXPECT(gradient_is_right(&c, c.forward.key_data, c.grad_data[1], kKeys * kDim, with_lse));
    EXPECT(gradient_is_right(&c, c.forward.value_data, c.grad_data[2], kKeys * kDim, with_lse));
  }
  EXPECT(run.kernel == HEED_KERNEL_REFERENCE && strcmp(run.isa, "f64 reference") == 0);

  c.forward.options.causal = 0;
  EXPECT(attend(&c.forward) == HEED_OK);
  EXPECT(heed_attention_backward(&c.inputs, NULL, &c.gradients) == HEED_OK);
  EXPECT(gradient_is_right(&c, c.forward.query_data, c.grad_data[0], kQueries * kDim, 1));
}

static void gradients_of_bias_sinks_and_decay_are_given_on_request(void) {
  const int64_t one[] = {1}, keys[] = {kKeys}, matrix[] = {kQueries, kKeys};
  double bias_data[kKeys] = {0, 1, 2, 3}, sink_data[] = {0.5}, grad_bias[kKeys], grad_sink[1];
  double decay_data[kKeys] = {0, -1, -1.5, -3}, grad_decay[kKeys];
  double grad_weights[kQueries * kKeys];
  heed_tensor bias, sinks, decay, bias_gradient, sink_gradient, decay_gradient, weights_gradient;
  backward_call c;
  int n;
  make_backward_call(&c);
  EXPECT(heed_tensor_init(&bias, bias_data, HEED_F64, 1, keys) == HEED_OK);
  EXPECT(heed_tensor_init(&sinks, sink_data, HEED_F64, 1, one) == HEED_OK);
  EXPECT(heed_tensor_init(&decay, decay_data, HEED_F64, 1, keys) == HEED_OK);
  EXPECT(heed_tensor_init(&decay_gradient, grad_decay, HEED_F64, 1, keys) == HEED_OK);
  EXPECT(heed_tensor_init(&bias_gradient, grad_bias, HEED_F64, 1, keys) == HEED_OK);
  EXPECT(heed_tensor_init(&sink_gradient, grad_sink, HEED_F64, 1, one) == HEED_OK);
  EXPECT(heed_tensor_init(&weights_gradient, grad_weights, HEED_F64, 2, matrix) == HEED_OK);
  c.forward.options.bias = &bias;
  c.forward.options.sinks = &sinks;
  c.forward.options.decay = &decay;
  c.gradients.query = c.gradients.key = c.gradients.value = NULL;
  c.gradients.bias = &bias_gradient;
  c.gradients.sinks = &sink_gradient;
  c.gradients.decay = &decay_gradient;
  EXPECT(attend(&c.forward) == HEED_OK);
  EXPECT(differentiate(&c) == HEED_OK);
  EXPECT(gradient_is_right(&c, bias_data, grad_bias, kKeys, 0));
  EXPECT(gradient_is_right(&c, sink_data, grad_sink, 1, 0));
  EXPECT(gradient_is_right(&c, decay_data, grad_decay, kKeys, 0));
  /* Adding a number to all logits of a row and its sink changes no weight. So these gradients add up to 0. */
  for (n = 0; n < kQueries * kKeys; ++n) grad_weights[n] = 1;
  c.one[0] = 0;
  c.inputs.grad_weights = &weights_gradient;
  EXPECT(attend(&c.forward) == HEED_OK);
  EXPECT(differentiate(&c) == HEED_OK);
  EXPECT(grad_sink[0] < -0.01);
  EXPECT(fabs(grad_sink[0] + grad_bias[0] + grad_bias[1] + grad_bias[2] + grad_bias[3]) <= 1e-14);
}

static void what_is_wrong_with_a_backward_call_is_said(void) {
  backward_call c;
  make_backward_call(&c);
  EXPECT_FAILURE(heed_attention_backward(NULL, NULL, &c.gradients), "inputs is NULL");
  EXPECT_FAILURE(heed_attention_backward(&c.inputs, NULL, NULL), "gradients is NULL");
  EXPECT_FAILURE(heed_attention_backward_inputs_init(NULL), "inputs is NULL");
  EXPECT_FAILURE(heed_attention_gradients_init(NULL), "gradients is NULL");
  c.inputs.lse = NULL;
  EXPECT_FAILURE(differentiate(&c), "inputs.lse is NULL");
  c.inputs.lse = &c.lse;
  c.grad_key.dtype = HEED_F32;
  EXPECT_FAILURE(differentiate(&c), "gradients.key has dtype f32; f64 is expected");
  c.grad_key.dtype = HEED_F64;
  c.forward.options.causal = 2;
  EXPECT_FAILURE(differentiate(&c), "options.causal is 2; 0 or 1 is expected");
  c.forward.options.causal = 0;
  c.inputs.struct_size = 4;
  EXPECT_FAILURE(
      differentiate(&c),
      "inputs.struct_size is 4; the sizeof of the struct, as its init function sets it, is expected");
  c.inputs.struct_size = sizeof c.inputs;
  c.gradients.struct_size = 1 << 20;
  EXPECT_FAILURE(
      differentiate(&c),
      "gradients.struct_size is 1048576; the sizeof of the struct, as its init function sets it, is "
      "expected");
}

static void targets_are_listed_and_chosen(void) {
  size_t count = 0;
  EXPECT(heed_target_count(&count) == HEED_OK && count >= 1);
  heed_target target;
  int chosen = 0, anywhere = 0;
  for (size_t i = 0; i < count; ++i) {
    EXPECT(heed_get_target(i, &target) == HEED_OK);
    chosen += target.chosen;
    anywhere += strcmp(target.name, "plain") == 0 && target.available == 1 && target.required[0] == 0;
    EXPECT(target.why[0] != 0);
  }
  EXPECT(chosen == 1 && anywhere == 1);
  EXPECT(heed_get_target(count, &target) == HEED_INVALID_ARGUMENT);
  EXPECT(heed_set_target("abacus") == HEED_INVALID_ARGUMENT);
  EXPECT(strstr(heed_last_error(), "target is 'abacus'") != NULL);
  EXPECT(heed_set_target("plain") == HEED_OK);
}

static void rows_that_f32_cannot_hold_are_counted(void) {
  float numbers[8] = {1, 2, 3, 4, 5, 6, 7, 8}, result[8];
  numbers[2] = NAN;
  heed_tensor q, k, out;
  const int64_t shape[2] = {4, 2};
  heed_tensor_init(&q, numbers, HEED_F32, 2, shape);
  float keys[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  heed_tensor_init(&k, keys, HEED_F32, 2, shape);
  heed_tensor_init(&out, result, HEED_F32, 2, shape);
  heed_attention_outputs outputs;
  heed_attention_outputs_init(&outputs);
  int64_t rows = -1;
  outputs.output = &out;
  outputs.recomputed_rows = &rows;
  EXPECT(heed_attention(&q, &k, &k, NULL, &outputs) == HEED_OK);
  EXPECT(rows == 1);
}

/* The keys of row i with weights other than 0, as bits. */
static int keys_seen(call* c, int row) {
  double weights_data[kQueries * kKeys];
  const int64_t matrix[] = {kQueries, kKeys};
  heed_tensor weights;
  int j, bits = 0;
  EXPECT(heed_tensor_init(&weights, weights_data, HEED_F64, 2, matrix) == HEED_OK);
  c->outputs.weights = &weights;
  EXPECT(attend(c) == HEED_OK);
  c->outputs.weights = NULL;
  for (j = 0; j < kKeys; ++j)
    if (weights_data[row * kKeys + j] != 0) bits |= 1 << j;
  return bits;
}

/* Row 1 of three with four keys under each mask. */
static void masks_are_made_and_obeyed(void) {
  int64_t rows_data[] = {0, 1, 1, 3, 0, 4}, columns_data[] = {3, 1, 0, 2}, first_data[] = {0, 1, 2};
  int64_t index_data[] = {1, 0}, count_data[] = {1, 1}, lengths[] = {1, 2};
  int32_t listed_data[] = {0, 1, 2, 0, 3, -1};
  int64_t listed_counts_data[] = {2, 1, 1};
  double document_data[] = {0, 1, 1, 0};
  const int64_t rows_shape[] = {3, 1, 2}, columns_shape[] = {4, 1}, three[] = {3}, two[] = {2}, four[] = {4};
  const int64_t block_shape[] = {2, 1}, listed_shape[] = {3, 2}, two_by_two[] = {2, 2};
  const heed_mask_slice slice = {0, 3, 0, 3, HEED_SLICE_CAUSAL};
  const heed_grid_axis axes[] = {{2, 1, 1, 0}, {2, 2, 1, 0}};
  heed_tensor rows, columns, first, index, count, block_index, document, listed, listed_counts;
  const char* names[] = {"doc"};
  const heed_tensor* arrays[1];
  heed_block_mask blocks;
  heed_mask *mask = NULL, *other = NULL, *both = NULL;
  heed_score_mod* mod = NULL;
  call c;
  make_call(&c);
  EXPECT(heed_tensor_init(&rows, rows_data, HEED_I64, 3, rows_shape) == HEED_OK);
  EXPECT(heed_tensor_init(&columns, columns_data, HEED_I64, 2, columns_shape) == HEED_OK);
  EXPECT(heed_tensor_init(&first, first_data, HEED_I64, 1, three) == HEED_OK);
  EXPECT(heed_tensor_init(&index, index_data, HEED_I64, 1, two) == HEED_OK);
  EXPECT(heed_tensor_init(&count, count_data, HEED_I64, 1, two) == HEED_OK);
  EXPECT(heed_tensor_init(&block_index, index_data, HEED_I64, 2, block_shape) == HEED_OK);
  EXPECT(heed_tensor_init(&listed, listed_data, HEED_I32, 2, listed_shape) == HEED_OK);
  EXPECT(heed_tensor_init(&listed_counts, listed_counts_data, HEED_I64, 1, three) == HEED_OK);
  EXPECT(heed_tensor_init(&document, document_data, HEED_F64, 1, four) == HEED_OK);
  arrays[0] = &document;
#define EXPECT_KEYS(make, bits)         \
  do {                                  \
    EXPECT((make) == HEED_OK);          \
    c.options.sparse_mask = mask;       \
    EXPECT(keys_seen(&c, 1) == (bits)); \
    heed_mask_free(mask);               \
    mask = NULL;                        \
  } while (0)
  EXPECT_KEYS(heed_mask_row_intervals(&rows, kKeys, &mask), 6);
  EXPECT_KEYS(heed_mask_column_intervals(&columns, kQueries, &mask), 9);
  EXPECT_KEYS(heed_mask_key_lists(&listed, NULL, kKeys, 0, &mask), 5);
  EXPECT_KEYS(heed_mask_key_lists(&listed, &listed_counts, kKeys, 2, &mask), 4);
  EXPECT_FAILURE(heed_mask_key_lists(&listed, NULL, kKeys, 3, &mask), "gather is 3; 0 to 2 is expected");
  EXPECT_KEYS(heed_mask_slices(&slice, 1, kQueries, kKeys, &mask), 3);
  EXPECT_KEYS(heed_mask_blocks(&first, &index, 2, 2, kQueries, kKeys, &mask), 12);
  EXPECT_KEYS(heed_mask_from_flash_mask(&columns, 1, kQueries, &mask), 1);
  EXPECT_KEYS(heed_mask_expression("doc[j] == 1", kQueries, kKeys, 1, names, arrays, &mask), 6);
  EXPECT_KEYS(heed_mask_prefix_lm(3, kQueries, kKeys, &mask), 7);
  EXPECT_KEYS(heed_mask_sliding_window(0, 1, kQueries, kKeys, &mask), 6);
  EXPECT_KEYS(heed_mask_sinks_and_window(0, 1, kQueries, kKeys, &mask), 2);
  EXPECT_KEYS(heed_mask_dilated(1, 2, kQueries, kKeys, &mask), 10);
  EXPECT_KEYS(heed_mask_neighbourhood(axes, 2, 0, kQueries, kKeys, &mask), 3);
  EXPECT_KEYS(heed_mask_axial(two_by_two, 2, 0, 0, kQueries, kKeys, &mask), 10);
  EXPECT_KEYS(heed_mask_bigbird(1, 0, 1, 0, 5, kQueries, kKeys, &mask), 2);
  memset(&blocks, 0, sizeof blocks);
  blocks.query_block = blocks.key_block = 2;
  blocks.kv_num_blocks = &count;
  blocks.kv_indices = &block_index;
  EXPECT_KEYS(heed_mask_from_block_mask(&blocks, kQueries, kKeys, &mask), 12);
  EXPECT(heed_mask_documents(lengths, 2, 1, &mask) == HEED_OK);
  EXPECT(heed_mask_shared_question(1, lengths, 2, &other) == HEED_OK);
  EXPECT_FAILURE(heed_mask_and(mask, NULL, &both), "b is NULL");
  EXPECT(both == NULL);
  heed_mask_free(mask);
  heed_mask_free(other);
  EXPECT(heed_mask_row_intervals(&rows, kKeys, &mask) == HEED_OK);
  EXPECT(heed_mask_prefix_lm(0, kQueries, kKeys, &other) == HEED_OK);
  EXPECT(heed_mask_and(mask, other, &both) == HEED_OK);
  heed_mask_free(mask);
  heed_mask_free(other);
  c.options.sparse_mask = both;
  EXPECT(keys_seen(&c, 1) == 2);
  heed_mask_free(both);
  c.options.sparse_mask = NULL;
  EXPECT(heed_score_mod_expression("where(doc[j] == 1, s, -inf)", 1, names, arrays, &mod) == HEED_OK);
  c.options.score_mod = mod;
  EXPECT(keys_seen(&c, 1) == 6);
  heed_score_mod_free(mod);
  heed_mask_free(NULL);
  heed_score_mod_free(NULL);
  EXPECT_FAILURE(heed_mask_prefix_lm(-1, kQueries, kKeys, &mask),
                 "prefix is -1; 0 to 281474976710656 is expected");
  EXPECT(mask == NULL);
  EXPECT_FAILURE(heed_mask_prefix_lm(1, kQueries, kKeys, NULL), "mask is NULL");
  EXPECT_FAILURE(heed_mask_documents(lengths, 2, 2, &mask), "causal is 2; 0 or 1 is expected");
  EXPECT_FAILURE(heed_mask_expression(NULL, kQueries, kKeys, 0, NULL, NULL, &mask), "text is NULL");
}

static void the_indexer_lists_the_best_keys(void) {
  float query_data[] = {1, 0, 0, 1}, key_data[] = {1, 5, 3, 0, 2, 4}, weight_data[] = {1, 1};
  int32_t listed[4];
  const int64_t query_shape[] = {1, 1, 2, 2}, key_shape[] = {1, 1, 3, 2}, weight_shape[] = {1, 1, 2};
  heed_tensor query, key, weights, indices;
  EXPECT(heed_tensor_init(&query, query_data, HEED_F32, 4, query_shape) == HEED_OK);
  EXPECT(heed_tensor_init(&key, key_data, HEED_F32, 4, key_shape) == HEED_OK);
  EXPECT(heed_tensor_init(&weights, weight_data, HEED_F32, 3, weight_shape) == HEED_OK);
  EXPECT(heed_tensor_init(&indices, listed, HEED_I32, 4, query_shape) == HEED_OK);
  EXPECT(heed_lightning_indexer(&query, &key, &weights, 2, 0, 0, 1, &indices) == HEED_OK);
  EXPECT(listed[0] == 1 && listed[1] == 2 && listed[2] == 0 && listed[3] == 2);
  EXPECT(heed_lightning_indexer(&query, &key, &weights, 2, 1, 0, 1, &indices) == HEED_OK);
  EXPECT(listed[0] == 0 && listed[1] == -1 && listed[2] == 0 && listed[3] == 1);
  EXPECT_FAILURE(heed_lightning_indexer(&query, &key, &weights, 2, 2, 0, 1, &indices),
                 "causal is 2; 0 or 1 is expected");
}

/* Differential attention of one head: two halves of three queries, and of four keys. */
typedef struct differential {
  double query_data[2 * kQueries * kDim], key_data[2 * kKeys * kDim], value_data[kKeys * kDim];
  double lambda_data[1], output_data[kQueries * kDim], halves_data[2 * kQueries * kDim];
  double weights_data[kQueries * kKeys], lse_data[2 * kQueries];
  heed_tensor query, key, value, lambda, output, weights, halves_output, lse;
  heed_attention_outputs outputs;
} differential;

static void make_differential(differential* c) {
  const int64_t query_shape[] = {1, 2, kQueries, kDim}, key_shape[] = {1, 2, kKeys, kDim};
  const int64_t value_shape[] = {1, 1, kKeys, kDim}, output_shape[] = {1, 1, kQueries, kDim};
  const int64_t weights_shape[] = {1, 1, kQueries, kKeys}, lse_shape[] = {1, 2, kQueries}, one[] = {1};
  int n;
  for (n = 0; n < 2 * kQueries * kDim; ++n) c->query_data[n] = sin(n + 1.0);
  for (n = 0; n < 2 * kKeys * kDim; ++n) c->key_data[n] = cos(2.0 * n);
  for (n = 0; n < kKeys * kDim; ++n) c->value_data[n] = n;
  c->lambda_data[0] = 0.6;
  EXPECT(heed_tensor_init(&c->query, c->query_data, HEED_F64, 4, query_shape) == HEED_OK);
  EXPECT(heed_tensor_init(&c->key, c->key_data, HEED_F64, 4, key_shape) == HEED_OK);
  EXPECT(heed_tensor_init(&c->value, c->value_data, HEED_F64, 4, value_shape) == HEED_OK);
  EXPECT(heed_tensor_init(&c->lambda, c->lambda_data, HEED_F64, 1, one) == HEED_OK);
  EXPECT(heed_tensor_init(&c->output, c->output_data, HEED_F64, 4, output_shape) == HEED_OK);
  EXPECT(heed_tensor_init(&c->weights, c->weights_data, HEED_F64, 4, weights_shape) == HEED_OK);
  EXPECT(heed_tensor_init(&c->halves_output, c->halves_data, HEED_F64, 4, query_shape) == HEED_OK);
  EXPECT(heed_tensor_init(&c->lse, c->lse_data, HEED_F64, 3, lse_shape) == HEED_OK);
  EXPECT(heed_attention_outputs_init(&c->outputs) == HEED_OK);
  c->outputs.output = &c->output;
  c->outputs.weights = &c->weights;
  c->outputs.lse = &c->lse;
}

static heed_status subtract_halves(differential* c) {
  return heed_differential_attention(&c->query, &c->key, &c->value, &c->lambda, NULL, &c->outputs,
                                     &c->halves_output);
}

/* The weight of key j in row i of a half, and the row's lse, from the formula. */
static double weight_of_half(const differential* c, int half, int i, int j, double* lse) {
  const double* q = c->query_data + (half * kQueries + i) * kDim;
  double sum = 0, at = 0;
  int key;
  for (key = 0; key < kKeys; ++key) {
    const double* k = c->key_data + (half * kKeys + key) * kDim;
    const double e = exp((q[0] * k[0] + q[1] * k[1]) / sqrt(2.0));
    sum += e;
    if (key == j) at = e;
  }
  *lse = log(sum);
  return at / sum;
}

static void differential_attention_subtracts_the_second_half(void) {
  differential c;
  double lse[2];
  int i, j, d, half;
  make_differential(&c);
  EXPECT(subtract_halves(&c) == HEED_OK);
  for (i = 0; i < kQueries; ++i) {
    double output[kDim] = {0}, halves[2][kDim] = {{0}};
    for (j = 0; j < kKeys; ++j) {
      double p[2];
      for (half = 0; half < 2; ++half) {
        p[half] = weight_of_half(&c, half, i, j, &lse[half]);
        for (d = 0; d < kDim; ++d) halves[half][d] += p[half] * c.value_data[j * kDim + d];
      }
      EXPECT(fabs(c.weights_data[i * kKeys + j] - (p[0] - 0.6 * p[1])) <= 1e-14);
      for (d = 0; d < kDim; ++d) output[d] += (p[0] - 0.6 * p[1]) * c.value_data[j * kDim + d];
    }
    for (half = 0; half < 2; ++half) EXPECT(fabs(c.lse_data[half * kQueries + i] - lse[half]) <= 1e-14);
    for (d = 0; d < kDim; ++d) {
      EXPECT(fabs(c.output_data[i * kDim + d] - output[d]) <= 2e-14);
      for (half = 0; half < 2; ++half)
        EXPECT(fabs(c.halves_data[(half * kQueries + i) * kDim + d] - halves[half][d]) <= 2e-14);
    }
  }
}

/* The loss: sum of output element n times n + 1. */
static double differential_loss(differential* c, double* moved, double by) {
  double loss = 0;
  int n;
  *moved += by;
  EXPECT(subtract_halves(c) == HEED_OK);
  *moved -= by;
  for (n = 0; n < kQueries * kDim; ++n) loss += (n + 1) * c->output_data[n];
  return loss;
}

static int slopes_are(differential* c, double* data, const double* gradient, int count) {
  const double h = 1e-5;
  int n, right = 1;
  for (n = 0; n < count; ++n) {
    const double slope = (differential_loss(c, data + n, h) - differential_loss(c, data + n, -h)) / (2 * h);
    if (!(fabs(slope - gradient[n]) <= 1e-7)) right = 0; /* h^2 times third derivatives of some 100 */
  }
  return right;
}

static void differential_gradients_are_slopes(void) {
  double by_query[2 * kQueries * kDim], by_key[2 * kKeys * kDim], by_value[kKeys * kDim], by_lambda[1];
  double by_output_data[kQueries * kDim];
  heed_tensor dq, dk, dv, dl, by_output;
  heed_attention_backward_inputs inputs;
  heed_attention_gradients gradients;
  heed_attention_options fused;
  differential c;
  int n;
  make_differential(&c);
  EXPECT(subtract_halves(&c) == HEED_OK);
  for (n = 0; n < kQueries * kDim; ++n) by_output_data[n] = n + 1;
  EXPECT(heed_tensor_init(&by_output, by_output_data, HEED_F64, 4, c.output.shape) == HEED_OK);
  EXPECT(heed_tensor_init(&dq, by_query, HEED_F64, 4, c.query.shape) == HEED_OK);
  EXPECT(heed_tensor_init(&dk, by_key, HEED_F64, 4, c.key.shape) == HEED_OK);
  EXPECT(heed_tensor_init(&dv, by_value, HEED_F64, 4, c.value.shape) == HEED_OK);
  EXPECT(heed_tensor_init(&dl, by_lambda, HEED_F64, 1, c.lambda.shape) == HEED_OK);
  EXPECT(heed_attention_backward_inputs_init(&inputs) == HEED_OK);
  EXPECT(heed_attention_gradients_init(&gradients) == HEED_OK);
  inputs.query = &c.query;
  inputs.key = &c.key;
  inputs.value = &c.value;
  inputs.output = &c.halves_output;
  inputs.lse = &c.lse;
  inputs.grad_output = &by_output;
  gradients.query = &dq;
  gradients.key = &dk;
  gradients.value = &dv;
  EXPECT(heed_differential_attention_backward(&inputs, &c.lambda, NULL, &gradients, &dl) == HEED_OK);
  EXPECT(slopes_are(&c, c.query_data, by_query, 2 * kQueries * kDim));
  EXPECT(slopes_are(&c, c.key_data, by_key, 2 * kKeys * kDim));
  EXPECT(slopes_are(&c, c.value_data, by_value, kKeys * kDim));
  EXPECT(slopes_are(&c, c.lambda_data, by_lambda, 1));
  EXPECT(heed_differential_attention_backward(&inputs, &c.lambda, NULL, &gradients, NULL) == HEED_OK);
  gradients.bias = &dl;
  EXPECT_FAILURE(
      heed_differential_attention_backward(&inputs, &c.lambda, NULL, &gradients, NULL),
      "more than query, key, value and their gradients is given; NULL is expected for other members "
      "in differential attention");
  gradients.bias = NULL;
  inputs.output = &c.output;
  EXPECT_FAILURE(heed_differential_attention_backward(&inputs, &c.lambda, NULL, &gradients, NULL),
                 "inputs.output has shape [1, 1, 3, 2]; [1, 2, 3, 2] is expected");
  inputs.output = &c.halves_output;
  by_lambda[0] = -7;
  dv.data = by_query;
  EXPECT_FAILURE(heed_differential_attention_backward(&inputs, &c.lambda, NULL, &gradients, &dl),
                 "gradients.value overlaps gradients.query in memory; separate memory is expected");
  EXPECT(by_lambda[0] == -7);
  gradients.key = &dq;
  by_lambda[0] = -7;
  EXPECT_FAILURE(heed_differential_attention_backward(&inputs, &c.lambda, NULL, &gradients, &dl),
                 "gradients.key has shape [1, 2, 3, 2]; [1, 2, 4, 2] is expected");
  EXPECT(by_lambda[0] == -7);
  EXPECT(heed_attention_options_init(&fused) == HEED_OK);
  fused.kernel = HEED_KERNEL_FUSED; /* which would be refused for f64 once the work begins */
  EXPECT_FAILURE(heed_differential_attention_backward(&inputs, &c.lambda, &fused, &gradients, &dl),
                 "gradients.key has shape [1, 2, 3, 2]; [1, 2, 4, 2] is expected");
}

static void what_is_wrong_with_a_differential_call_is_said(void) {
  heed_attention_options fused;
  differential c;
  make_differential(&c);
  c.outputs.received_last = &c.lse;
  EXPECT_FAILURE(subtract_halves(&c),
                 "received_last is 0 while outputs.received_last is given; 1 or more is expected");
  c.outputs.received_last = NULL;
  c.outputs.entropy = &c.output;
  c.output_data[0] = -7;
  EXPECT_FAILURE(subtract_halves(&c), "outputs.entropy has shape [1, 1, 3, 2]; [1, 2, 3] is expected");
  /* The fused kernel refuses f64 once it is asked: the shape is refused before. */
  EXPECT(heed_attention_options_init(&fused) == HEED_OK);
  fused.kernel = HEED_KERNEL_FUSED;
  EXPECT_FAILURE(heed_differential_attention(&c.query, &c.key, &c.value, &c.lambda, &fused, &c.outputs, NULL),
                 "outputs.entropy has shape [1, 1, 3, 2]; [1, 2, 3] is expected");
  c.outputs.entropy = NULL;
  EXPECT_FAILURE(
      heed_differential_attention(&c.query, &c.key, &c.value, &c.lambda, &fused, &c.outputs, &c.lse),
      "halves has shape [1, 2, 3]; [1, 2, 3, 2] is expected");
  EXPECT_FAILURE(heed_differential_attention(&c.query, &c.key, &c.value, &c.lambda, NULL, &c.outputs, &c.lse),
                 "halves has shape [1, 2, 3]; [1, 2, 3, 2] is expected");
  c.weights.data = c.output_data; /* Each is copied to its place when all are known. */
  EXPECT_FAILURE(subtract_halves(&c),
                 "outputs.weights overlaps outputs.output in memory; separate memory is expected");
  c.weights.data = c.weights_data;
  c.halves_output.data = c.weights_data;
  EXPECT_FAILURE(subtract_halves(&c),
                 "halves overlaps outputs.weights in memory; separate memory is expected");
  c.halves_output.data = c.halves_data;
  EXPECT(c.output_data[0] == -7);
  EXPECT_FAILURE(heed_differential_attention(&c.query, &c.key, &c.value, NULL, NULL, &c.outputs, NULL),
                 "lambda is NULL");
  EXPECT(heed_differential_attention(&c.query, &c.key, &c.value, &c.lambda, NULL, &c.outputs, NULL) ==
         HEED_OK);
}

/* Four queries and keys on a grid of 2 x 2, with equal weights. */
static void grids_have_distances_and_maps(void) {
  double zeros[4 * kDim] = {0}, distance_data[4 * 2], map_data[4];
  const int64_t shape[] = {1, 1, 4, kDim}, distance_shape[] = {1, 1, 4, 2}, map_shape[] = {1, 1, 2, 2};
  const int64_t sizes[] = {2, 2}, cells[] = {2, 1};
  heed_tensor query, distance, map;
  heed_attention_options options;
  int n;
  EXPECT(heed_tensor_init(&query, zeros, HEED_F64, 4, shape) == HEED_OK);
  EXPECT(heed_tensor_init(&distance, distance_data, HEED_F64, 4, distance_shape) == HEED_OK);
  EXPECT(heed_tensor_init(&map, map_data, HEED_F64, 4, map_shape) == HEED_OK);
  EXPECT(heed_grid_distance(&query, &query, sizes, 2, 0, NULL, &distance) == HEED_OK);
  for (n = 0; n < 8; ++n) EXPECT(fabs(distance_data[n] - 0.5) <= 1e-15);
  EXPECT(heed_attention_options_init(&options) == HEED_OK);
  options.causal = 1; /* rows of 1, 2, 3 and 4 keys */
  EXPECT(heed_grid_map(&query, &query, sizes, 2, 0, cells, &options, &map) == HEED_OK);
  EXPECT(fabs(map_data[0] - 2) <= 1e-15 && map_data[1] == 0);
  EXPECT(fabs(map_data[2] - (2.0 / 3 + 0.5)) <= 1e-15 && fabs(map_data[3] - (1.0 / 3 + 0.5)) <= 1e-15);
  EXPECT_FAILURE(heed_grid_distance(&query, &query, sizes, 2, 0, NULL, &map),
                 "distance has shape [1, 1, 2, 2]; [1, 1, 4, 2] is expected");
  options.kernel = HEED_KERNEL_FUSED; /* which would be refused for f64 once the work begins */
  EXPECT_FAILURE(heed_grid_distance(&query, &query, sizes, 2, 0, &options, &map),
                 "distance has shape [1, 1, 2, 2]; [1, 1, 4, 2] is expected");
  EXPECT_FAILURE(heed_grid_map(&query, &query, sizes, 2, 0, cells, &options, &distance),
                 "map has shape [1, 1, 4, 2]; [1, 1, 2, 2] is expected");
  EXPECT_FAILURE(heed_grid_map(&query, &query, sizes, 2, 1, cells, NULL, &map),
                 "the grid has 4 tokens from 1 on, but query has 4 rows");
  /* Queries of one head: results have rank 4 all the same. */
  EXPECT(heed_tensor_init(&query, zeros, HEED_F64, 2, shape + 2) == HEED_OK);
  EXPECT(heed_grid_distance(&query, &query, sizes, 2, 0, NULL, &distance) == HEED_OK);
  EXPECT(heed_tensor_init(&distance, distance_data, HEED_F32, 4, distance_shape) == HEED_OK);
  EXPECT_FAILURE(heed_grid_distance(&query, &query, sizes, 2, 0, NULL, &distance),
                 "distance has dtype f32; f64 is expected");
  EXPECT_FAILURE(heed_grid_distance(&query, &query, sizes, 0, 0, NULL, &distance),
                 "the grid has no axes; at least one is expected");
  EXPECT_FAILURE(heed_grid_map(&query, &query, sizes, 2, 0, NULL, NULL, &map), "cells is NULL");
  EXPECT_FAILURE(heed_grid_distance(&query, &query, NULL, 2, 0, NULL, &distance), "sizes is NULL");
}

/* A gate of rows doubles the second row, and its gradient sums channels. */
static void gates_multiply_rows(void) {
  double rows_data[4] = {1, 2, 3, 4}, gate_data[2] = {1, 2}, result_data[4], sums_data[2];
  const int64_t shape[] = {1, 1, 2, 2}, gate_shape[] = {1, 1, 2, 1};
  heed_tensor rows, gate, result, sums;
  EXPECT(heed_tensor_init(&rows, rows_data, HEED_F64, 4, shape) == HEED_OK);
  EXPECT(heed_tensor_init(&gate, gate_data, HEED_F64, 4, gate_shape) == HEED_OK);
  EXPECT(heed_tensor_init(&result, result_data, HEED_F64, 4, shape) == HEED_OK);
  EXPECT(heed_tensor_init(&sums, sums_data, HEED_F64, 4, gate_shape) == HEED_OK);
  EXPECT(heed_gated(&rows, &gate, 0, &result) == HEED_OK);
  EXPECT(result_data[0] == 1 && result_data[1] == 2 && result_data[2] == 6 && result_data[3] == 8);
  EXPECT(heed_gate_gradient(&gate, &rows, &result, 1, &sums) == HEED_OK);
  EXPECT(sums_data[0] == 5 && sums_data[1] == 50);
  EXPECT_FAILURE(heed_gated(&rows, &gate, 0, &sums),
                 "result has shape [1, 1, 2, 1]; [1, 1, 2, 2] is expected");
  EXPECT_FAILURE(heed_gated(&rows, NULL, 0, &result), "gate is NULL");
  EXPECT_FAILURE(heed_gate_gradient(&gate, &rows, &result, 0, &rows),
                 "grad_gate has shape [1, 1, 2, 2]; [1, 1, 2, 1] is expected");
}

/* Values (3, 4) and (0, 2) move 5 and 2 of a stream; gates of their channels leave 3 and 0. */
static void norms_of_moved_values_count_gates(void) {
  double value_data[4] = {3, 4, 0, 2}, identity_data[4] = {1, 0, 0, 1}, gate_data[2] = {1, 0};
  float norms_data[2];
  const int64_t shape[] = {1, 1, 2, 2}, matrix[] = {1, 2, 2}, row[] = {1, 1, 1, 2};
  heed_tensor value, identity, gate, norms;
  EXPECT(heed_tensor_init(&value, value_data, HEED_F64, 4, shape) == HEED_OK);
  EXPECT(heed_tensor_init(&identity, identity_data, HEED_F64, 3, matrix) == HEED_OK);
  EXPECT(heed_tensor_init(&gate, gate_data, HEED_F64, 4, row) == HEED_OK);
  EXPECT(heed_tensor_init(&norms, norms_data, HEED_F32, 4, row) == HEED_OK);
  EXPECT(heed_moved_norms(&value, &identity, NULL, 0, &norms) == HEED_OK);
  EXPECT(norms_data[0] == 5 && norms_data[1] == 2);
  EXPECT(heed_moved_norms(&value, &identity, &gate, 1, &norms) == HEED_OK);
  EXPECT(norms_data[0] == 3 && norms_data[1] == 0);
  EXPECT_FAILURE(heed_moved_norms(&value, &identity, &value, 0, &norms),
                 "norms has shape [1, 1, 1, 2]; [1, 1, 2, 2] is expected");
}

int main(void) {
  gates_multiply_rows();
  norms_of_moved_values_count_gates();
  differential_attention_subtracts_the_second_half();
  differential_gradients_are_slopes();
  what_is_wrong_with_a_differential_call_is_said();
  grids_have_distances_and_maps();
  the_indexer_lists_the_best_keys();
  masks_are_made_and_obeyed();
  gradients_are_the_slopes_of_the_output();
  gradients_of_bias_sinks_and_decay_are_given_on_request();
  what_is_wrong_with_a_backward_call_is_said();
  attention_is_the_formula();
  every_output_can_be_asked_for();
  a_plan_is_text_of_any_length();
  every_option_is_passed_on();
  an_output_of_narrow_inputs_may_be_f32();
  structs_of_other_sizes_are_understood();
  targets_are_listed_and_chosen();
  rows_that_f32_cannot_hold_are_counted();
  what_is_wrong_with_a_tensor_is_said();
  what_is_wrong_with_an_option_is_said();
  if (failures > 0) fprintf(stderr, "%d failures\n", failures);
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
