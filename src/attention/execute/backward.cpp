// Runs the plan of a fused backward call. Tasks that add to the same sum of a shared bias run in different
// phases. So bits do not depend on the threads, and no atomics are needed.
#include "attention/execute/backward.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "attention/execute/memory.hpp"
#include "attention/execute/path_record.hpp"
#include "attention/execute/recompute.hpp"
#include "attention/execute/row_range.hpp"
#include "attention/plan/backward_tasks.hpp"
#include "attention/plan/lower.hpp"
#include "attention/plan/tasks.hpp"
#include "attention/problem/decay_sums.hpp"
#include "attention/problem/elements.hpp"
#include "attention/problem/score_rules.hpp"
#include "core/recycled.hpp"
#include "heed/parallel.hpp"

namespace heed::detail {
namespace {

using cpu::BackwardArguments;
using cpu::BackwardTask;
using cpu::BackwardTiling;
using cpu::RowStatus;
using cpu::Status;

// Zeroes the gradients of keys in no segment, because no task writes them.
void clear_keys_of_no_segment(const BackwardProblem& p) {
  const Problem& f = p.forward;
  std::vector<std::int64_t> done(static_cast<std::size_t>(f.batch), 0);  // [B]: end of the keys done
  const auto clear_keys = [&](std::int64_t batch, std::int64_t begin, std::int64_t end) {
    clear_rows(p.grad_key, batch, f.kv_heads, {begin, end}, f.head_dim);
    clear_rows(p.grad_value, batch, f.kv_heads, {begin, end}, f.value_dim);
  };
  for (const Segment& s : f.segments) {
    std::int64_t& at = done[static_cast<std::size_t>(s.batch)];
    clear_keys(s.batch, at, s.key_begin);
    at = s.key_end;
  }
  for (std::int64_t b = 0; b < f.batch; ++b)
    clear_keys(b, f.heads == 0 ? 0 : done[static_cast<std::size_t>(b)], f.key_length);
}

// Zeroes the bias gradient where each score has its own bias. Tasks write only the elements of visible keys.
void clear_own_bias(const BackwardProblem& p) {
  for (std::int64_t b = 0; b < p.forward.batch; ++b)
    clear_rows(p.grad_bias, b, p.forward.heads, {0, p.forward.query_length}, p.forward.key_length);
}

void write_bias_sums(const BackwardProblem& p, const std::vector<double>& sums) {
  const auto& size = p.grad_bias_size;
  std::size_t at = 0;
  for (std::int64_t b = 0; b < size[0]; ++b)
    for (std::int64_t h = 0; h < size[1]; ++h)
      for (std::int64_t i = 0; i < size[2]; ++i)
        for (std::int64_t j = 0; j < size[3]; ++j) write(p.grad_bias, sums[at++], b, h, i, j);
}

// The memory of a call. It is kept for the next call on this thread unless it is large: the kernel would have
// to map and clear fresh pages, which took a tenth of a step of training.
struct BackwardMemory {
  static constexpr std::size_t kMostKept = std::size_t{64} << 20;
  std::vector<AlignedMemory> of_worker;
  AlignedMemory query_parts;

  void release_if_large() {
    std::size_t bytes = query_parts.bytes();
    for (const AlignedMemory& memory : of_worker) bytes += memory.bytes();
    if (bytes > kMostKept) *this = {};
  }
};

class BackwardRun {
 public:
  BackwardRun(const BackwardProblem& problem, const BackwardPlan& plan)
      : p_(problem), f_(problem.forward), plan_(plan), call_(plan.call), tasks_(plan.tasks) {
    call_.forward.paths = path_counts();
    failed_.assign(static_cast<std::size_t>(f_.batch * f_.kv_heads), 0);
    fell_back_ = failed_;
    // One more than there are rows, so that data() is not null even without rows.
    status_.assign(row_index(f_.batch, 0, 1), RowStatus::done);
  }
  ~BackwardRun() { memory_->release_if_large(); }
  BackwardRun(const BackwardRun&) = delete;
  BackwardRun& operator=(const BackwardRun&) = delete;

  // The first try includes all rows. If f32 cannot hold some rows of a key head, a second try of that head
  // leaves them out, and uses the unit that computes everything; their share is added in f64. If that fails
  // too, all the head's rows are left out. So no head's bits depend on another head's numbers.
  KernelRun run() {
    clear_keys_of_no_segment(p_);
    prepare_bias();
    const std::size_t rows = row_index(f_.batch, 0, 0);
    if (wants_sink_weights()) {
      delta_.assign(rows, 0.0f);
      call_.delta = output_of_rows(f_, delta_.data());
    }
    place_query_parts();
    start();
    run_tasks(call_, plan_.tiling);
    for (const bool whole_heads : {false, true}) {
      if (!has_failed()) break;
      leave_out_rows(whole_heads);
      run_failed_again();
    }
    add_query_parts();
    add_sinks();
    write_decay();
    if (plan_.sums_bias) write_bias_sums(p_, bias_sums_);
    if (!leaves_out_rows_) return {threads_used_, 0};
    record_left_out();
    return add_left_out_rows(p_, std::span(status_).first(rows));
  }

  ShareRun run_share() {
    if (tasks_.empty()) return {};
    start();
    if (!has_failed()) run_tasks(call_, plan_.tiling);
    return {threads_used_, has_failed()};
  }

 private:
  std::size_t index(std::int64_t batch, std::int64_t kv) const {
    return static_cast<std::size_t>(batch * f_.kv_heads + kv);
  }
  std::size_t index(const BackwardTask& task) const {
    return index(task.rows.batch, task.rows.head_begin / call_.forward.group);
  }
  // Whether the gradients by sinks, or by the decay of a call with sinks, are wanted.
  bool wants_sink_weights() const { return p_.grad_sinks || (p_.grad_decay && f_.sinks); }
  bool has_failed() const { return std::ranges::find(failed_, 1) != failed_.end(); }

  std::size_t row_index(std::int64_t batch, std::int64_t head, std::int64_t i) const {
    return static_cast<std::size_t>((batch * f_.heads + head) * f_.query_length + i);
  }

  void start() {
    for (const BackwardTask& task : tasks_) count_task(task);
    recompute_lse();
  }

  // Marks the rows of failed heads that f32 cannot hold (row_range.hpp), or all of their rows.
  void leave_out_rows(bool whole_heads) {
    leaves_out_rows_ = true;
    for (const Segment& s : f_.segments)
      for (std::int64_t kv = 0; kv < f_.kv_heads; ++kv) {
        if (failed_[index(s.batch, kv)] == 0) continue;
        const KeyHeadRange range(p_, s, kv);
        const std::int64_t group = call_.forward.group;
        for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h)
          for (std::int64_t i = s.query_begin; i < s.query_end; ++i)
            if (whole_heads || !range.holds(h, i))
              status_[row_index(s.batch, h, i)] = RowStatus::out_of_range;
      }
  }

  void record_left_out() const {
    for (std::int64_t b = 0; b < f_.batch; ++b)
      for (std::int64_t h = 0; h < f_.heads; ++h)
        for (std::int64_t i = 0; i < f_.query_length; ++i)
          if (status_[row_index(b, h, i)] != RowStatus::done)
            record_fallback(cpu::Path::backward_fallback, {b, h, i, i + 1});
  }

  // Tasks write the gradients of biases that belong to one score. Shared biases are summed in f64, however
  // many there are.
  void prepare_bias() {
    if (call_.grad_bias.data != nullptr) clear_own_bias(p_);
    if (p_.grad_decay) {
      key_sums_.assign(static_cast<std::size_t>(f_.batch * f_.heads * f_.key_length), 0.0);
      call_.key_sums = key_sums_.data();
    }
    if (!plan_.sums_bias) return;
    const auto& size = p_.grad_bias_size;
    bias_sums_.assign(static_cast<std::size_t>(size[0] * size[1] * size[2] * size[3]), 0.0);
    call_.bias_sums = bias_sums_.data();
  }

  // Allocates the splits' parts of the query gradient, in the order of tasks.
  void place_query_parts() {
    if (!p_.grad_query) return;
    const auto for_each_part = [&](auto place) {
      std::int64_t at = 0;
      for (BackwardTask& task : tasks_) {
        if (task.splits == 1) continue;
        place(task, at);
        at += query_part_size(task, f_.head_dim);
      }
      return static_cast<std::size_t>(at);
    };
    const std::size_t floats = for_each_part([](const BackwardTask&, std::int64_t) {});
    memory_->query_parts.reserve(floats * sizeof(float));
    for_each_part([&](BackwardTask& task, std::int64_t at) {
      task.query_part = static_cast<float*>(memory_->query_parts.data()) + at;
    });
  }

  void count_task(const BackwardTask& task) const {
    using cpu::Path;
    std::int64_t* paths = call_.forward.paths;
    if (task.splits > 1) count_path(paths, Path::backward_split_keys);
    if (call_.bias_sums != nullptr) count_path(paths, Path::backward_bias_sums);
    if (call_.grad_bias.data != nullptr) count_path(paths, Path::backward_own_bias);
    if (task.rows.row_end - task.rows.row_begin < f_.query_length)
      count_path(paths,
                 task.splits > 1 ? Path::backward_sequence_split_keys : Path::backward_sequence_undivided);
  }

  template <class Item>
  void in_parallel(std::size_t count, std::size_t bytes, Item item) {
    const int threads = static_cast<int>(std::min(static_cast<std::size_t>(plan_.threads), count));
    threads_used_ = std::max(threads_used_, threads);
    std::vector<AlignedMemory>& memory = memory_->of_worker;
    if (memory.size() < static_cast<std::size_t>(threads)) memory.resize(static_cast<std::size_t>(threads));
    const auto body = [&](std::int64_t i, int worker) {
      AlignedMemory& mine = memory[static_cast<std::size_t>(worker)];
      mine.reserve(bytes);
      item(static_cast<std::size_t>(i), mine.data());
    };
    parallel_for(static_cast<std::int64_t>(count), threads, std::cref(body));
  }

  // Runs the forward pass without its second product, for the heads of a segment that need it.
  void recompute_lse() {
    recomputes_lse_.assign(f_.segments.size() * static_cast<std::size_t>(f_.heads), 0);
    call_.recomputes_lse = recomputes_lse_.data();
    std::vector<cpu::Task> tasks;
    const cpu::Tiling& tiling = plan_.lse_tiling;
    const BackwardTask* before = nullptr;
    for (const BackwardTask& task : tasks_) {
      const bool other_split = before != nullptr && before->segment == task.segment &&
                               before->rows.head_begin == task.rows.head_begin;
      before = &task;
      if (other_split) continue;
      const Segment& s = f_.segments[static_cast<std::size_t>(task.segment)];
      for (std::int64_t h = task.rows.head_begin; h < task.rows.head_begin + task.rows.head_count; ++h) {
        if (!recomputes_lse(p_, s, h)) continue;
        recomputes_lse_[static_cast<std::size_t>(task.segment * f_.heads + h)] = 1;
        for (std::int64_t row = s.query_begin; row < s.query_end; row += tiling.rows)
          tasks.push_back(task_of(s, h, 1, row, std::min(s.query_end, row + tiling.rows)));
      }
    }
    if (tasks.empty()) return;
    const std::int64_t rows = f_.batch * f_.heads * f_.query_length;
    row_memory_.resize(static_cast<std::size_t>((wants_sink_weights() ? 3 : 2) * rows));
    call_.forward.row_shift = output_of_rows(f_, row_memory_.data());
    call_.forward.row_inverse = output_of_rows(f_, row_memory_.data() + rows);
    if (wants_sink_weights()) call_.forward.row_sink = output_of_rows(f_, row_memory_.data() + 2 * rows);
    cpu::Arguments forward = call_.forward;
    forward.row_status = status_.data();
    in_parallel(tasks.size(), tiling.bytes, [&](std::size_t t, void* memory) {
      plan_.lse_unit->reset(forward, tiling, memory);
      plan_.lse_unit->forward(forward, tiling, tasks[t], memory);
    });
    for (const cpu::Task& task : tasks)
      for (std::int64_t i = task.row_begin; i < task.row_end; ++i)
        if (status_[row_index(task.batch, task.head_begin, i)] != RowStatus::done)
          fail(task.batch, task.head_begin);
  }

  void fail(std::int64_t batch, std::int64_t head) {
    const std::lock_guard guard(failing_);
    failed_[index(batch, head / call_.forward.group)] = 1;
  }

  // Runs the tasks of the marked `heads` ([B, Hkv]); of all heads if it is empty.
  void run_tasks(const BackwardArguments& call, const BackwardTiling& tiling,
                 std::span<const char> heads = {}) {
    for (std::size_t phase = 0; phase + 1 < plan_.phases.size(); ++phase) {
      std::vector<const BackwardTask*> tasks;
      for (std::size_t t = plan_.phases[phase]; t < plan_.phases[phase + 1]; ++t)
        if (heads.empty() || heads[index(tasks_[t])] != 0) tasks.push_back(&tasks_[t]);
      if (tasks.empty()) continue;
      in_parallel(tasks.size(), tiling.bytes, [&](std::size_t t, void* memory) {
        const BackwardTask& task = *tasks[t];
        const cpu::Kernels* unit = fell_back_[index(task)] != 0 ? plan_.unit_of_failed : plan_.unit;
        if (unit->backward(call, tiling, task, memory) != Status::done)
          fail(task.rows.batch, task.rows.head_begin);
      });
    }
  }

  // Runs the failed heads again, without the rows that are left out; the others keep their results. But
  // failed heads have already added to the sums of a shared bias. In that case the sums start again from 0,
  // and all heads run, in order.
  void run_failed_again() {
    const std::vector<char> again = std::exchange(failed_, std::vector<char>(failed_.size()));
    for (std::size_t head = 0; head < again.size(); ++head)
      if (again[head] != 0) fell_back_[head] = 1;
    std::ranges::fill(bias_sums_, 0.0);
    const std::size_t keys_of_group = key_sums_.size() / std::max<std::size_t>(1, again.size());
    for (std::size_t head = 0; !key_sums_.empty() && head < again.size(); ++head)
      if (again[head] != 0 || !bias_sums_.empty())
        std::fill_n(key_sums_.begin() + static_cast<std::ptrdiff_t>(head * keys_of_group), keys_of_group,
                    0.0);
    BackwardArguments call = call_;
    call.forward.row_status = status_.data();
    run_tasks(call, plan_.tiling_of_failed, bias_sums_.empty() ? std::span(again) : std::span<const char>());
  }

  // Uses the unit that add_gradient_parts() uses, whichever unit computed the parts.
  void add_query_parts() {
    struct Rows {
      const BackwardTask* first;  // of the splits
      std::int64_t head, begin;
    };
    std::vector<Rows> items;
    for (const BackwardTask& task : tasks_) {
      if (task.query_part == nullptr || task.split > 0) continue;
      for (std::int64_t h = 0; h < task.rows.head_count; ++h)
        for (std::int64_t row = task.rows.row_begin; row < task.rows.row_end; row += kRowsAtOnce)
          items.push_back({&task, h, row});
    }
    if (items.empty()) return;
    in_parallel(items.size(), query_part_bytes(f_.head_dim), [&](std::size_t item, void* memory) {
      const auto [first, head, begin] = items[item];
      const cpu::Task& task = first->rows;
      const std::int64_t row_stride = task.head_count * f_.head_dim;
      const float* from = first->query_part + (begin - task.row_begin) * row_stride;
      plan_.unit->add_query_parts(
          call_, {from + head * f_.head_dim, first->splits, query_part_size(*first, f_.head_dim), row_stride},
          task.batch, task.head_begin + head, begin, std::min(kRowsAtOnce, task.row_end - begin), memory);
    });
  }

  // exp(sink - lse) of row i. If the rows' own sums were recomputed, they are used, because a large lse is
  // too coarse.
  double sink_weight(std::size_t segment, std::int64_t head, double sink, std::int64_t i) const {
    const std::int64_t batch = f_.segments[segment].batch;
    if (recomputes_lse_[segment * static_cast<std::size_t>(f_.heads) + static_cast<std::size_t>(head)] == 0)
      return std::exp(sink - read(p_.lse, batch, head, i));
    const Output& kept = call_.forward.row_sink;
    return static_cast<double>(
        static_cast<const float*>(kept.data)[batch * kept.stride[0] + head * kept.stride[1] + i]);
  }

  // dSink_h = -sum_bi exp(sink_h - lse_i) delta_i. Rows that are left out are added in f64, whatever the
  // first try stored for them.
  void add_sinks() const {
    if (!p_.grad_sinks) return;
    const bool one_for_all = p_.grad_sinks.stride[1] == 0;
    double sum = 0;
    for (std::int64_t h = 0; h < f_.heads; ++h) {
      if (!one_for_all) sum = 0;
      const double sink = read(f_.sinks, 0, h);
      for (std::size_t s = 0; s < f_.segments.size(); ++s)
        for (std::int64_t i = f_.segments[s].query_begin; i < f_.segments[s].query_end; ++i) {
          const std::size_t row = row_index(f_.segments[s].batch, h, i);
          const double delta = delta_[row];
          if (delta != 0 && status_[row] == RowStatus::done) sum -= sink_weight(s, h, sink, i) * delta;
        }
      if (!one_for_all) write(p_.grad_sinks, sum, 0, h, 0);
    }
    if (one_for_all) write(p_.grad_sinks, sum, 0, 0, 0);
  }

  // A row's score gradients sum to dLse_i sum_j p_ij + D_i (1 - sum_j p_ij), where sum_j p_ij is 1 -
  // p_i,sink. So tasks only sum them for each key. Rows that are left out are added later.
  void write_decay() const {
    if (!p_.grad_decay) return;
    DecaySums sums(p_);
    for (std::size_t s = 0; s < f_.segments.size(); ++s)
      for (std::int64_t h = 0; h < f_.heads; ++h) add_to_decay(s, h, sums);
    sums.write();
  }

  void add_to_decay(std::size_t number, std::int64_t head, DecaySums& sums) const {
    const Segment& segment = f_.segments[number];
    const double* of_keys = key_sums_.data() + (segment.batch * f_.heads + head) * f_.key_length;
    for (std::int64_t j = segment.key_begin; j < segment.key_end; ++j)
      sums.of_key(segment, head, j) -= of_keys[j];
    if (segment.key_begin == segment.key_end) return;
    for (std::int64_t i = segment.query_begin; i < segment.query_end; ++i) {
      const std::size_t row = row_index(segment.batch, head, i);
      if (status_[row] != RowStatus::done || read(p_.lse, segment.batch, head, i) == -kInfinity) continue;
      double sum = p_.grad_lse ? read(p_.grad_lse, segment.batch, head, i) : 0;
      if (const double delta = f_.sinks ? delta_[row] : 0; delta != 0)
        sum += sink_weight(number, head, read(f_.sinks, 0, head), i) * delta;
      sums.of_row(segment, head, i - segment.query_begin + segment.offset) += sum;
    }
  }

  const BackwardProblem& p_;
  const Problem& f_;
  const BackwardPlan& plan_;
  BackwardArguments call_;           // with the memory of this run
  std::vector<BackwardTask> tasks_;  // likewise
  Recycled<BackwardMemory> memory_;
  std::vector<char> recomputes_lse_;
  std::vector<float> row_memory_;
  std::vector<float> delta_;
  std::vector<double> bias_sums_;
  std::vector<double> key_sums_;
  std::vector<char> failed_;       // [B, Hkv]: failed in the last try
  std::vector<char> fell_back_;    // [B, Hkv]: moved to the unit that computes everything
  std::vector<RowStatus> status_;  // [B, H, Lq]
  bool leaves_out_rows_ = false;
  std::mutex failing_;
  int threads_used_ = 1;
};

}  // namespace

KernelRun run_fused_backward(const BackwardProblem& problem, const BackwardPlan& plan) {
  return BackwardRun(problem, plan).run();
}

ShareRun run_fused_share(const BackwardProblem& problem, const BackwardPlan& plan) {
  return BackwardRun(problem, plan).run_share();
}

}  // namespace heed::detail
