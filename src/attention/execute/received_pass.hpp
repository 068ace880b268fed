// A forward pass whose tasks keep their weights until the sums of their rows are known. `received` then takes
// no second pass.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "attention/execute/memory.hpp"
#include "attention/execute/received_sums.hpp"
#include "attention/kernels/shared/arguments.hpp"
#include "attention/problem/problem.hpp"

namespace heed::detail {

class ReceivedPass {
 public:
  /// Whether this pass takes the call. It decides by shape and results alone, so a head has the same bits
  /// with and without other heads.
  [[nodiscard]] static bool takes(const Problem& problem, const cpu::Arguments& call);

  /// `memory` holds the weights of each thread's last task.
  ReceivedPass(const Problem& problem, const cpu::Arguments& call, const cpu::Kernels& kernels,
               const cpu::Tiling& tiling, int threads, Workspace& memory);

  /// Runs a task on thread number `worker`. The rows of a head may come in any order.
  void attend(const cpu::Task& task, void* workspace, int worker);
  /// Writes what the keys receive, once all tasks of the call are done.
  void finish();

 private:
  void add(KeepingThread& done);

  const Problem& p_;
  const cpu::Arguments& call_;
  const cpu::Kernels& kernels_;
  const cpu::Tiling& tiling_;
  std::deque<ReceivedSums> received_;  // [B, H]
  std::vector<KeepingThread> threads_;
};

}  // namespace heed::detail
