#include "attention/call/results.hpp"

#include "attention/call/message.hpp"
#include "attention/call/operands.hpp"

namespace heed::detail {
Dims shape_of(const Problem& problem, int rank, std::initializer_list<std::int64_t> sizes) {
  Dims shape;
  if (rank >= 4) shape.push_back(problem.batch);
  if (rank >= 3) shape.push_back(problem.heads);
  for (std::int64_t size : sizes) shape.push_back(size);
  return shape;
}

DType summary_dtype(const Problem& problem) { return problem.dtype == DType::f64 ? DType::f64 : DType::f32; }

bool is_given(const MutableTensorView& view) { return view.data() != nullptr || view.shape() != Dims{0}; }

namespace {

DType output_dtype(const Problem& problem, const AttentionOptions& options) {
  return options.output_dtype.value_or(problem.dtype);
}

// The size asked for by an option, or, where that is 0, the one that the view has.
std::int64_t size_or(std::int64_t option, const MutableTensorView& view, int axis_from_end) {
  if (option != 0 || !is_given(view) || view.rank() < axis_from_end) return option;
  return view.size(-axis_from_end);
}

class Binder {
 public:
  Binder(const Problem& problem, int rank) : problem_(problem), rank_(rank) {}

  void operator()(std::string_view name, const MutableTensorView& view,
                  std::initializer_list<std::int64_t> sizes, DType dtype, Target& target) const {
    if (!is_given(view)) return;
    target = target_of(name, view, shape_of(problem_, rank_, sizes), dtype, 4 - rank_);
    // Nothing to write; and a kernel may take it that what it is to write has bins to write to.
    if (view.count() == 0) target = {};
  }

 private:
  const Problem& problem_;
  int rank_;
};

// The kernel multiplies a row by the number of bins: bin r holds rows i with floor(i * R / Lq) = r.
void check_map(const MapSize& map, const Problem& problem) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(map.rows, problem.query_length, &product) ||
      __builtin_mul_overflow(map.columns, problem.key_length, &product) ||
      __builtin_mul_overflow(map.rows, map.columns, &product))
    refuse(ErrorCode::out_of_memory, "map is ", map.rows, " x ", map.columns,
           ", which has more bins than 64 bits can count");
}

}  // namespace

AttentionResult allocate_results(const Problem& problem, const AttentionOptions& options, int rank) {
  const DType dtype = summary_dtype(problem);
  const std::int64_t rows = problem.query_length;
  const std::int64_t keys = problem.key_length;
  const auto make = [&](std::initializer_list<std::int64_t> sizes, DType type) {
    return Tensor::uninitialized(shape_of(problem, rank, sizes), type);
  };
  AttentionResult result;
  result.output = make({rows, problem.value_dim}, output_dtype(problem, options));
  if (has(options.need, Need::weights)) result.weights = make({rows, keys}, dtype);
  if (has(options.need, Need::scores)) result.scores = make({rows, keys}, dtype);
  if (has(options.need, Need::lse)) result.lse = make({rows}, dtype);
  if (has(options.need, Need::max_score)) result.max_score = make({rows}, dtype);
  if (has(options.need, Need::entropy)) result.entropy = make({rows}, dtype);
  if (has(options.need, Need::distance)) result.distance = make({rows}, dtype);
  if (has(options.need, Need::received)) result.received = make({keys}, dtype);
  if (options.received_last > 0) result.received_last = make({keys}, dtype);
  if (options.top_k > 0) {
    result.top_k_index = make({rows, options.top_k}, DType::i64);
    result.top_k_weight = make({rows, options.top_k}, dtype);
  }
  if (options.map.rows > 0) result.map = make({options.map.rows, options.map.columns}, dtype);
  return result;
}

AttentionOutputs views_of(AttentionResult& result) {
  AttentionOutputs outputs;
  outputs.output = result.output;
  outputs.weights = result.weights;
  outputs.scores = result.scores;
  outputs.lse = result.lse;
  outputs.max_score = result.max_score;
  outputs.entropy = result.entropy;
  outputs.distance = result.distance;
  outputs.top_k_index = result.top_k_index;
  outputs.top_k_weight = result.top_k_weight;
  outputs.received = result.received;
  outputs.received_last = result.received_last;
  outputs.map = result.map;
  return outputs;
}

void bind_outputs(const AttentionOutputs& outputs, const AttentionOptions& options, int rank,
                  Problem& problem) {
  const std::int64_t rows = problem.query_length;
  const std::int64_t keys = problem.key_length;
  problem.scores_stage = options.scores_stage;
  problem.received_last_rows = options.received_last;
  const MutableTensorView& either =
      is_given(outputs.top_k_index) ? outputs.top_k_index : outputs.top_k_weight;
  problem.top_k = size_or(options.top_k, either, 1);
  problem.map_size = {size_or(options.map.rows, outputs.map, 2),
                      size_or(options.map.columns, outputs.map, 1)};
  check_map(problem.map_size, problem);
  if (is_given(outputs.received_last) && options.received_last == 0)
    refuse(
        "received_last is 0 while outputs.received_last is given; how many last rows, 1 or more, is "
        "expected");

  const Binder bind(problem, rank);
  const DType dtype = summary_dtype(problem);
  bind("outputs.output", outputs.output, {rows, problem.value_dim}, output_dtype(problem, options),
       problem.output);
  bind("outputs.weights", outputs.weights, {rows, keys}, dtype, problem.weights);
  bind("outputs.scores", outputs.scores, {rows, keys}, dtype, problem.scores);
  bind("outputs.lse", outputs.lse, {rows}, dtype, problem.lse);
  bind("outputs.max_score", outputs.max_score, {rows}, dtype, problem.max_score);
  bind("outputs.entropy", outputs.entropy, {rows}, dtype, problem.entropy);
  bind("outputs.distance", outputs.distance, {rows}, dtype, problem.distance);
  bind("outputs.top_k_index", outputs.top_k_index, {rows, problem.top_k}, DType::i64, problem.top_k_index);
  bind("outputs.top_k_weight", outputs.top_k_weight, {rows, problem.top_k}, dtype, problem.top_k_weight);
  bind("outputs.received", outputs.received, {keys}, dtype, problem.received);
  bind("outputs.received_last", outputs.received_last, {keys}, dtype, problem.received_last);
  bind("outputs.map", outputs.map, {problem.map_size.rows, problem.map_size.columns}, dtype, problem.map);
  // A size of what nobody takes may be any number: no loop is to run so long.
  if (!problem.top_k_index && !problem.top_k_weight) problem.top_k = 0;
  if (!problem.map) problem.map_size = {};
}

}  // namespace heed::detail
