// The fused kernel over keys that arrive in ranges. The states of all rows are kept. A range's share is
// computed span by span, each from an empty state, and merged in order. So a call that has all keys gives the
// same bits.
#include <algorithm>
#include <cstring>

#include "attention/execute/key_stream.hpp"
#include "attention/execute/memory.hpp"
#include "attention/execute/path_record.hpp"
#include "attention/plan/tasks.hpp"
#include "core/index.hpp"
#include "heed/parallel.hpp"

namespace heed::detail {
namespace {

using cpu::Arguments;
using cpu::RowStatus;
using cpu::SpanTask;
using cpu::Task;

// A planned pass, and the states of its rows.
struct Pass {
  const ForwardPass& plan;
  Arguments call;  // with the memory of this run
  AlignedMemory states;

  [[nodiscard]] std::byte* state(std::size_t task) const {
    return static_cast<std::byte*>(states.data()) + task * plan.tiling.state_bytes;
  }
};

// The tasks of a pass that may see a range, and the spans of each in it, task by task.
struct SpansOfRange {
  struct Item {
    std::size_t task;
    std::int64_t span;
  };
  std::vector<Item> spans;
  std::vector<std::size_t> first;  // index of each task's first span, and the end
  [[nodiscard]] std::size_t tasks() const { return first.size() - 1; }
};

class FusedStream final : public KeyStream {
 public:
  FusedStream(const Problem& problem, const ExecutionPlan& plan)
      : p_(problem), plan_(plan), memory_(static_cast<std::size_t>(problem.threads)) {
    if (p_.batch * p_.heads == 0) return;
    status_.assign(index(p_.batch * p_.heads * p_.query_length), RowStatus::done);
    for (const ForwardPass& pass : plan_.forward()) add_pass(pass);
  }

  // If there are few tasks, threads share their spans.
  void attend(const ArrivedKeys& arrived) override {
    for (Pass& pass : passes_) {
      const SpansOfRange range = spans_of_range(pass, arrived.keys);
      if (range.spans.empty()) continue;
      const std::size_t bytes = range.spans.size() * pass.plan.tiling.state_bytes;
      const bool lacks_tasks =
          plan_.threads > 1 && static_cast<std::int64_t>(range.tasks()) < kItemsPerThread * plan_.threads;
      if (lacks_tasks && range.tasks() < range.spans.size() && bytes <= kStateBytes) {
        std::vector<std::byte> states(bytes);
        compute_spans(pass, range, arrived, states.data());
        merge_spans(pass, range, states.data());
      } else {
        attend_tasks(pass, range, arrived);
      }
    }
  }

  void states(const ArrivedKeys& arrived, std::byte* bytes) override {
    for (const Pass& pass : passes_) {
      const SpansOfRange range = spans_of_range(pass, arrived.keys);
      compute_spans(pass, range, arrived, bytes);
      bytes += range.spans.size() * pass.plan.tiling.state_bytes;
    }
  }

  void merge(const KeyRange& keys, const std::byte* bytes) override {
    for (const Pass& pass : passes_) {
      const SpansOfRange range = spans_of_range(pass, keys);
      merge_spans(pass, range, bytes);
      bytes += range.spans.size() * pass.plan.tiling.state_bytes;
    }
  }

  [[nodiscard]] std::size_t state_bytes(const KeyRange& keys) const override {
    std::size_t bytes = 0;
    for (const Pass& pass : passes_)
      bytes += spans_of_range(pass, keys).spans.size() * pass.plan.tiling.state_bytes;
    return bytes;
  }

  KernelRun finish(std::vector<RowStatus>& status) override {
    for (const Pass& pass : passes_)
      in_parallel(pass, pass.call, pass.plan.tasks.size(), [&](std::size_t t, void* memory, std::byte*) {
        pass.plan.unit->finish_states(pass.call, pass.plan.tiling, pass.plan.tasks[t], pass.state(t), memory);
      });
    status = status_;
    return {threads_used_, 0};
  }

  [[nodiscard]] std::size_t bytes() const override {
    std::size_t bytes = 0;
    for (const Pass& pass : passes_) bytes += pass.plan.tasks.size() * pass.plan.tiling.state_bytes;
    return bytes;
  }

 private:
  // A thread's working memory, and the run that last prepared it.
  struct ThreadMemory {
    AlignedMemory workspace;
    std::uint64_t owner = 0;
  };

  void add_pass(const ForwardPass& planned) {
    Pass pass{planned, planned.call, {}};
    pass.call.row_status = status_.data();
    pass.call.paths = path_counts();
    pass.states.reserve(planned.tasks.size() * planned.tiling.state_bytes);
    for (std::size_t t = 0; t < planned.tasks.size(); ++t)
      planned.unit->clear_states(pass.call, planned.tiling, planned.tasks[t], pass.state(t));
    passes_.push_back(std::move(pass));
  }

  // A range begins and ends at span borders, or beyond a task's keys.
  SpansOfRange spans_of_range(const Pass& pass, const KeyRange& keys) const {
    SpansOfRange range;
    const auto span_at = [](std::int64_t key) {
      return (std::max<std::int64_t>(0, key) + cpu::kSpan - 1) / cpu::kSpan;
    };
    for (std::size_t t = 0; t < pass.plan.tasks.size(); ++t) {
      const Task& task = pass.plan.tasks[t];
      const KeyRange seen = spans_of(p_, task);
      const std::int64_t first = std::max(span_at(keys.begin - task.key_begin), seen.begin);
      const std::int64_t end = std::min(span_at(keys.end - task.key_begin), seen.end);
      const std::size_t before = range.spans.size();
      for (std::int64_t span = first; span < end; ++span) range.spans.push_back({t, span});
      if (range.spans.size() > before) range.first.push_back(before);
    }
    range.first.push_back(range.spans.size());
    return range;
  }

  static Arguments with_keys(const Pass& pass, const ArrivedKeys& arrived) {
    Arguments call = pass.call;
    const auto point = [](Operand& to, const TensorView& from) {
      to.data = from.data();
      std::ranges::copy(from.strides(), to.stride);
    };
    point(call.key, arrived.key);
    point(call.value, arrived.value);
    return call;
  }

  static Task task_over(const Pass& pass, std::size_t task, const ArrivedKeys& arrived) {
    Task one = pass.plan.tasks[task];
    one.first_key = arrived.keys.begin;
    return one;
  }

  // Calls item(i, working memory, memory for the states of a task).
  template <class Item>
  void in_parallel(const Pass& pass, const Arguments& call, std::size_t count, Item item) {
    if (count == 0) return;
    const std::uint64_t run = ++runs_;
    const std::size_t own = pass.plan.tiling.bytes;
    const int threads = static_cast<int>(std::min(static_cast<std::size_t>(plan_.threads), count));
    threads_used_ = std::max(threads_used_, threads);
    parallel_for(static_cast<std::int64_t>(count), threads, [&](std::int64_t i, int worker) {
      ThreadMemory& mine = memory_[static_cast<std::size_t>(worker)];
      const bool moved = mine.workspace.reserve(own + pass.plan.tiling.state_bytes);
      auto* memory = static_cast<std::byte*>(mine.workspace.data());
      if (moved || mine.owner != run) {
        pass.plan.unit->reset(call, pass.plan.tiling, memory);
        mine.owner = run;
      }
      item(index(i), memory, memory + own);
    });
  }

  // Runs the tasks in parallel; each merges its spans in order.
  void attend_tasks(const Pass& pass, const SpansOfRange& range, const ArrivedKeys& arrived) {
    const Arguments call = with_keys(pass, arrived);
    in_parallel(pass, call, range.tasks(), [&](std::size_t i, void* memory, std::byte* room) {
      const std::size_t t = range.spans[range.first[i]].task;
      const Task task = task_over(pass, t, arrived);
      const SpanTask of_span{&task, room};
      for (std::size_t n = range.first[i]; n < range.first[i + 1]; ++n) {
        pass.plan.unit->attend_span(call, pass.plan.tiling, &of_span, 1, range.spans[n].span, memory);
        pass.plan.unit->merge_states(call, pass.plan.tiling, task, room, pass.state(t), memory);
      }
    });
  }

  // Computes the states of each span: states [spans][state_bytes], with no alignment. Unused bytes are 0, so
  // that bytes sent to another process reveal none of this process's memory.
  void compute_spans(const Pass& pass, const SpansOfRange& range, const ArrivedKeys& arrived,
                     std::byte* states) {
    const Arguments call = with_keys(pass, arrived);
    in_parallel(pass, call, range.spans.size(), [&](std::size_t i, void* memory, std::byte* room) {
      const Task task = task_over(pass, range.spans[i].task, arrived);
      const SpanTask of_span{&task, room};
      std::memset(room, 0, pass.plan.tiling.state_bytes);
      pass.plan.unit->attend_span(call, pass.plan.tiling, &of_span, 1, range.spans[i].span, memory);
      std::memcpy(states + i * pass.plan.tiling.state_bytes, room, pass.plan.tiling.state_bytes);
    });
  }

  void merge_spans(const Pass& pass, const SpansOfRange& range, const std::byte* states) {
    const std::size_t bytes = pass.plan.tiling.state_bytes;
    in_parallel(pass, pass.call, range.tasks(), [&](std::size_t i, void* memory, std::byte* room) {
      const std::size_t t = range.spans[range.first[i]].task;
      for (std::size_t n = range.first[i]; n < range.first[i + 1]; ++n) {
        std::memcpy(room, states + n * bytes, bytes);
        pass.plan.unit->merge_states(pass.call, pass.plan.tiling, pass.plan.tasks[t], room, pass.state(t),
                                     memory);
      }
    });
  }

  const Problem& p_;
  const ExecutionPlan& plan_;
  std::vector<Pass> passes_;
  std::vector<RowStatus> status_;  // [B, H, Lq]
  std::vector<ThreadMemory> memory_;
  std::uint64_t runs_ = 0;
  int threads_used_ = 1;
};

}  // namespace

std::unique_ptr<KeyStream> fused_stream(const Problem& problem, const ExecutionPlan& plan) {
  return std::make_unique<FusedStream>(problem, plan);
}

}  // namespace heed::detail
