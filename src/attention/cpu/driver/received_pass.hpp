// The forward pass whose tasks keep their weights until the sums of their rows are known: what keys receive
// takes no second pass.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "attention/call/problem.hpp"
#include "attention/cpu/driver/memory.hpp"
#include "attention/cpu/driver/received_sums.hpp"
#include "attention/cpu/kernel/arguments.hpp"

namespace heed::detail {

class ReceivedPass {
 public:
  /// Whether a call goes this way: by its shape and results alone, so that a head has the bits that it has
  /// among others.
  [[nodiscard]] static bool takes(const Problem& problem, const cpu::Arguments& call);

  /// `memory` is where each of so many threads keeps the weights of its last task.
  ReceivedPass(const Problem& problem, const cpu::Arguments& call, const cpu::Kernels& kernels,
               const cpu::Tiling& tiling, int threads, Workspace& memory);

  /// A task, on thread number `worker`. Of each head rows come in any order.
  void attend(const cpu::Task& task, void* workspace, int worker);
  /// When all tasks of the call are done: writes what the keys receive.
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
