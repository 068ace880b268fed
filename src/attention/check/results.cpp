#include "attention/check/results.hpp"

#include "attention/problem/operands.hpp"
#include "core/message.hpp"

namespace heed::detail {
namespace {

Dims shape_after_heads(const Problem& problem, int rank, std::span<const std::int64_t> sizes) {
  Dims shape;
  if (rank >= 4) shape.push_back(problem.batch);
  if (rank >= 3) shape.push_back(problem.heads);
  for (const std::int64_t size : sizes) shape.push_back(size);
  return shape;
}

}  // namespace

Dims shape_of(const Problem& problem, int rank, std::initializer_list<std::int64_t> sizes) {
  return shape_after_heads(problem, rank, {sizes.begin(), sizes.size()});
}

Dims axes_of(const Problem& p, ResultShape shape) {
  switch (shape) {
    case ResultShape::output:
      return {p.query_length, p.value_dim};
    case ResultShape::pair:
      return {p.query_length, p.key_length};
    case ResultShape::row:
      return {p.query_length};
    case ResultShape::top_k:
      return {p.query_length, p.top_k};
    case ResultShape::map:
      return {p.map_size.rows, p.map_size.columns};
    default:
      return {p.key_length};
  }
}

DType summary_dtype(const Problem& problem) { return problem.dtype == DType::f64 ? DType::f64 : DType::f32; }

bool is_given(const MutableTensorView& view) { return view.data() != nullptr || view.shape() != Dims{0}; }

namespace {

DType dtype_of(const Problem& problem, ResultType type) {
  if (type == ResultType::output) return problem.output_dtype;
  return type == ResultType::index ? DType::i64 : summary_dtype(problem);
}

// The size given by an option; if that is 0, the size of the view.
std::int64_t size_or(std::int64_t option, const MutableTensorView& view, int axis_from_end) {
  if (option != 0 || !is_given(view) || view.rank() < axis_from_end) return option;
  return view.size(-axis_from_end);
}

// The kernel multiplies a row index by the number of bins: bin r holds the rows i with floor(i * R / Lq) = r.
void check_map(const MapSize& map, const Problem& problem) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(map.rows, problem.query_length, &product) ||
      __builtin_mul_overflow(map.columns, problem.key_length, &product) ||
      __builtin_mul_overflow(map.rows, map.columns, &product))
    refuse(ErrorCode::out_of_memory, "map is ", map.rows, " x ", map.columns,
           ", which has more bins than 64 bits can count");
}

void set_sizes(const AttentionOutputs& outputs, const AttentionOptions& options, Problem& problem) {
  problem.scores_stage = options.scores_stage;
  problem.received_last_rows = options.received_last;
  const MutableTensorView& either =
      is_given(outputs.top_k_index) ? outputs.top_k_index : outputs.top_k_weight;
  problem.top_k = size_or(options.top_k, either, 1);
  problem.map_size = {size_or(options.map.rows, outputs.map, 2),
                      size_or(options.map.columns, outputs.map, 1)};
  check_map(problem.map_size, problem);
}

// A huge size of an unused output would drive a loop.
void clear_unused_sizes(Problem& problem) {
  if (!problem.top_k_index && !problem.top_k_weight) problem.top_k = 0;
  if (!problem.map) problem.map_size = {};
}

}  // namespace

AttentionResult allocate_results(Problem& problem, const AttentionOptions& options, int rank) {
  set_sizes({}, options, problem);
  AttentionResult all;
  for (std::size_t i = 0; i < kResultCount; ++i) {
    const ResultEntry& entry = result_entry(i);
    if (is_asked_for(entry, options))
      result<Tensor>(all, i) = Tensor::uninitialized(
          shape_after_heads(problem, rank, axes_of(problem, entry.shape)), dtype_of(problem, entry.type));
  }
  return all;
}

std::size_t expect_results(Problem& problem, const AttentionOptions& options) {
  static double no_memory = 0;
  set_sizes({}, options, problem);
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < kResultCount; ++i) {
    const ResultEntry& entry = result_entry(i);
    if (!is_asked_for(entry, options)) continue;
    const Dims shape = shape_after_heads(problem, 4, axes_of(problem, entry.shape));
    const DType dtype = dtype_of(problem, entry.type);
    const auto count = static_cast<std::size_t>(element_count(shape));
    bytes += count * size_of(dtype);
    if (count > 0) result<Output>(problem, i) = {&no_memory, dtype, {}};
  }
  clear_unused_sizes(problem);
  return bytes;
}

AttentionOutputs views_of(AttentionResult& results) {
  AttentionOutputs outputs;
  for (std::size_t i = 0; i < kResultCount; ++i) result(outputs, i) = result<Tensor>(results, i);
  return outputs;
}

void bind_outputs(const AttentionOutputs& outputs, const AttentionOptions& options, int rank,
                  Problem& problem) {
  set_sizes(outputs, options, problem);
  if (is_given(outputs.received_last) && options.received_last == 0)
    refuse(
        "received_last is 0 while outputs.received_last is given; the number of last rows, 1 or more, is "
        "expected");
  for (std::size_t i = 0; i < kResultCount; ++i) {
    const ResultEntry& entry = result_entry(i);
    const MutableTensorView& view = result(outputs, i);
    if (!is_given(view)) continue;
    const Output target =
        target_of(entry.path, view, shape_after_heads(problem, rank, axes_of(problem, entry.shape)),
                  dtype_of(problem, entry.type), 4 - rank);
    // A view without elements needs no writing; and kernels rely on the map to have bins.
    if (view.count() > 0) result<Output>(problem, i) = target;
  }
  clear_unused_sizes(problem);
}

}  // namespace heed::detail
