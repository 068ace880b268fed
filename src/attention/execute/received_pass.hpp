// A forward pass whose tasks keep their weights until the sums of their rows are known. `received` then takes
// no second pass.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "attention/execute/memory.hpp"
#include "attention/kernels/shared/arguments.hpp"
#include "attention/plan/execution_plan.hpp"
#include "attention/problem/problem.hpp"

namespace heed::detail {

/// The sums of one task's weights, for each key from `first_key` on.
struct SumsOfTask {
  std::int64_t first_key = 0;
  std::vector<float> sums;

  SumsOfTask() = default;
  SumsOfTask(std::int64_t begin, std::int64_t end)
      : first_key(begin), sums(static_cast<std::size_t>(std::max<std::int64_t>(0, end - begin))) {}
  [[nodiscard]] cpu::TaskSums target() { return {sums.data(), first_key}; }
};

/// A thread, and the last task it ran, whose weights it still keeps.
struct KeepingThread {
  cpu::KeptTask kept;
  const cpu::Task* task = nullptr;
  SumsOfTask sums;

  /// Floats of memory that a thread needs, for `rows` rows per task and `keys` keys in whole KV blocks.
  static std::int64_t floats(std::int64_t rows, std::int64_t keys, std::int64_t kv_block) {
    return rows * (keys + keys / kv_block + 2);
  }
  KeepingThread(std::int64_t rows, std::int64_t keys, std::int64_t kv_block, float* memory) : kept{} {
    kept.row_count = rows;
    kept.weights = memory;
    kept.shifts = kept.weights + rows * keys;
    kept.last_shift = kept.shifts + rows * (keys / kv_block);
    kept.inverse = kept.last_shift + rows;
  }
};

class ReceivedSums {
 public:
  ReceivedSums(std::int64_t first_row, std::int64_t keys)
      : next_row_(first_row), sum_(static_cast<std::size_t>(keys)), lost_(static_cast<std::size_t>(keys)) {}

  /// Adds a task's sums as soon as the sums of all earlier rows are added.
  void add(const cpu::Task& task, SumsOfTask sums) {
    const std::lock_guard lock(mutex_);
    waiting_.emplace(task.row_begin, Waiting{task.row_end, std::move(sums)});
    for (auto next = waiting_.find(next_row_); next != waiting_.end(); next = waiting_.find(next_row_)) {
      merge(next->second.sums);
      next_row_ = next->second.row_end;
      waiting_.erase(next);
    }
  }

  /// The final sums; valid once all tasks are added.
  [[nodiscard]] const std::vector<float>& sums() const { return sum_; }

 private:
  struct Waiting {
    std::int64_t row_end;
    SumsOfTask sums;
  };

  // Kahan's compensation keeps the error of many small terms independent of their number (Kahan 1965).
  void merge(const SumsOfTask& task) {
    float* sum = sum_.data() + task.first_key;
    float* lost = lost_.data() + task.first_key;
    for (std::size_t k = 0; k < task.sums.size(); ++k) {
      const float term = task.sums[k] - lost[k];
      const float next = sum[k] + term;
      lost[k] = (next - sum[k]) - term;
      sum[k] = next;
    }
  }

  std::mutex mutex_;
  std::int64_t next_row_;
  std::vector<float> sum_, lost_;
  std::map<std::int64_t, Waiting> waiting_;  // by first row
};

class ReceivedPass {
 public:
  /// `call` has the memory of the run, for at most `threads` threads. `memory` holds the weights of each
  /// thread's last task.
  ReceivedPass(const Problem& problem, const cpu::Arguments& call, const ForwardPass& pass, int threads,
               AlignedMemory& memory);

  /// Runs a task on thread number `worker`. The rows of a head may come in any order.
  void attend(const cpu::Task& task, void* workspace, int worker);
  /// Writes what the keys receive, once all tasks of the call are done.
  void finish();

 private:
  void add(KeepingThread& done);

  const Problem& p_;
  const cpu::Arguments& call_;
  const ForwardPass& pass_;
  std::deque<ReceivedSums> received_;  // [B, H]
  std::vector<KeepingThread> threads_;
};

}  // namespace heed::detail
