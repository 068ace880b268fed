/* heed_mpi.h as a C program uses it: compiled as C99, linked with the libraries, run on several ranks. Every
   rank also computes the whole call alone with heed_attention, and compares its own rows bit for bit. */
#include "heed/heed_mpi.h"

#include <math.h>
#include <stdlib.h>

#include "../c_expect.h"

enum {
  kHeads = 4,
  kKvHeads = 2,
  kLength = 23,
  kDim = 8,
  kValueDim = 6,
  kTop = 3,
  kMapRows = 4,
  kMapColumns = 5
};
enum { kLargest = kHeads * kLength * kLength };

static int own_rank, rank_count;

/* A tensor with memory of its own: floats or i64. */
typedef struct held {
  float data[kLargest];
  int64_t index[kHeads * kLength * kTop];
  heed_tensor tensor;
} held;

static void make(held* to, int32_t dtype, int32_t rank, int64_t heads, int64_t rows, int64_t columns) {
  const int64_t shape[] = {1, heads, rows, columns};
  memset(to, 0, sizeof *to);
  /* A tensor without elements has no memory. */
  EXPECT(heed_tensor_init(&to->tensor,
                          rows * columns == 0 ? NULL
                          : dtype == HEED_I64 ? (void*)to->index
                                              : (void*)to->data,
                          dtype, rank, shape) == HEED_OK);
}

/* Fills with numbers that are the same on every rank. */
static void fill(held* to, double step) {
  int64_t n, count = to->tensor.shape[1] * to->tensor.shape[2] * to->tensor.shape[3];
  for (n = 0; n < count; ++n) to->data[n] = (float)sin(step * (double)(n + 1));
}

static int64_t rows_of(const heed_sharding* sharding) {
  int64_t rows = -1;
  EXPECT(heed_sharding_rows(sharding, own_rank, &rows) == HEED_OK);
  return rows;
}

static int64_t row_length(const held* of) { return of->tensor.rank == 4 ? of->tensor.shape[3] : 1; }

/* Takes this rank's rows of the whole, along axis 2. */
static void take_rows(const held* whole, const heed_sharding* sharding, held* to) {
  const int64_t rows = rows_of(sharding), columns = row_length(whole);
  int64_t head, row, position;
  make(to, whole->tensor.dtype, whole->tensor.rank, whole->tensor.shape[1], rows, columns);
  for (head = 0; head < whole->tensor.shape[1]; ++head)
    for (row = 0; row < rows; ++row) {
      EXPECT(heed_sharding_position(sharding, own_rank, row, &position) == HEED_OK);
      memcpy(to->data + (head * rows + row) * columns,
             whole->data + (head * whole->tensor.shape[2] + position) * columns,
             (size_t)columns * sizeof(float));
      if (whole->tensor.dtype == HEED_I64)
        memcpy(to->index + (head * rows + row) * columns,
               whole->index + (head * whole->tensor.shape[2] + position) * columns,
               (size_t)columns * sizeof(int64_t));
    }
}

static int is_rows_of(const held* shard, const held* whole, const heed_sharding* sharding) {
  static held expected;
  take_rows(whole, sharding, &expected);
  return memcmp(shard->data, expected.data, sizeof expected.data) == 0 &&
         memcmp(shard->index, expected.index, sizeof expected.index) == 0;
}

/* All results and gradients. */
typedef struct results {
  held output, weights, lse, entropy, top_index, top_weight, received, map;
  held grad_query, grad_key, grad_value, grad_decay;
  heed_attention_outputs outputs;
  heed_attention_gradients gradients;
  heed_attention_run run;
} results;

static void make_results(results* to, int64_t queries, int64_t keys) {
  make(&to->output, HEED_F32, 4, kHeads, queries, kValueDim);
  make(&to->weights, HEED_F32, 4, kHeads, queries, kLength);
  make(&to->lse, HEED_F32, 3, kHeads, queries, 1);
  make(&to->entropy, HEED_F32, 3, kHeads, queries, 1);
  make(&to->top_index, HEED_I64, 4, kHeads, queries, kTop);
  make(&to->top_weight, HEED_F32, 4, kHeads, queries, kTop);
  make(&to->received, HEED_F32, 3, kHeads, keys, 1);
  make(&to->map, HEED_F32, 4, kHeads, kMapRows, kMapColumns);
  make(&to->grad_query, HEED_F32, 4, kHeads, queries, kDim);
  make(&to->grad_key, HEED_F32, 4, kKvHeads, keys, kDim);
  make(&to->grad_value, HEED_F32, 4, kKvHeads, keys, kValueDim);
  make(&to->grad_decay, HEED_F32, 3, kHeads, kLength, 1);
  EXPECT(heed_attention_outputs_init(&to->outputs) == HEED_OK);
  to->outputs.output = &to->output.tensor;
  to->outputs.lse = &to->lse.tensor;
  to->outputs.entropy = &to->entropy.tensor;
  to->outputs.top_k_index = &to->top_index.tensor;
  to->outputs.top_k_weight = &to->top_weight.tensor;
  to->outputs.run = &to->run;
  EXPECT(heed_attention_gradients_init(&to->gradients) == HEED_OK);
  to->gradients.query = &to->grad_query.tensor;
  to->gradients.key = &to->grad_key.tensor;
  to->gradients.value = &to->grad_value.tensor;
  to->gradients.run = &to->run;
}

static void ask_for_all(results* of) {
  of->outputs.weights = &of->weights.tensor;
  of->outputs.received = &of->received.tensor;
  of->outputs.map = &of->map.tensor;
}

typedef struct operands {
  held query, key, value, grad_output;
} operands;

static void take_operands(const operands* whole, const heed_sharding* sharding, operands* to) {
  take_rows(&whole->query, sharding, &to->query);
  take_rows(&whole->key, sharding, &to->key);
  take_rows(&whole->value, sharding, &to->value);
  take_rows(&whole->grad_output, sharding, &to->grad_output);
}

static heed_attention_backward_inputs inputs_of(const operands* from, const results* found) {
  heed_attention_backward_inputs inputs;
  EXPECT(heed_attention_backward_inputs_init(&inputs) == HEED_OK);
  inputs.query = &from->query.tensor;
  inputs.key = &from->key.tensor;
  inputs.value = &from->value.tensor;
  inputs.output = &found->output.tensor;
  inputs.lse = &found->lse.tensor;
  inputs.grad_output = &from->grad_output.tensor;
  return inputs;
}

static operands whole, own;
static results alone, ours;
static held decay; /* by head and position; zeros in a call without a decay */
static heed_attention_options causal;

/* `has_decay`: every head forgets at a rate of its own. */
static void compute_alone(int has_decay) {
  int n;
  heed_attention_backward_inputs inputs;
  make(&whole.query, HEED_F32, 4, kHeads, kLength, kDim);
  make(&whole.key, HEED_F32, 4, kKvHeads, kLength, kDim);
  make(&whole.value, HEED_F32, 4, kKvHeads, kLength, kValueDim);
  make(&whole.grad_output, HEED_F32, 4, kHeads, kLength, kValueDim);
  fill(&whole.query, 1.3);
  fill(&whole.key, 0.7);
  fill(&whole.value, 2.1);
  fill(&whole.grad_output, 0.4);
  EXPECT(heed_attention_options_init(&causal) == HEED_OK);
  causal.causal = 1;
  make(&decay, HEED_F32, 3, kHeads, kLength, 1);
  for (n = 0; has_decay && n < kHeads * kLength; ++n)
    decay.data[n] = (float)(-0.1 * (n / kLength + 1) * (n % kLength));
  if (has_decay) causal.decay = &decay.tensor;
  make_results(&alone, kLength, kLength);
  ask_for_all(&alone);
  if (has_decay) alone.gradients.decay = &alone.grad_decay.tensor;
  EXPECT(heed_attention(&whole.query.tensor, &whole.key.tensor, &whole.value.tensor, &causal,
                        &alone.outputs) == HEED_OK);
  inputs = inputs_of(&whole, &alone);
  EXPECT(heed_attention_backward(&inputs, &causal, &alone.gradients) == HEED_OK);
}

/* One column of a row's output, from the formula. */
static double expected_output(int head, int row, int column) {
  const int kv_head = head / (kHeads / kKvHeads);
  const float* q = whole.query.data + (head * kLength + row) * kDim;
  double sum = 0, weighted = 0;
  int j, d;
  for (j = 0; j <= row; ++j) {
    const float* k = whole.key.data + (kv_head * kLength + j) * kDim;
    double score = 0, e;
    for (d = 0; d < kDim; ++d) score += (double)q[d] * (double)k[d];
    e = exp(score / sqrt((double)kDim) + (double)decay.data[head * kLength + row] -
            (double)decay.data[head * kLength + j]);
    sum += e;
    weighted += e * (double)whole.value.data[(kv_head * kLength + j) * kValueDim + column];
  }
  return weighted / sum;
}

static heed_mpi_layout layout_of(const heed_sharding* sharding) {
  heed_mpi_layout layout;
  EXPECT(heed_mpi_layout_init(&layout) == HEED_OK);
  layout.query = layout.key = sharding;
  return layout;
}

static heed_status attend(const heed_sharding* sharding, const heed_mpi_choice* choice, heed_mpi_run* run) {
  const heed_mpi_layout layout = layout_of(sharding);
  return heed_mpi_attention(MPI_COMM_WORLD, &own.query.tensor, &own.key.tensor, &own.value.tensor, &layout,
                            &causal, &ours.outputs, choice, run);
}

static heed_status differentiate(const heed_sharding* sharding, const heed_mpi_choice* choice,
                                 heed_mpi_run* run) {
  const heed_mpi_layout layout = layout_of(sharding);
  const heed_attention_backward_inputs inputs = inputs_of(&own, &ours);
  return heed_mpi_attention_backward(MPI_COMM_WORLD, &inputs, &layout, &causal, &ours.gradients, choice, run);
}

static void start(const heed_sharding* sharding) {
  take_operands(&whole, sharding, &own);
  make_results(&ours, rows_of(sharding), rows_of(sharding));
}

static void output_is_the_formula(const heed_sharding* sharding) {
  const int64_t rows = rows_of(sharding);
  int64_t row, position;
  int head, column;
  for (head = 0; head < kHeads; ++head)
    for (row = 0; row < rows; ++row) {
      EXPECT(heed_sharding_position(sharding, own_rank, row, &position) == HEED_OK);
      for (column = 0; column < kValueDim; ++column)
        /* 1e-6 is about thirty roundings in f32 of numbers of at most 1. */
        EXPECT(fabs((double)ours.output.data[(head * rows + row) * kValueDim + column] -
                    expected_output(head, (int)position, column)) <= 1e-6);
    }
}

static void row_results_are_those_of_one_process(const heed_sharding* sharding) {
  int32_t scheme;
  for (scheme = HEED_MPI_AUTOMATIC; scheme <= HEED_MPI_DECODE; ++scheme) {
    heed_mpi_choice choice;
    heed_mpi_run run = {-1, -1, -1};
    start(sharding);
    EXPECT(heed_mpi_choice_init(&choice) == HEED_OK);
    choice.scheme = scheme;
    EXPECT(attend(sharding, &choice, &run) == HEED_OK);
    EXPECT(scheme == HEED_MPI_AUTOMATIC ? run.scheme > 0 : run.scheme == scheme);
    EXPECT(run.bytes_sent >= 0 && run.reserved == 0 && (rank_count > 1 || run.bytes_sent == 0));
    EXPECT(strcmp(ours.run.isa, alone.run.isa) == 0 && ours.run.kernel == alone.run.kernel);
    output_is_the_formula(sharding);
    EXPECT(is_rows_of(&ours.output, &alone.output, sharding));
    EXPECT(is_rows_of(&ours.lse, &alone.lse, sharding));
    EXPECT(is_rows_of(&ours.entropy, &alone.entropy, sharding));
    EXPECT(is_rows_of(&ours.top_index, &alone.top_index, sharding));
    EXPECT(is_rows_of(&ours.top_weight, &alone.top_weight, sharding));
  }
}

static void all_results_are_those_of_one_process(const heed_sharding* sharding) {
  start(sharding);
  ask_for_all(&ours);
  EXPECT(attend(sharding, NULL, NULL) == HEED_OK);
  EXPECT(is_rows_of(&ours.output, &alone.output, sharding));
  EXPECT(is_rows_of(&ours.weights, &alone.weights, sharding));
  EXPECT(is_rows_of(&ours.received, &alone.received, sharding));
  EXPECT(memcmp(ours.map.data, alone.map.data, sizeof alone.map.data) == 0);
}

static void gradients_are_those_of_one_process(const heed_sharding* sharding) {
  heed_mpi_choice choice;
  heed_mpi_run run = {-1, -1, -1};
  start(sharding);
  EXPECT(attend(sharding, NULL, NULL) == HEED_OK);
  EXPECT(heed_mpi_choice_init(&choice) == HEED_OK);
  choice.deterministic = causal.decay == NULL; /* which refuses a decay */
  EXPECT(differentiate(sharding, &choice, &run) == HEED_OK);
  EXPECT(run.scheme == HEED_MPI_GATHER || run.scheme == HEED_MPI_ULYSSES);
  EXPECT(is_rows_of(&ours.grad_query, &alone.grad_query, sharding));
  EXPECT(is_rows_of(&ours.grad_key, &alone.grad_key, sharding));
  EXPECT(is_rows_of(&ours.grad_value, &alone.grad_value, sharding));
}

/* All rows and schemes, and the gradient by the decay, which every rank has. */
static void a_decay_is_taken(const heed_sharding* sharding) {
  compute_alone(1);
  row_results_are_those_of_one_process(sharding);
  all_results_are_those_of_one_process(sharding);
  gradients_are_those_of_one_process(sharding);
  ours.gradients.decay = &ours.grad_decay.tensor;
  EXPECT(differentiate(sharding, NULL, NULL) == HEED_OK);
  EXPECT(memcmp(ours.grad_decay.data, alone.grad_decay.data, sizeof alone.grad_decay.data) == 0);
  EXPECT(is_rows_of(&ours.grad_key, &alone.grad_key, sharding));
  compute_alone(0);
}

/* Expects `text` on the last rank, where the fault is, and a message that names it on the others. */
static void expect_on_all(heed_status status, const char* text, int line) {
  char of_others[256];
  snprintf(of_others, sizeof of_others, "rank %d: %s", rank_count - 1, text);
  expect_failure(status, HEED_INVALID_ARGUMENT, own_rank == rank_count - 1 ? text : of_others, line);
}
#define EXPECT_ON_ALL(status, text) expect_on_all((status), (text), __LINE__)

static void a_fault_on_one_rank_is_said_on_all(const heed_sharding* sharding) {
  const int is_last = own_rank == rank_count - 1;
  heed_mpi_layout layout = layout_of(sharding);
  heed_attention_backward_inputs inputs;
  heed_mpi_choice choice;
  EXPECT(heed_mpi_choice_init(&choice) == HEED_OK);
  start(sharding);
#define CALL(comm, query, layout, outputs)                                                           \
  heed_mpi_attention((comm), (query), &own.key.tensor, &own.value.tensor, (layout), NULL, (outputs), \
                     &choice, NULL)
  EXPECT_ON_ALL(CALL(MPI_COMM_WORLD, is_last ? NULL : &own.query.tensor, &layout, &ours.outputs),
                "query is NULL");
  EXPECT_ON_ALL(CALL(MPI_COMM_WORLD, &own.query.tensor, is_last ? NULL : &layout, &ours.outputs),
                "layout is NULL");
  EXPECT_ON_ALL(CALL(MPI_COMM_WORLD, &own.query.tensor, &layout, is_last ? NULL : &ours.outputs),
                "outputs is NULL");
  if (is_last) layout.query = NULL;
  EXPECT_ON_ALL(CALL(MPI_COMM_WORLD, &own.query.tensor, &layout, &ours.outputs), "layout.query is NULL");
  layout = layout_of(sharding);
  if (is_last) layout.key = NULL;
  EXPECT_ON_ALL(CALL(MPI_COMM_WORLD, &own.query.tensor, &layout, &ours.outputs), "layout.key is NULL");
  layout = layout_of(sharding);
  if (is_last) choice.scheme = 5;
  EXPECT_ON_ALL(CALL(MPI_COMM_WORLD, &own.query.tensor, &layout, &ours.outputs),
                "choice.scheme is 5; 0 to 4 is expected");
  choice.scheme = 0;
  if (is_last) choice.deterministic = 2;
  EXPECT_ON_ALL(CALL(MPI_COMM_WORLD, &own.query.tensor, &layout, &ours.outputs),
                "choice.deterministic is 2; 0 or 1 is expected");
  choice.deterministic = 0;
  if (is_last) choice.has_machines = 2;
  EXPECT_ON_ALL(CALL(MPI_COMM_WORLD, &own.query.tensor, &layout, &ours.outputs),
                "choice.has_machines is 2; 0 or 1 is expected");
  choice.has_machines = 0;
  EXPECT_FAILURE(CALL(MPI_COMM_NULL, &own.query.tensor, &layout, &ours.outputs),
                 "comm is MPI_COMM_NULL; a communicator is expected");
  inputs = inputs_of(&own, &ours);
  if (is_last) inputs.lse = NULL;
  EXPECT_ON_ALL(
      heed_mpi_attention_backward(MPI_COMM_WORLD, &inputs, &layout, NULL, &ours.gradients, NULL, NULL),
      "inputs.lse is NULL");
  EXPECT_FAILURE(heed_mpi_layout_init(NULL), "layout is NULL");
  EXPECT_FAILURE(heed_mpi_choice_init(NULL), "choice is NULL");
}

/* Expects the same message on every rank, except for its own number. */
#define EXPECT_DISAGREEMENT(status, name, own, least, most)                        \
  do {                                                                             \
    char text[256];                                                                \
    const heed_status given = (status);                                            \
    snprintf(text, sizeof text,                                                    \
             "%s is %d on rank %d and ranges from %d to %d over all ranks; equal " \
             "values are expected",                                                \
             (name), (own), own_rank, (least), (most));                            \
    expect_failure(given, HEED_INVALID_ARGUMENT, text, __LINE__);                  \
  } while (0)

static void ranks_that_choose_differently_are_told(const heed_sharding* sharding) {
  const int is_last = own_rank == rank_count - 1;
  heed_mpi_choice choice;
  if (rank_count == 1) return;
  start(sharding);
  EXPECT(heed_mpi_choice_init(&choice) == HEED_OK);
  choice.scheme = is_last ? HEED_MPI_GATHER : HEED_MPI_RING;
  EXPECT_DISAGREEMENT(attend(sharding, &choice, NULL), "choice.scheme's number", choice.scheme, 1, 2);
  choice.scheme = is_last ? HEED_MPI_GATHER : HEED_MPI_ULYSSES;
  EXPECT_DISAGREEMENT(differentiate(sharding, &choice, NULL), "choice.scheme's number", choice.scheme, 2, 3);
  choice.scheme = HEED_MPI_AUTOMATIC;
  choice.deterministic = is_last;
  EXPECT_DISAGREEMENT(attend(sharding, &choice, NULL), "choice.deterministic", is_last, 0, 1);
  choice.deterministic = 0;
  choice.flops_per_second = choice.bytes_per_second = 1e9;
  choice.has_machines = is_last;
  EXPECT_DISAGREEMENT(attend(sharding, &choice, NULL), "whether there are machines", is_last, 0, 1);
  choice.has_machines = 1;
  choice.ranks_per_node = is_last ? 3 : 1;
  EXPECT_DISAGREEMENT(attend(sharding, &choice, NULL), "choice.machines.ranks_per_node",
                      choice.ranks_per_node, 1, 3);
}

static void machines_can_be_described(const heed_sharding* sharding) {
  heed_mpi_choice choice;
  EXPECT(heed_mpi_choice_init(&choice) == HEED_OK);
  choice.has_machines = 1;
  start(sharding);
  choice.flops_per_second = 1e11;
  choice.bytes_per_second = 3e9;
  EXPECT(attend(sharding, &choice, NULL) == HEED_OK);
  EXPECT(is_rows_of(&ours.output, &alone.output, sharding));
}

static void rows_and_keys_may_lie_differently(const heed_sharding* rows, const heed_sharding* keys) {
  heed_mpi_layout layout = layout_of(rows);
  layout.key = keys;
  start(rows);
  take_rows(&whole.key, keys, &own.key);
  take_rows(&whole.value, keys, &own.value);
  make(&ours.received, HEED_F32, 3, kHeads, rows_of(keys), 1);
  ours.outputs.received = &ours.received.tensor;
  EXPECT(heed_mpi_attention(MPI_COMM_WORLD, &own.query.tensor, &own.key.tensor, &own.value.tensor, &layout,
                            &causal, &ours.outputs, NULL, NULL) == HEED_OK);
  EXPECT(is_rows_of(&ours.output, &alone.output, rows));
  EXPECT(is_rows_of(&ours.received, &alone.received, keys));
}

static void set_shape(held* of, int64_t batch, int64_t heads) {
  const int64_t shape[] = {batch, heads, of->tensor.shape[2], of->tensor.shape[3]};
  EXPECT(heed_tensor_init(&of->tensor, of->data, HEED_F32, 4, shape) == HEED_OK);
}

static void set_shapes(operands* of, int64_t batch, int64_t heads, int64_t kv_heads) {
  set_shape(&of->query, batch, heads);
  set_shape(&of->key, batch, kv_heads);
  set_shape(&of->value, batch, kv_heads);
}

static void move_to_half(held* half, const held* all, int64_t heads) {
  const size_t bytes = (size_t)(heads * all->tensor.shape[2] * all->tensor.shape[3]) * sizeof(float);
  memcpy(half->data, all->data + bytes / sizeof(float), bytes);
}

/* The second half of the whole call on a communicator of its own, with the dropout of the whole. The half has
   the heads of the last key head, or the second of two batch entries. */
static void a_half_is_as_in_the_whole(int64_t batch) {
  const int64_t heads = kHeads / 2, kv_heads = kKvHeads / 2;
  heed_attention_options options = causal;
  heed_sharding* all = NULL;
  heed_mpi_layout layout;
  static operands call;
  static held with_dropout;
  heed_attention_outputs outputs;
  call = whole;
  set_shapes(&call, batch, kHeads / batch, kKvHeads / batch);
  options.dropout_probability = 0.4;
  options.dropout_seed = 5;
  make(&with_dropout, HEED_F32, 4, kHeads, kLength, kValueDim);
  set_shape(&with_dropout, batch, kHeads / batch);
  EXPECT(heed_attention_outputs_init(&outputs) == HEED_OK);
  outputs.output = &with_dropout.tensor;
  EXPECT(heed_attention(&call.query.tensor, &call.key.tensor, &call.value.tensor, &options, &outputs) ==
         HEED_OK);
  EXPECT(heed_sharding_contiguous(kLength, 1, &all) == HEED_OK);
  layout = layout_of(all);
  layout.batch = batch;
  layout.heads = kHeads / batch;
  layout.batch_begin = batch - 1;
  layout.head_begin = batch == 1 ? heads : 0;
  set_shapes(&call, 1, heads, kv_heads);
  move_to_half(&call.query, &whole.query, heads);
  move_to_half(&call.key, &whole.key, kv_heads);
  move_to_half(&call.value, &whole.value, kv_heads);
  make(&ours.output, HEED_F32, 4, heads, kLength, kValueDim);
  outputs.output = &ours.output.tensor;
  EXPECT(heed_mpi_attention(MPI_COMM_SELF, &call.query.tensor, &call.key.tensor, &call.value.tensor, &layout,
                            &options, &outputs, NULL, NULL) == HEED_OK);
  EXPECT(memcmp(ours.output.data, with_dropout.data + heads * kLength * kValueDim,
                (size_t)(heads * kLength * kValueDim) * sizeof(float)) == 0);
  heed_sharding_free(all);
}

static void run_on(heed_status made, heed_sharding* sharding) {
  EXPECT(made == HEED_OK);
  row_results_are_those_of_one_process(sharding);
  all_results_are_those_of_one_process(sharding);
  gradients_are_those_of_one_process(sharding);
  heed_sharding_free(sharding);
}

int main(int argc, char** argv) {
  heed_sharding *sharding = NULL, *other = NULL;
  heed_sharding_range all_on_the_last = {0, kLength, 0};
  heed_status made;
  EXPECT(heed_sharding_contiguous(1, 1, &sharding) == HEED_OK);
  EXPECT_FAILURE(
      attend(sharding, NULL, NULL),
      "comm is used while MPI is not initialised; a call between MPI_Init and MPI_Finalize is expected");
  heed_sharding_free(sharding);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &own_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
  compute_alone(0);
  made = heed_sharding_contiguous(kLength, rank_count, &sharding);
  run_on(made, sharding);
  made = heed_sharding_zigzag(kLength, rank_count, &sharding);
  run_on(made, sharding);
  made = heed_sharding_striped(kLength, rank_count, 2, &sharding);
  run_on(made, sharding);
  all_on_the_last.rank = rank_count - 1;
  made = heed_sharding_from_ranges(&all_on_the_last, 1, rank_count, &sharding);
  run_on(made, sharding);
  EXPECT(heed_sharding_zigzag(kLength, rank_count, &sharding) == HEED_OK);
  a_decay_is_taken(sharding);
  a_fault_on_one_rank_is_said_on_all(sharding);
  ranks_that_choose_differently_are_told(sharding);
  machines_can_be_described(sharding);
  EXPECT(heed_sharding_striped(kLength, rank_count, 3, &other) == HEED_OK);
  rows_and_keys_may_lie_differently(sharding, other);
  a_half_is_as_in_the_whole(1);
  a_half_is_as_in_the_whole(2);
  heed_sharding_free(other);
  heed_sharding_free(sharding);
  if (failures > 0) fprintf(stderr, "rank %d: %d failures\n", own_rank, failures);
  MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
