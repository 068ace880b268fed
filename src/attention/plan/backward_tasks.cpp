#include "attention/plan/backward_tasks.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/plan/tasks.hpp"
#include "attention/problem/elements.hpp"
#include "attention/problem/visible_keys.hpp"

namespace heed::detail {
namespace {

using cpu::BackwardTask;

// The number of tasks that keeps many threads busy, and the least keys that make a split worth its part of
// the query gradient.
constexpr std::int64_t kEnoughTasks = 16;
constexpr std::int64_t kSplitKeys = 768;
// Splits begin at whole panels of every target.
constexpr std::int64_t kSplitStep = 192;
constexpr std::int64_t kLanesAtMost = 16;
// An lse rounded to f32 has a relative error of up to 2^-24. Its absolute error becomes the relative error of
// every weight of the row. So a segment's lse is recomputed beyond this limit, at the cost of one more
// product. It is also recomputed for short rows, whose few weights would show the error most.
constexpr double kLargeLse = 16;
constexpr std::int64_t kShortRow = 192;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t splits_of(const BackwardProblem& problem, std::int64_t keys) {
  const Problem& p = problem.forward;
  // Decided by the bias, not by whether its gradient is wanted: no gradient may depend on which others are
  // wanted.
  if (p.bias && p.bias.stride[3] == 0) return 1;
  if (shares_bias(problem, 3, p.key_length)) return 1;
  const std::int64_t heads = p.whole.kv_heads * p.whole.sequences;  // so a part splits like the whole
  return std::clamp<std::int64_t>(std::min(ceil_div(kEnoughTasks, heads), ceil_div(keys, kSplitKeys)), 1,
                                  kEnoughTasks);
}

// -inf is exact for a row without keys. With a bias or a decay in f64, it may also be an lse that f32 could
// not hold.
bool has_large_lse(const BackwardProblem& problem, const Segment& s, std::int64_t head) {
  const auto is_f64 = [](const Operand& terms) { return terms && terms.dtype == DType::f64; };
  const bool rounded_to_infinity = is_f64(problem.forward.bias) || is_f64(problem.forward.decay);
  for (std::int64_t i = s.query_begin; i < s.query_end; ++i) {
    const double lse = std::abs(read(problem.lse, s.batch, head, i));
    if (lse > kLargeLse && (rounded_to_infinity || lse < std::numeric_limits<double>::infinity()))
      return true;
  }
  return false;
}

}  // namespace

bool shares_bias(const BackwardProblem& problem, int axis, std::int64_t size) {
  return problem.grad_bias && problem.grad_bias_size[axis] < size;
}

bool recomputes_lse(const BackwardProblem& problem, const Segment& segment, std::int64_t head) {
  return segment.key_end - segment.key_begin <= kShortRow || has_large_lse(problem, segment, head);
}

std::int64_t query_part_size(const BackwardTask& task, std::int64_t head_dim) {
  return (task.rows.row_end - task.rows.row_begin) * task.rows.head_count * head_dim;
}

std::size_t query_part_bytes(std::int64_t head_dim) {
  return static_cast<std::size_t>(ceil_div(head_dim, kLanesAtMost) * kLanesAtMost) * sizeof(float);
}

std::int64_t visible_cells(const Problem& p, const BackwardTask& task) {
  const cpu::Task& rows = task.rows;
  const KeyPositions keys{rows.key_end - rows.key_begin, rows.positions};
  std::int64_t cells = 0;
  for (std::int64_t i = rows.row_begin; i < rows.row_end; ++i) {
    const KeyRange seen = visible_keys(p, i + rows.position_offset, keys);
    cells +=
        std::max<std::int64_t>(0, std::min(seen.end, task.key_end) - std::max(seen.begin, task.key_begin));
  }
  return cells * rows.head_count;
}

std::vector<BackwardTask> backward_tasks(const BackwardProblem& problem) {
  const Problem& p = problem.forward;
  const std::int64_t group = p.kv_heads > 0 ? p.heads / p.kv_heads : 1;
  std::vector<BackwardTask> tasks;
  if (p.heads == 0) return tasks;
  for (const Segment& s : p.segments) {
    const std::int64_t keys = s.key_end - s.key_begin;
    const std::int64_t each = ceil_div(ceil_div(keys, splits_of(problem, keys)), kSplitStep) * kSplitStep;
    const std::int64_t splits = keys == 0 ? 1 : ceil_div(keys, each);  // rows without keys also need a task
    for (std::int64_t kv = 0; kv < p.kv_heads; ++kv)
      for (std::int64_t split = 0; split < splits; ++split)
        tasks.push_back({task_of(s, kv * group, group, s.query_begin, s.query_end), split * each,
                         std::min(keys, (split + 1) * each), split, splits, &s - p.segments.data()});
  }
  return tasks;
}

}  // namespace heed::detail
