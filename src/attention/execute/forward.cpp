// The driver of the fused forward kernel. Converts a Problem to plain Arguments for the target, and divides
// its rows into tasks, which any thread can run in any order. Every result belongs to one task, so it does
// not depend on the threads.
//
//   forward        A task is some rows of one head; if rows are few, the rows of all heads of a key head.
//                  If there are fewer tasks than threads need, threads share the spans of their keys.
//   received       The same, but tasks keep their weights until the sums of their rows are known
//                  (received_pass.cpp).
//   weights pass   Other results that need the final sums (weights, received), and scores: some KV blocks of
//                  one head. Few rows, whose weights forward keeps, need it for scores only
//                  (kept_weights.cpp).
//   recompute      Rows whose numbers f32 cannot hold are computed in f64 (recompute.cpp).
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/execute/kept_weights.hpp"
#include "attention/execute/lower.hpp"
#include "attention/execute/memory.hpp"
#include "attention/execute/received_pass.hpp"
#include "attention/execute/tasks.hpp"
#include "attention/isa/dispatch.hpp"
#include "attention/plan/kernels.hpp"
#include "attention/problem/elements.hpp"
#include "attention/problem/score_rules.hpp"
#include "heed/parallel.hpp"

namespace heed::detail {
namespace {

using cpu::Arguments;
using cpu::Kernels;
using cpu::RowStatus;
using cpu::Task;
using cpu::Tiling;
using cpu::WeightsTask;

constexpr std::int64_t kLargestDim = 1024;
constexpr std::int64_t kMostTopK = 1024;
constexpr std::int64_t kMostMapColumns = 32768;  // for a row group in kStatisticsBytes
// Limit of 1 / sum, below which a sink dominates the sum.
constexpr double kSmallestInverse = 0x1p-100;
// Per thread, for tasks that run side by side.
constexpr std::size_t kTogetherBytes = std::size_t{6} << 20;

// A thread's working memory, and the run that last prepared it.
struct ThreadMemory {
  Workspace workspace;
  std::uint64_t owner = 0;
};

ThreadMemory& thread_memory() {
  thread_local ThreadMemory mine;
  return mine;
}

// A span of a task's keys. Tasks whose spans have the same `rows` of a cache read the same memory.
struct SpanItem {
  std::size_t task;
  std::int64_t span;
  std::array<std::int64_t, 3> rows{};  // the first and the last row number, and the key head
};

// The work of a call. Its memory is kept for the next call on this thread.
struct WorkItems {
  std::vector<Task> tasks;
  std::vector<std::size_t> items;  // first task of each item
  std::vector<RowStatus> status;   // [B, H, Lq]
  // Used if threads share spans:
  std::vector<SpanItem> spans;          // of all tasks
  std::vector<std::size_t> first_span;  // of each task
  std::vector<std::size_t> span_order;  // spans in the order of computation
  std::vector<std::size_t> span_items;  // first element of each item in span_order
  Workspace states;                     // for each span
  Workspace task_weights;               // weights of each thread's last task
};

WorkItems& kept_work() {
  thread_local WorkItems kept;
  return kept;
}

// Numbers the passes of all calls, so that a thread knows whether its memory holds another pass's keys.
std::uint64_t next_run() {
  static std::atomic<std::uint64_t> runs{0};
  return ++runs;
}

class Driver {
 public:
  explicit Driver(const Problem& problem) : p_(problem), call_(lower(problem)), kept_weights_(problem) {
    std::swap(work_, kept_work());
  }
  ~Driver() { std::swap(work_, kept_work()); }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  KernelRun run() {
    if (p_.batch * p_.heads == 0) return {};
    status_.assign(rows(), RowStatus::done);
    call_.row_status = status_.data();
    call_.keeps_task_weights = ReceivedPass::takes(p_, call_);
    const bool needs_weights_pass =
        p_.weights || p_.received_last || (p_.received && !call_.keeps_task_weights);
    const bool keeps_rows = needs_weights_pass || p_.dropped;
    fill(p_.received, p_.key_length, 1, 0.0f);
    fill(p_.received_last, p_.key_length, 1, 0.0f);
    fill(p_.map, p_.map_size.rows, p_.map_size.columns, 0.0f);
    if (keeps_rows) keep_rows();
    wants_weights_ = needs_weights_pass;
    forward_all();
    if (needs_weights_pass) {
      fill_outside(p_.weights, 0.0f);
      if (!kept_segments_.empty()) {
        const std::span<const float> sums(row_memory_);
        kept_weights_.finish(kept_segments_, {status_, sums.first(rows()), sums.subspan(rows())});
      }
      const Arguments call = pass_arguments();
      const Kernels& kernels = target_.weights_pass(call);
      if (!pass_segments_.empty()) pass(pass_segments_, call, kernels, kernels.weights_pass);
    }
    std::vector<RowStatus> score_status;
    if (p_.scores) {
      score_status.assign(rows(), RowStatus::done);
      scores(score_status.data());
    }
    if (p_.dropped) write_dropped();
    const KernelRun again = recompute_rows(p_, status_, score_status);
    return {std::max(threads_used_, again.threads), again.recomputed_rows};
  }

 private:
  std::size_t rows() const { return static_cast<std::size_t>(p_.batch * p_.heads * p_.query_length); }

  // Allocates the row statistics that the weights pass needs.
  void keep_rows() {
    const std::int64_t rows = p_.batch * p_.heads * p_.query_length;
    row_memory_.resize(static_cast<std::size_t>(2 * rows));
    call_.row_shift = output_of_rows(p_, row_memory_.data());
    call_.row_inverse = output_of_rows(p_, row_memory_.data() + rows);
  }

  // Computes only the rows' shifts and inverse sums.
  void run_for_rows() {
    status_.assign(rows(), RowStatus::done);
    call_.row_status = status_.data();
    keep_rows();
    forward_all();
  }

  // Runs one more pass, without the masks. The ratio of the two weight sums is as exact as the sums; a
  // difference of lse is not. If a sum does not represent the row, the reference computes it.
  void write_dropped() {
    Problem plain = without_masks(p_);
    static_cast<ResultTargets&>(plain) = {};
    plain.threads = p_.threads;
    Driver unmasked(plain);
    unmasked.run_for_rows();
    const auto count = static_cast<std::int64_t>(rows());
    std::vector<RowStatus> left(rows(), RowStatus::done);
    bool any_left = false;
    for (std::int64_t row = 0; row < count; ++row) {
      const auto at = static_cast<std::size_t>(row);
      if (status_[at] == RowStatus::out_of_range) continue;  // recomputed with all its results
      const double masked_inverse = static_cast<double>(row_memory_[static_cast<std::size_t>(count) + at]);
      const double inverse = static_cast<double>(unmasked.row_memory_[static_cast<std::size_t>(count) + at]);
      const bool known = unmasked.status_[at] != RowStatus::out_of_range &&
                         (!p_.sinks || (masked_inverse > kSmallestInverse && inverse > kSmallestInverse));
      if (!known) {
        left[at] = RowStatus::out_of_range;
        any_left = true;
        continue;
      }
      const double shift =
          static_cast<double>(row_memory_[at]) - static_cast<double>(unmasked.row_memory_[at]);
      const double kept = masked_inverse == 0 ? 0 : inverse / masked_inverse * std::exp2(shift);
      const double dropped = inverse == 0 ? 0 : std::max(0.0, 1 - kept);
      const std::int64_t head = row / p_.query_length;
      write(p_.dropped, dropped, head / p_.heads, head % p_.heads, row % p_.query_length);
    }
    if (!any_left) return;
    Problem only = p_;
    static_cast<ResultSet<Target>&>(only) = {};
    only.top_k = 0;
    only.dropped = p_.dropped;
    (void)recompute_rows(only, left, {});
  }

  std::int64_t heads_per_task(const Segment& s) const {
    return p_.map ? 1 : detail::heads_per_task(tiling_, s, call_.group);
  }

  void count_sequence(const Segment& s, std::int64_t blocks) const {
    using cpu::Path;
    cpu::count_path(call_.paths, blocks > 1 ? Path::sequence_in_several_tasks : Path::sequence_in_one_task);
    cpu::count_path(call_.paths, s.key_end - s.key_begin > tiling_.step ? Path::sequence_in_several_steps
                                                                        : Path::sequence_in_one_step);
  }

  // The last rows come first, because they are the longest under a causal mask. Tasks that keep weights come
  // in the order of the rows, because `received` is summed in that order.
  void add_tasks(const Segment& s, std::int64_t head, std::int64_t head_count, std::int64_t row_begin,
                 std::int64_t row_end) {
    const std::int64_t rows = rows_per_head(tiling_, s);
    const std::int64_t blocks = (row_end - row_begin + rows - 1) / rows;
    if (static_cast<std::int64_t>(p_.segments.size()) > p_.batch) count_sequence(s, blocks);
    for (std::int64_t i = 0; i < blocks; ++i) {
      const std::int64_t block = call_.keeps_task_weights ? i : blocks - 1 - i;
      const std::int64_t begin = row_begin + block * rows;
      tasks_.push_back(task_of(s, head, head_count, begin, std::min(row_end, begin + rows)));
    }
  }

  // Work items are runs of tasks that one thread executes in order. Rows that share a map row share an item.
  void plan_items(std::span<const Segment> segments) {
    tasks_.clear();
    items_.clear();
    std::int64_t done = 0;
    for (std::size_t first = 0; first < segments.size(); first = static_cast<std::size_t>(done)) {
      std::size_t end = first + 1;
      if (p_.map)
        while (end < segments.size() && segments[end].batch == segments[first].batch) ++end;
      for (std::int64_t kv = 0; kv < p_.kv_heads; ++kv)
        for (std::int64_t h = kv * call_.group; h < (kv + 1) * call_.group;) {
          const std::int64_t heads = std::min(heads_per_task(segments[first]), (kv + 1) * call_.group - h);
          plan_head(segments.subspan(first, end - first), h, heads);
          h += heads;
        }
      done = static_cast<std::int64_t>(end);
    }
    items_.push_back(tasks_.size());
  }

  void plan_head(std::span<const Segment> segments, std::int64_t head, std::int64_t heads) {
    const Segment& s = segments[0];
    if (!p_.map) {
      const std::size_t begin = tasks_.size();
      add_tasks(s, head, heads, s.query_begin, s.query_end);
      for (std::size_t t = begin; t < tasks_.size(); ++t) items_.push_back(t);
      return;
    }
    if (segments.size() > 1) {  // packed sequences may share map rows
      items_.push_back(tasks_.size());
      for (const Segment& one : segments) add_tasks(one, head, heads, one.query_begin, one.query_end);
      return;
    }
    const auto row_of_bin = [&](std::int64_t bin) {
      return std::min(s.query_end, (bin * p_.query_length + p_.map_size.rows - 1) / p_.map_size.rows);
    };
    for (std::int64_t bin = 0; bin < p_.map_size.rows;) {
      std::int64_t next = bin + 1;
      while (next < p_.map_size.rows && row_of_bin(next + 1) - row_of_bin(bin) <= tiling_.rows) ++next;
      items_.push_back(tasks_.size());
      add_tasks(s, head, heads, row_of_bin(bin), row_of_bin(next));
      bin = next;
    }
  }

  // Each thread prepares its memory before its first work item. A pass without a name reports no progress.
  template <class Item>
  void in_parallel(std::string_view pass, std::int64_t count, const Kernels& kernels, const Arguments& call,
                   const Tiling& tiling, Item item) {
    const std::uint64_t run = next_run();
    std::atomic<std::int64_t> done{0};
    const int threads = threads_for(p_, count, kSmallWork);
    threads_used_ = std::max(threads_used_, threads);
    const auto body = [&](std::int64_t i, int worker) {
      ThreadMemory& mine = thread_memory();
      const bool moved = mine.workspace.reserve(tiling.bytes);
      void* memory = mine.workspace.data();
      if (moved || mine.owner != run) {
        kernels.reset(call, tiling, memory);
        mine.owner = run;
      }
      item(i, memory, worker);
      if (p_.progress && !pass.empty())
        p_.progress(pass,
                    progress_ + progress_share_ * static_cast<double>(++done) / static_cast<double>(count));
    };
    parallel_for(count, threads, std::cref(body));  // std::function holds a reference without an allocation
  }

  void forward_all() {
    const std::int64_t most_rows = call_.most_rows;
    if (p_.map || !is_packed(p_)) {
      forward(p_.segments);
    } else {
      for_each_row_class(p_, call_.group, [&](const std::vector<Segment>& segments, std::int64_t longest) {
        call_.most_rows = longest;
        progress_share_ = static_cast<double>(segments.size()) / static_cast<double>(p_.segments.size());
        forward(segments);
        progress_ += progress_share_;
      });
      progress_ = 0;
      progress_share_ = 1;
    }
    call_.most_rows = most_rows;
  }

  void forward(std::span<const Segment> segments) {
    kernels_ = &target_.forward(call_);
    tiling_ = kernels_->plan(call_);
    call_.kept = {};
    if (wants_weights_) {
      const bool keeps = kernels_->keeps_weights(call_, tiling_);
      if (keeps) call_.kept = kept_weights_.room(kernels_->kv_block);
      std::vector<Segment>& others = keeps ? kept_segments_ : pass_segments_;
      others.insert(others.end(), segments.begin(), segments.end());
    }
    plan_items(segments);
    if (call_.keeps_task_weights) return forward_received();
    if (goes_by_spans(segments)) return forward_by_spans(reads_pieces(segments));
    in_parallel("forward", static_cast<std::int64_t>(items_.size()) - 1, *kernels_, call_, tiling_,
                [&](std::int64_t item, void* memory, int) {
                  const auto at = static_cast<std::size_t>(item);
                  for (std::size_t t = items_[at]; t < items_[at + 1]; ++t)
                    kernels_->forward(call_, tiling_, tasks_[t], memory);
                });
  }

  // Whether few rows read keys in pieces: keys with interleaved heads, or keys scattered by a cache's table.
  bool reads_pieces(std::span<const Segment> segments) const {
    if (call_.most_rows * call_.group > kFewRows || p_.key_length <= cpu::kSpan) return false;
    if (p_.kv_heads > 1 && call_.key.stride[1] < call_.key.stride[2]) return true;
    return p_.cache != nullptr && std::any_of(segments.begin(), segments.end(), [&](const Segment& s) {
             return p_.cache->sequences[s.sequence].rows != nullptr;
           });
  }

  // Whether tasks are computed span by span. If there are too few tasks, threads share the spans of their
  // keys. If tasks read the same rows, or pieces of them, they read them side by side. The bits are the same.
  bool goes_by_spans(std::span<const Segment> segments) const {
    const auto tasks = static_cast<std::int64_t>(tasks_.size());
    const int threads = threads_for(p_, INT64_MAX, kSmallWork);
    const bool lacks_tasks = threads > 1 && tasks < kItemsPerThread * threads;
    const bool pieces = reads_pieces(segments);
    if (p_.map || !(lacks_tasks || pieces)) return false;
    std::int64_t spans = 0;
    for (const Task& task : tasks_) spans += spans_of(p_, task).end - spans_of(p_, task).begin;
    return (pieces || spans > tasks) && static_cast<std::size_t>(spans) <= kStateBytes / tiling_.state_bytes;
  }

  // The row number of a task's key, in the cache or in the tensors.
  std::int64_t row_number(const Task& task, std::int64_t key) const {
    if (p_.cache == nullptr) return task.batch * p_.key_length + task.key_begin + key;
    const CachedSequence& sequence = p_.cache->sequences[task.sequence];
    return sequence.rows != nullptr ? sequence.rows[key] : sequence.first_row + key;
  }

  // Identifies the rows of a span.
  std::array<std::int64_t, 3> rows_of_span(const Task& task, std::int64_t span) const {
    const std::int64_t end = std::min((span + 1) * cpu::kSpan, task.key_end - task.key_begin);
    return {row_number(task, span * cpu::kSpan), row_number(task, end - 1), task.head_begin / call_.group};
  }

  // Spans of the same rows form one item. All but the first read a shared prefix from the processor's cache.
  // Interleaved heads also share the cache lines that memory delivers.
  void plan_spans(bool side_by_side) {
    std::vector<SpanItem>& spans = work_.spans;
    std::vector<std::size_t>&first = work_.first_span, &order = work_.span_order;
    spans.clear();
    first.clear();
    for (std::size_t t = 0; t < tasks_.size(); ++t) {
      first.push_back(spans.size());
      const KeyRange seen = spans_of(p_, tasks_[t]);
      for (std::int64_t span = seen.begin; span < seen.end; ++span)
        spans.push_back({t, span, rows_of_span(tasks_[t], span)});
    }
    order.resize(spans.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (side_by_side)
      std::stable_sort(order.begin(), order.end(),
                       [&](std::size_t a, std::size_t b) { return spans[a].rows < spans[b].rows; });
    const auto threads = static_cast<std::size_t>(threads_for(p_, INT64_MAX, kSmallWork)) * kItemsPerThread;
    const std::size_t fit = std::min<std::size_t>(cpu::kTasksTogether, kTogetherBytes / tiling_.bytes);
    const std::size_t most =
        side_by_side ? std::max<std::size_t>(1, std::min(fit, spans.size() / threads)) : 1;
    work_.span_items.clear();
    for (std::size_t i = 0; i < order.size(); ++i) {
      const SpanItem& one = spans[order[i]];
      const SpanItem& before = spans[order[i == 0 ? 0 : i - 1]];
      const bool joins = i > 0 && one.rows[0] == before.rows[0] && one.rows[1] == before.rows[1] &&
                         one.span == before.span && i - work_.span_items.back() < most;
      if (!joins) work_.span_items.push_back(i);
    }
    work_.span_items.push_back(order.size());
  }

  void forward_by_spans(bool side_by_side) {
    plan_spans(side_by_side);
    const std::vector<SpanItem>& spans = work_.spans;
    const std::vector<std::size_t>&first = work_.first_span, &items = work_.span_items;
    work_.states.reserve(spans.size() * tiling_.state_bytes);
    const auto state = [&](std::size_t span) {
      return static_cast<std::byte*>(work_.states.data()) + span * tiling_.state_bytes;
    };
    std::size_t most = 1;
    for (std::size_t i = 0; i + 1 < items.size(); ++i) most = std::max(most, items[i + 1] - items[i]);
    Tiling together = tiling_;
    together.bytes *= most;
    in_parallel("forward", static_cast<std::int64_t>(items.size()) - 1, *kernels_, call_, together,
                [&](std::int64_t i, void* memory, int) {
                  const auto begin = items[static_cast<std::size_t>(i)];
                  const auto count = items[static_cast<std::size_t>(i) + 1] - begin;
                  std::array<cpu::SpanTask, cpu::kTasksTogether> of_item;
                  for (std::size_t k = 0; k < count; ++k) {
                    const std::size_t span = work_.span_order[begin + k];
                    of_item[k] = {&tasks_[spans[span].task], state(span)};
                  }
                  kernels_->attend_span(call_, tiling_, of_item.data(), static_cast<std::int64_t>(count),
                                        spans[work_.span_order[begin]].span, memory);
                });
    in_parallel({}, static_cast<std::int64_t>(tasks_.size()), *kernels_, call_, tiling_,
                [&](std::int64_t i, void* memory, int) {
                  const auto t = static_cast<std::size_t>(i);
                  const std::size_t end = t + 1 < first.size() ? first[t + 1] : spans.size();
                  kernels_->fold_spans(call_, tiling_, tasks_[t], static_cast<std::int64_t>(end - first[t]),
                                       state(first[t]), memory);
                });
  }

  void forward_received() {
    const auto count = static_cast<std::int64_t>(tasks_.size());
    ReceivedPass pass(p_, call_, *kernels_, tiling_, threads_for(p_, count, kSmallWork), work_.task_weights);
    in_parallel("forward", count, *kernels_, call_, tiling_, [&](std::int64_t i, void* memory, int worker) {
      pass.attend(tasks_[static_cast<std::size_t>(i)], memory, worker);
    });
    pass.finish();
  }

  // The weights pass needs only queries and keys. The other results are done already.
  Arguments pass_arguments() const {
    Arguments call = call_;
    call.kept = {};
    for (cpu::Output* done : {&call.output, &call.lse, &call.max_score, &call.entropy, &call.distance,
                              &call.dropped, &call.top_k_index, &call.top_k_weight, &call.map})
      done->data = nullptr;
    call.top_k = call.map_rows = call.map_columns = 0;
    return call;
  }

  // Makes tasks of at most `keys` keys.
  std::vector<WeightsTask> pass_tasks(const std::vector<Segment>& segments, std::int64_t keys) const {
    std::vector<WeightsTask> tasks;
    for (const Segment& s : segments)
      for (std::int64_t h = 0; h < p_.heads; ++h)
        for (std::int64_t key = 0; key < s.key_end - s.key_begin; key += keys)
          tasks.push_back({task_of(s, h, 1, s.query_begin, s.query_end), key,
                           std::min(key + keys, s.key_end - s.key_begin)});
    return tasks;
  }

  void pass(const std::vector<Segment>& segments, const Arguments& call, const Kernels& kernels,
            void (*kernel)(const Arguments&, const Tiling&, const WeightsTask&, void*)) {
    const Tiling tiling = kernels.plan_weights_pass(call);
    std::int64_t keys = tiling.cached_keys;
    std::vector<WeightsTask> tasks = pass_tasks(segments, keys);
    while (p_.threads > 1 && keys > tiling.step &&
           static_cast<std::int64_t>(tasks.size()) < kItemsPerThread * p_.threads) {
      keys -= tiling.step;
      tasks = pass_tasks(segments, keys);
    }
    in_parallel("weights pass", static_cast<std::int64_t>(tasks.size()), kernels, call, tiling,
                [&](std::int64_t i, void* memory, int) {
                  kernel(call, tiling, tasks[static_cast<std::size_t>(i)], memory);
                });
  }

  // Before the bias, scores ignore masks: every row has a score for every key of the tensor.
  void scores(RowStatus* status) {
    Arguments call = pass_arguments();
    call.row_status = status;
    if (p_.scores_stage == ScoresStage::bias) {
      fill_outside(p_.scores, -INFINITY);
      pass(p_.segments, call, target_.all(), target_.all().scores_pass);
      return;
    }
    call.mask.data = call.bias.data = call.alibi_slopes.data = nullptr;
    call.sparse_mask_count = 0;
    call.score_mod = {};
    call.causal = false;
    call.window_left = call.window_right = -1;
    if (p_.scores_stage == ScoresStage::raw) call.softcap = 0;
    std::vector<Segment> all;
    for (std::int64_t b = 0; b < p_.batch; ++b) all.push_back({b, 0, p_.query_length, 0, p_.key_length, 0});
    if (p_.cache != nullptr) all = p_.segments;  // a cache has no keys outside of segments
    pass(all, call, target_.all(), target_.all().scores_pass);
  }

  void fill(const Target& t, std::int64_t rows, std::int64_t columns, float value) const {
    if (!t) return;
    for (std::int64_t b = 0; b < p_.batch; ++b)
      for (std::int64_t h = 0; h < p_.heads; ++h)
        for (std::int64_t i = 0; i < rows; ++i)
          for (std::int64_t c = 0; c < columns; ++c) f32_row(t, b, h, i)[c * t.stride[3]] = value;
  }

  // Fills the elements of a [B, H, Lq, Lk] result that lie outside of a row's segment.
  void fill_outside(const Target& t, float value) const {
    if (!t) return;
    for (const Segment& s : p_.segments)
      for (std::int64_t h = 0; h < p_.heads; ++h)
        for (std::int64_t i = s.query_begin; i < s.query_end; ++i) {
          float* row = f32_row(t, s.batch, h, i);
          for (std::int64_t j = 0; j < s.key_begin; ++j) row[j * t.stride[3]] = value;
          for (std::int64_t j = s.key_end; j < p_.key_length; ++j) row[j * t.stride[3]] = value;
        }
  }

  const Problem& p_;
  const cpu::TargetKernels& target_ = cpu::kernels();
  Arguments call_;
  const Kernels* kernels_ = nullptr;  // of the current forward pass
  Tiling tiling_{};
  WorkItems work_;
  std::vector<Task>& tasks_ = work_.tasks;
  std::vector<std::size_t>& items_ = work_.items;
  std::vector<RowStatus>& status_ = work_.status;
  std::vector<float> row_memory_;
  bool wants_weights_ = false;                          // needed after the forward pass
  std::vector<Segment> kept_segments_, pass_segments_;  // with weights kept by forward; and the others
  KeptRowWeights kept_weights_;
  int threads_used_ = 1;
  double progress_ = 0, progress_share_ = 1;  // progress before the current pass, and its share
};

}  // namespace

bool fused_supports(const Problem& p) {
  if (p.dtype == DType::f64) return false;
  if (p.head_dim < 1 || p.value_dim < 1 || p.head_dim > kLargestDim || p.value_dim > kLargestDim)
    return false;
  if (p.top_k > kMostTopK || (p.top_k > 0 && p.key_length > INT32_MAX)) return false;
  if (p.map && p.map_size.columns > kMostMapColumns) return false;
  // Beyond these limits, the scale times log2(e) is not a normal float.
  return std::abs(p.scale) < 1e30 && (p.scale == 0 || std::abs(p.scale) > 1e-30) && p.softcap < 1e30 &&
         (p.softcap == 0 || p.softcap > 1e-30);
}

std::string_view fused_isa() { return cpu::kernels().name(); }

KernelRun run_fused(const Problem& problem) { return Driver(problem).run(); }

}  // namespace heed::detail
