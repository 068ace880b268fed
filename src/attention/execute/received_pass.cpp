#include "attention/execute/received_pass.hpp"

#include <algorithm>
#include <utility>

#include "attention/plan/tasks.hpp"
#include "attention/problem/elements.hpp"

namespace heed::detail {
namespace {

std::int64_t whole_blocks(std::int64_t keys, std::int64_t block) {
  return (keys + block - 1) / block * block;
}

}  // namespace

ReceivedPass::ReceivedPass(const Problem& problem, const cpu::Arguments& call, const ForwardPass& pass,
                           int threads, AlignedMemory& memory)
    : p_(problem), call_(call), pass_(pass) {
  const std::int64_t block = pass.unit->kv_block, keys = whole_blocks(p_.key_length, block);
  for (const Segment& s : p_.segments)
    for (std::int64_t h = 0; h < p_.heads; ++h) received_.emplace_back(s.query_begin, keys);
  const std::int64_t floats = KeepingThread::floats(pass.tiling.rows, keys, block);
  const auto count = std::min<std::int64_t>(threads, std::ssize(pass.tasks));
  memory.reserve(static_cast<std::size_t>(count * floats) * sizeof(float));
  for (std::int64_t t = 0; t < count; ++t)
    threads_.emplace_back(pass.tiling.rows, keys, block, static_cast<float*>(memory.data()) + t * floats);
}

void ReceivedPass::attend(const cpu::Task& task, void* workspace, int worker) {
  KeepingThread& mine = threads_[static_cast<std::size_t>(worker)];
  const KeyRange seen = seen_keys(p_, task);
  SumsOfTask sums(seen.begin / pass_.unit->kv_block * pass_.unit->kv_block,
                  whole_blocks(seen.end, pass_.unit->kv_block));
  pass_.unit->forward_received(call_, pass_.tiling, task, workspace, mine.kept, sums.target());
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
    pass_.unit->finish_received(call_, last.kept);
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
