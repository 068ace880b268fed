// Runs the plan of a forward call. Threads run work items in any order. Every result belongs to one task, so
// it does not depend on the threads.
//
//   forward passes   All results that need no final sums. The ways over the keys: plan/execution_plan.hpp.
//   weights pass     Other results that need the final sums (weights, received); scores. Few rows, whose
//                    weights forward keeps, need it for scores only (kept_weights.cpp).
//   recompute        Rows whose numbers f32 cannot hold are computed in f64 (recompute.cpp).
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "attention/execute/kept_weights.hpp"
#include "attention/execute/memory.hpp"
#include "attention/execute/path_record.hpp"
#include "attention/execute/received_pass.hpp"
#include "attention/execute/recompute.hpp"
#include "attention/execute/run.hpp"
#include "attention/plan/lower.hpp"
#include "attention/problem/elements.hpp"
#include "heed/parallel.hpp"

namespace heed::detail {
namespace {

using cpu::Arguments;
using cpu::RowStatus;
using cpu::Task;
using cpu::Tiling;

// A thread's working memory, and the pass that last prepared it. A ScoreMod may call attention again on this
// thread, so a work item takes the memory and gives it back.
struct ThreadMemory {
  AlignedMemory workspace;
  std::uint64_t owner = 0;
};

// Numbers the passes of all calls, so that a thread knows whether its memory holds another pass's keys.
std::uint64_t next_pass() {
  static std::atomic<std::uint64_t> passes{0};
  return ++passes;
}

// The memory of a call, kept for the next one on this thread.
struct CallMemory {
  std::vector<RowStatus> status;  // [B, H, Lq]
  AlignedMemory states;           // partial results of spans
  AlignedMemory task_weights;     // weights of each thread's last task
};

// Limit of 1 / sum, below which a sink dominates the sum.
constexpr double kSmallestInverse = 0x1p-100;

// The ratio of the two weight sums is as exact as the sums; a difference of lse is not.
double masked_mass(double masked_inverse, double inverse, double shift) {
  const double kept = masked_inverse == 0 ? 0 : inverse / masked_inverse * std::exp2(shift);
  return inverse == 0 ? 0 : std::max(0.0, 1 - kept);
}

// Writes p.masked_mass from the rows' sums with and without the masks. Returns the rows that are left to the
// reference, [B, H, Lq]; empty if none is.
std::vector<RowStatus> write_masked_mass(const Problem& p, const RowSums& masked, const RowSums& unmasked) {
  std::vector<RowStatus> left;
  for (std::size_t row = 0; row < masked.status.size(); ++row) {
    if (masked.status[row] == RowStatus::out_of_range) continue;  // recomputed with all its results
    const auto masked_inverse = static_cast<double>(masked.inverse[row]);
    const auto inverse = static_cast<double>(unmasked.inverse[row]);
    const bool known = unmasked.status[row] != RowStatus::out_of_range &&
                       (!p.sinks || (masked_inverse > kSmallestInverse && inverse > kSmallestInverse));
    if (!known) {
      left.resize(masked.status.size(), RowStatus::done);
      left[row] = RowStatus::out_of_range;
      continue;
    }
    const double shift = static_cast<double>(masked.shift[row]) - static_cast<double>(unmasked.shift[row]);
    const std::int64_t at = static_cast<std::int64_t>(row), head = at / p.query_length;
    write(p.masked_mass, masked_mass(masked_inverse, inverse, shift), head / p.heads, head % p.heads,
          at % p.query_length);
  }
  return left;
}

// Work for any thread: items [0, count). A pass without a name reports no progress.
struct Work {
  std::string_view name;
  std::size_t count;
};

void count_sequence(const ForwardPass& pass, const Task& task, std::size_t tasks) {
  using cpu::Path;
  std::int64_t* paths = path_counts();
  cpu::count_path(paths, tasks > 1 ? Path::sequence_in_several_tasks : Path::sequence_in_one_task);
  cpu::count_path(paths, task.key_end - task.key_begin > pass.tiling.step ? Path::sequence_in_several_steps
                                                                          : Path::sequence_in_one_step);
}

// Counts the packed sequences of each head, whose tasks stand together.
void count_sequences(const ForwardPass& pass) {
  for (std::size_t t = 0, end = 0; t < pass.tasks.size(); t = end) {
    const Task& first = pass.tasks[t];
    const auto is_same = [&](const Task& task) {
      return task.head_begin == first.head_begin && task.segment_row_end == first.segment_row_end;
    };
    while (end < pass.tasks.size() && is_same(pass.tasks[end])) ++end;
    count_sequence(pass, first, end - t);
  }
}

class ForwardRun {
 public:
  ForwardRun(const Problem& problem, const ExecutionPlan& plan)
      : p_(problem), plan_(plan), kept_weights_(problem) {
    memory_->status.assign(rows(), RowStatus::done);
  }

  KernelRun results() {
    fill(p_.received, p_.key_length, 1, 0.0f);
    fill(p_.received_last, p_.key_length, 1, 0.0f);
    fill(p_.map, p_.map_size.rows, p_.map_size.columns, 0.0f);
    if (plan_.keeps_rows) keep_sums();
    forward_passes();
    write_kept_weights();
    if (plan_.weights) run_weights(*plan_.weights, plan_.weights->unit->weights_pass, memory_->status.data());
    std::vector<RowStatus> score_status;
    if (plan_.scores) {
      score_status.assign(rows(), RowStatus::done);
      if (p_.scores_stage == ScoresStage::bias) fill_outside(p_.scores, -INFINITY);
      run_weights(*plan_.scores, plan_.scores->unit->scores_pass, score_status.data());
    }
    if (plan_.unmasked) masked_mass();
    const KernelRun again = recompute_rows(p_, memory_->status, score_status);
    return {std::max(threads_used_, again.threads), again.recomputed_rows};
  }

  // Computes nothing but the rows' sums.
  RowSums row_sums() {
    keep_sums();
    forward_passes();
    return sums();
  }

 private:
  std::size_t rows() const { return static_cast<std::size_t>(p_.batch * p_.heads * p_.query_length); }

  void keep_sums() { sums_.resize(2 * rows()); }
  RowSums sums() const {
    const std::span<const float> all(sums_);
    return {memory_->status, all.first(rows()), all.subspan(rows())};
  }

  // The planned arguments with the memory of this run.
  Arguments with_memory(const Arguments& planned, RowStatus* status) {
    Arguments call = planned;
    call.row_status = status;
    call.paths = path_counts();
    if (!sums_.empty()) {
      call.row_shift = output_of_rows(p_, sums_.data());
      call.row_inverse = output_of_rows(p_, sums_.data() + rows());
    }
    return call;
  }

  // Each thread prepares its memory before its first work item.
  template <class Item>
  void in_parallel(const Work& work, const cpu::Kernels& unit, const Arguments& call, const Tiling& tiling,
                   Item item) {
    const std::uint64_t pass = next_pass();
    const auto count = static_cast<std::int64_t>(work.count);
    std::atomic<std::int64_t> done{0};
    const int threads = static_cast<int>(std::min<std::int64_t>(plan_.threads, count));
    threads_used_ = std::max(threads_used_, threads);
    const auto body = [&](std::int64_t i, int worker) {
      Recycled<ThreadMemory> mine;
      const bool moved = mine->workspace.reserve(tiling.bytes);
      void* memory = mine->workspace.data();
      if (moved || mine->owner != pass) {
        unit.reset(call, tiling, memory);
        mine->owner = pass;
      }
      item(static_cast<std::size_t>(i), memory, worker);
      if (p_.progress && !work.name.empty())
        p_.progress(work.name,
                    progress_ + progress_share_ * static_cast<double>(++done) / static_cast<double>(count));
    };
    parallel_for(count, threads, std::cref(body));  // std::function holds a reference without an allocation
  }

  void forward_passes() {
    const std::span<const ForwardPass> passes = plan_.forward();
    for (const ForwardPass& pass : passes) {
      progress_share_ = passes.size() == 1 ? 1
                                           : static_cast<double>(pass.segments.size()) /
                                                 static_cast<double>(p_.segments.size());
      forward(pass);
      progress_ += progress_share_;
    }
    progress_ = 0;
    progress_share_ = 1;
  }

  void forward(const ForwardPass& pass) {
    if (std::ssize(p_.segments) > p_.batch) count_sequences(pass);
    Arguments call = with_memory(pass.call, memory_->status.data());
    if (pass.keeps_rows_weights) call.kept = kept_weights_.room(pass.unit->kv_block);
    switch (pass.schedule) {
      case Schedule::keeps_weights:
        return keep_tasks(pass, call);
      case Schedule::split_kv:
      case Schedule::shared_spans:
        return run_spans(pass, call);
      case Schedule::whole_tasks:
        in_parallel({"forward", pass.items.size() - 1}, *pass.unit, call, pass.tiling,
                    [&](std::size_t item, void* memory, int) {
                      for (std::size_t t = pass.items[item]; t < pass.items[item + 1]; ++t)
                        pass.unit->forward(call, pass.tiling, pass.tasks[t], memory);
                    });
    }
  }

  void run_spans(const ForwardPass& pass, const Arguments& call) {
    const std::vector<PlannedSpan>& spans = pass.spans;
    const std::vector<std::size_t>&first = pass.first_span, &items = pass.span_items;
    memory_->states.reserve(spans.size() * pass.tiling.state_bytes);
    const auto state = [&](std::size_t span) {
      return static_cast<std::byte*>(memory_->states.data()) + span * pass.tiling.state_bytes;
    };
    std::size_t most = 1;
    for (std::size_t i = 0; i + 1 < items.size(); ++i) most = std::max(most, items[i + 1] - items[i]);
    Tiling together = pass.tiling;
    together.bytes *= most;
    in_parallel({"forward", items.size() - 1}, *pass.unit, call, together,
                [&](std::size_t i, void* memory, int) {
                  const std::size_t begin = items[i], count = items[i + 1] - begin;
                  std::array<cpu::SpanTask, cpu::kTasksTogether> of_item;
                  for (std::size_t k = 0; k < count; ++k) {
                    const std::size_t span = pass.span_order[begin + k];
                    of_item[k] = {&pass.tasks[spans[span].task], state(span)};
                  }
                  pass.unit->attend_span(call, pass.tiling, of_item.data(), static_cast<std::int64_t>(count),
                                         spans[pass.span_order[begin]].span, memory);
                });
    in_parallel(
        {{}, pass.tasks.size()}, *pass.unit, call, pass.tiling, [&](std::size_t t, void* memory, int) {
          pass.unit->merge_spans(call, pass.tiling, pass.tasks[t],
                                 static_cast<std::int64_t>(first[t + 1] - first[t]), state(first[t]), memory);
        });
  }

  void keep_tasks(const ForwardPass& pass, const Arguments& call) {
    ReceivedPass received(p_, call, pass, plan_.threads, memory_->task_weights);
    in_parallel(
        {"forward", pass.tasks.size()}, *pass.unit, call, pass.tiling,
        [&](std::size_t t, void* memory, int worker) { received.attend(pass.tasks[t], memory, worker); });
    received.finish();
  }

  void write_kept_weights() {
    if (!p_.weights && !p_.received && !p_.received_last) return;
    fill_outside(p_.weights, 0.0f);
    for (const ForwardPass& pass : plan_.forward())
      if (pass.keeps_rows_weights) kept_weights_.finish(pass.segments, sums(), plan_.threads);
  }

  void run_weights(const WeightsPass& pass,
                   void (*kernel)(const Arguments&, const Tiling&, const cpu::WeightsTask&, void*),
                   RowStatus* status) {
    const Arguments call = with_memory(pass.call, status);
    in_parallel({"weights pass", pass.tasks.size()}, *pass.unit, call, pass.tiling,
                [&](std::size_t t, void* memory, int) { kernel(call, pass.tiling, pass.tasks[t], memory); });
  }

  void masked_mass() {
    ForwardRun without(plan_.unmasked->problem, plan_.unmasked->plan);
    const std::vector<RowStatus> left = write_masked_mass(p_, sums(), without.row_sums());
    if (left.empty()) return;
    Problem only = p_;
    static_cast<ResultSet<Output>&>(only) = {};
    only.top_k = 0;
    only.masked_mass = p_.masked_mass;
    (void)recompute_rows(only, left, {});
  }

  void fill(const Output& t, std::int64_t rows, std::int64_t columns, float value) const {
    if (!t) return;
    for (std::int64_t b = 0; b < p_.batch; ++b)
      for (std::int64_t h = 0; h < p_.heads; ++h)
        for (std::int64_t i = 0; i < rows; ++i)
          for (std::int64_t c = 0; c < columns; ++c) f32_row(t, b, h, i)[c * t.stride[3]] = value;
  }

  // Fills the elements of a [B, H, Lq, Lk] result that lie outside of a row's segment.
  void fill_outside(const Output& t, float value) const {
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
  const ExecutionPlan& plan_;
  Recycled<CallMemory> memory_;
  std::vector<float> sums_;  // shifts and inverse sums of the rows, [2][B, H, Lq]
  KeptRowWeights kept_weights_;
  int threads_used_ = 1;
  double progress_ = 0, progress_share_ = 1;  // progress before the current pass, and its share
};

}  // namespace

KernelRun run_fused(const Problem& problem, const ExecutionPlan& plan) {
  if (problem.batch * problem.heads == 0) return {};
  return ForwardRun(problem, plan).results();
}

}  // namespace heed::detail
