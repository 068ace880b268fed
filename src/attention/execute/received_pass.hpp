// A forward pass whose tasks keep their weights until the sums of their rows are known. `received` then takes
// no second pass.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "attention/execute/memory.hpp"
#include "attention/execute/received_sums.hpp"
#include "attention/plan/execution_plan.hpp"
#include "attention/problem/problem.hpp"

namespace heed::detail {

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
