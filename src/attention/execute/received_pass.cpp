#include "attention/execute/received_pass.hpp"

#include <utility>

#include "attention/execute/tasks.hpp"
#include "attention/isa/dispatch.hpp"
#include "attention/problem/elements.hpp"

namespace heed::detail {
namespace {

// Least rows per head for tasks that keep their weights of several spans, because threads cannot share those.
constexpr std::int64_t kLeastKeepingRows = 3072;

std::int64_t whole_blocks(std::int64_t keys, std::int64_t block) {
  return (keys + block - 1) / block * block;
}

}  // namespace

bool ReceivedPass::takes(const Problem& problem, const cpu::Arguments& call) {
  if (!problem.received || problem.received_last || problem.weights || is_packed(problem)) return false;
  cpu::Arguments keeping = call;
  keeping.keeps_task_weights = true;
  if (!cpu::kernels().forward(keeping).takes_received(keeping)) return false;
  return problem.key_length <= cpu::kSpan || call.most_rows >= kLeastKeepingRows;
}

ReceivedPass::ReceivedPass(const Problem& problem, const cpu::Arguments& call, const cpu::Kernels& kernels,
                           const cpu::Tiling& tiling, int threads, Workspace& memory)
    : p_(problem), call_(call), kernels_(kernels), tiling_(tiling) {
  const std::int64_t keys = whole_blocks(p_.key_length, kernels.kv_block);
  for (const Segment& s : p_.segments)
    for (std::int64_t h = 0; h < p_.heads; ++h) received_.emplace_back(s.query_begin, keys);
  const std::int64_t floats = KeepingThread::floats(tiling.rows, keys, kernels.kv_block);
  memory.reserve(static_cast<std::size_t>(threads * floats) * sizeof(float));
  for (int t = 0; t < threads; ++t)
    threads_.emplace_back(tiling.rows, keys, kernels.kv_block,
                          static_cast<float*>(memory.data()) + t * floats);
}

void ReceivedPass::attend(const cpu::Task& task, void* workspace, int worker) {
  KeepingThread& mine = threads_[static_cast<std::size_t>(worker)];
  const KeyRange seen = seen_keys(p_, task);
  SumsOfTask sums(seen.begin / kernels_.kv_block * kernels_.kv_block,
                  whole_blocks(seen.end, kernels_.kv_block));
  kernels_.forward_received(call_, tiling_, task, workspace, mine.kept, sums.target());
  add(mine);  // adds the previous task, whose weights are now summed
  mine.task = &task;
  mine.sums = std::move(sums);
}

void ReceivedPass::add(KeepingThread& done) {
  if (done.task == nullptr) return;
  const std::int64_t head = done.task->batch * p_.heads + done.task->head_begin;
  received_[static_cast<std::size_t>(head)].add(*done.task, std::move(done.sums));
}

void ReceivedPass::finish() {
  for (KeepingThread& last : threads_) {
    kernels_.finish_received(call_, last.kept);
    add(last);
  }
  for (const Segment& s : p_.segments)
    for (std::int64_t h = 0; h < p_.heads; ++h) {
      const std::vector<float>& sums = received_[static_cast<std::size_t>(s.batch * p_.heads + h)].sums();
      float* to = f32_row(p_.received, s.batch, h, s.key_begin);
      for (std::int64_t k = 0; k < s.key_end - s.key_begin; ++k)
        to[k * p_.received.stride[2]] = sums[static_cast<std::size_t>(k)];
    }
}

}  // namespace heed::detail
