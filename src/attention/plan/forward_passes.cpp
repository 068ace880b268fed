// Divides the rows of a forward pass into tasks, work items and spans.
#include "attention/plan/execution_plan.hpp"

#include <algorithm>
#include <numeric>

#include "attention/isa/dispatch.hpp"
#include "attention/plan/tasks.hpp"

namespace heed::detail {
namespace {

using cpu::Task;

// Per thread, for tasks that run side by side.
constexpr std::size_t kTogetherBytes = std::size_t{6} << 20;

class PassPlanner {
 public:
  PassPlanner(const Problem& problem, int threads, ForwardPass& pass)
      : p_(problem), threads_(threads), pass_(pass) {}

  // Work items are runs of tasks. Rows that share a map row share an item.
  void plan_items() {
    pass_.tasks.clear();
    pass_.items.clear();
    const std::span<const Segment> segments = pass_.segments;
    const std::int64_t group = pass_.call.group;
    std::size_t end = 0;
    for (std::size_t first = 0; first < segments.size(); first = end) {
      end = first + 1;
      if (p_.map)
        while (end < segments.size() && segments[end].batch == segments[first].batch) ++end;
      const std::int64_t together = p_.map ? 1 : heads_per_task(pass_.tiling, segments[first], group);
      for (std::int64_t h = 0; h < p_.heads;) {
        const std::int64_t heads = std::min(together, group - h % group);  // of one key head
        plan_heads(segments.subspan(first, end - first), h, heads);
        h += heads;
      }
    }
    pass_.items.push_back(pass_.tasks.size());
  }

  // If there are too few tasks, threads share the spans of their keys. If tasks read the same rows, or pieces
  // of them, they read them side by side.
  void choose_schedule() {
    pass_.schedule = Schedule::whole_tasks;
    if (pass_.call.keeps_task_weights) pass_.schedule = Schedule::keeps_weights;
    if (pass_.call.keeps_task_weights || p_.map) return;
    const auto tasks = std::ssize(pass_.tasks);
    const bool lacks_tasks = threads_ > 1 && tasks < kItemsPerThread * threads_;
    const bool pieces = reads_pieces();
    if (!lacks_tasks && !pieces) return;
    std::int64_t spans = 0;
    for (const Task& task : pass_.tasks) spans += spans_of(p_, task).end - spans_of(p_, task).begin;
    if ((!pieces && spans <= tasks) ||
        static_cast<std::size_t>(spans) > kStateBytes / pass_.tiling.state_bytes)
      return;
    pass_.schedule = pieces ? Schedule::shared_spans : Schedule::split_kv;
    plan_spans();
  }

 private:
  void plan_heads(std::span<const Segment> segments, std::int64_t head, std::int64_t heads) {
    const Segment& s = segments[0];
    if (!p_.map) {
      const std::size_t begin = pass_.tasks.size();
      add_tasks(s, head, heads, s.query_begin, s.query_end);
      for (std::size_t t = begin; t < pass_.tasks.size(); ++t) pass_.items.push_back(t);
      return;
    }
    if (segments.size() > 1) {  // packed sequences may share map rows
      pass_.items.push_back(pass_.tasks.size());
      for (const Segment& one : segments) add_tasks(one, head, heads, one.query_begin, one.query_end);
      return;
    }
    const auto row_of_bin = [&](std::int64_t bin) {
      return std::min(s.query_end, (bin * p_.query_length + p_.map_size.rows - 1) / p_.map_size.rows);
    };
    for (std::int64_t bin = 0; bin < p_.map_size.rows;) {
      std::int64_t next = bin + 1;
      while (next < p_.map_size.rows && row_of_bin(next + 1) - row_of_bin(bin) <= pass_.tiling.rows) ++next;
      pass_.items.push_back(pass_.tasks.size());
      add_tasks(s, head, heads, row_of_bin(bin), row_of_bin(next));
      bin = next;
    }
  }

  // The last rows come first, because they are the longest under a causal mask. Tasks that keep weights come
  // in the order of the rows, because `received` is summed in that order.
  void add_tasks(const Segment& s, std::int64_t head, std::int64_t head_count, std::int64_t row_begin,
                 std::int64_t row_end) {
    const std::int64_t rows = rows_per_head(pass_.tiling, s);
    const std::int64_t blocks = (row_end - row_begin + rows - 1) / rows;
    for (std::int64_t i = 0; i < blocks; ++i) {
      const std::int64_t block = pass_.call.keeps_task_weights ? i : blocks - 1 - i;
      const std::int64_t begin = row_begin + block * rows;
      pass_.tasks.push_back(task_of(s, head, head_count, begin, std::min(row_end, begin + rows)));
    }
  }

  // Whether few rows read keys in pieces: keys with interleaved heads, or keys scattered by a cache's table.
  bool reads_pieces() const {
    const cpu::Arguments& call = pass_.call;
    if (call.most_rows * call.group > kFewRows || p_.key_length <= cpu::kSpan) return false;
    if (p_.kv_heads > 1 && call.key.stride[1] < call.key.stride[2]) return true;
    return p_.cache != nullptr && std::ranges::any_of(pass_.segments, [&](const Segment& s) {
             return p_.cache->sequences[s.sequence].rows != nullptr;
           });
  }

  // The row number of a task's key, in the cache or in the tensors.
  std::int64_t row_number(const Task& task, std::int64_t key) const {
    if (p_.cache == nullptr) return task.batch * p_.key_length + task.key_begin + key;
    const CachedSequence& sequence = p_.cache->sequences[task.sequence];
    return sequence.rows != nullptr ? sequence.rows[key] : sequence.first_row + key;
  }

  std::array<std::int64_t, 3> rows_of_span(const Task& task, std::int64_t span) const {
    const std::int64_t end = std::min((span + 1) * cpu::kSpan, task.key_end - task.key_begin);
    return {row_number(task, span * cpu::kSpan), row_number(task, end - 1),
            task.head_begin / pass_.call.group};
  }

  // Spans of the same rows form one item. All but the first read a shared prefix from the processor's cache.
  // Interleaved heads also share the cache lines that memory delivers.
  void plan_spans() {
    std::vector<PlannedSpan>& spans = pass_.spans;
    std::vector<std::size_t>&first = pass_.first_span, &order = pass_.span_order, &items = pass_.span_items;
    spans.clear();
    first.clear();
    items.clear();
    for (std::size_t t = 0; t < pass_.tasks.size(); ++t) {
      first.push_back(spans.size());
      const KeyRange seen = spans_of(p_, pass_.tasks[t]);
      for (std::int64_t span = seen.begin; span < seen.end; ++span)
        spans.push_back({t, span, rows_of_span(pass_.tasks[t], span)});
    }
    first.push_back(spans.size());
    order.resize(spans.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const bool shared = pass_.schedule == Schedule::shared_spans;
    if (shared) std::ranges::stable_sort(order, {}, [&](std::size_t at) { return spans[at].rows; });
    const auto threads = static_cast<std::size_t>(threads_) * kItemsPerThread;
    const std::size_t fit = std::min<std::size_t>(cpu::kTasksTogether, kTogetherBytes / pass_.tiling.bytes);
    const std::size_t most = shared ? std::max<std::size_t>(1, std::min(fit, spans.size() / threads)) : 1;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const PlannedSpan& one = spans[order[i]];
      const PlannedSpan& before = spans[order[i == 0 ? 0 : i - 1]];
      const bool joins = i > 0 && one.rows[0] == before.rows[0] && one.rows[1] == before.rows[1] &&
                         one.span == before.span && i - items.back() < most;
      if (!joins) items.push_back(i);
    }
    items.push_back(order.size());
  }

  const Problem& p_;
  int threads_;
  ForwardPass& pass_;
};

}  // namespace

void plan_pass(const Problem& problem, const cpu::Arguments& call, std::span<const Segment> segments,
               int threads, ForwardPass& pass) {
  pass.call = call;
  pass.unit = &cpu::kernels().forward(call);
  pass.tiling = pass.unit->plan_tiling(call);
  pass.keeps_rows_weights = false;
  pass.segments.assign(segments.begin(), segments.end());
  PassPlanner planner(problem, threads, pass);
  planner.plan_items();
  planner.choose_schedule();
}

}  // namespace heed::detail
