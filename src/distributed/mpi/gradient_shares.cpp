#include "distributed/mpi/gradient_shares.hpp"

#include <algorithm>

#include "heed/parallel.hpp"

namespace heed::distributed {
namespace {

// Numbers of tensors in message tags. They follow the numbers of a unit's inputs.
enum Sent : std::size_t { kSentKey = 8, kSentValue, kPart };

// The maximum number of task groups whose gradients are in flight.
constexpr std::size_t kGroupsSent = 2;

void add_to(const Tensor& part, Tensor& sum) {
  const std::span<const float> terms = part.values<float>();
  const std::span<float> sums = sum.values<float>();
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += terms[i];
}

}  // namespace

GradientShares::GradientShares(const Communicator& comm, const BackwardCall& call, const SharedUnit& unit)
    : comm_(comm), call_(call), forward_(call.forward), unit_(unit), keys_(comm), part_message_(comm) {
  receive_keys();
}

std::int64_t GradientShares::columns() const { return forward_.group() * forward_.query.size(3); }

const PlacedTask& GradientShares::placed(std::int64_t task) const {
  return unit_.tasks[static_cast<std::size_t>(task)];
}

// Posts the receives for the gradients of this rank's keys, in place.
void GradientShares::receive_keys() {
  const Sharding& sharding = forward_.layout.key;
  for (std::int64_t i = 0; i < std::ssize(unit_.tasks); ++i) {
    const auto& [task, from] = placed(i);
    const std::vector<PositionRange> keys = side_by_side(positions_in(sharding, comm_.rank(), task.keys),
                                                         rows_in(sharding, comm_.rank(), task.keys).begin);
    if (call_.grad_key.data() != nullptr)
      keys_.receive(heads_of(call_.grad_key, unit_.unit, 1), keys, from, tag_of(slot_of(i), kSentKey));
    if (call_.grad_value.data() != nullptr)
      keys_.receive(heads_of(call_.grad_value, unit_.unit, 1), keys, from, tag_of(slot_of(i), kSentValue));
  }
}

void GradientShares::compute(const AttentionBackwardInputs& inputs, const AttentionOptions& options,
                             Work& work) {
  const auto make = [&](const MutableTensorView& wanted) {
    return wanted.data() == nullptr
               ? Tensor()
               : Tensor::uninitialized({1, 1, forward_.layout.key.length(), wanted.size(3)}, wanted.dtype());
  };
  key_ = make(call_.grad_key);
  value_ = make(call_.grad_value);
  // Computes as many tasks at a time as there are threads.
  const auto together = static_cast<std::size_t>(options.threads > 0 ? options.threads : default_threads());
  std::vector<std::int64_t> own;
  for (std::int64_t i = 0; i < std::ssize(unit_.tasks); ++i)
    if (placed(i).rank == comm_.rank()) own.push_back(i);
  for (std::size_t at = 0; at < own.size(); at += together) {
    release(kGroupsSent - 1, work);
    Group& group = groups_.emplace_back(comm_);
    group.tasks.assign(own.begin() + static_cast<std::ptrdiff_t>(at),
                       own.begin() + static_cast<std::ptrdiff_t>(std::min(own.size(), at + together)));
    compute_group(group, inputs, options, work);
    send_group(group);
    add_parts();
  }
}

void GradientShares::compute_group(Group& group, const AttentionBackwardInputs& inputs,
                                   const AttentionOptions& options, Work& work) {
  GradientShareViews views;
  if (call_.grad_key.data() != nullptr) views.key = key_;
  if (call_.grad_value.data() != nullptr) views.value = value_;
  if (wants_rows()) {
    std::int64_t rows = 0;
    for (const std::int64_t i : group.tasks) rows += placed(i).task.rows.end - placed(i).task.rows.begin;
    group.memory = Tensor::uninitialized({rows, columns()}, DType::f32);
    views.query_parts = group.memory.values<float>();
    std::int64_t row = 0;
    for (const std::int64_t i : group.tasks) {
      const std::int64_t count = placed(i).task.rows.end - placed(i).task.rows.begin;
      group.parts.push_back(group.memory.view().narrow(0, row, count));
      row += count;
    }
  }
  const GradientShareRun run = attention_backward_share_into(inputs, options, unit_.part, group.tasks, views);
  work.add(AttentionRun{Kernel::fused, run.isa, run.threads, 0});
  out_of_range_ = out_of_range_ || run.out_of_range;
}

void GradientShares::send_group(Group& group) {
  for (std::size_t at = 0; at < group.tasks.size(); ++at) {
    const std::int64_t i = group.tasks[at];
    const GradientTask& task = placed(i).task;
    send_keys(group, i, key_, call_.grad_key, kSentKey);
    send_keys(group, i, value_, call_.grad_value, kSentValue);
    if (!wants_rows()) continue;
    for (int to = 0; to < comm_.size(); ++to)
      group.messages.send(group.parts[at],
                          moved(positions_in(forward_.layout.query, to, task.rows), task.rows.begin), to,
                          tag_of(slot_of(i), kPart));
  }
}

void GradientShares::send_keys(Group& group, std::int64_t i, const Tensor& from, const MutableTensorView& own,
                               std::size_t index) {
  if (own.data() == nullptr) return;
  const Sharding& sharding = forward_.layout.key;
  const PositionRange& keys = placed(i).task.keys;
  const TensorView rows = from.view().select(0, 0);
  for (int to = 0; to < comm_.size(); ++to) {
    const std::vector<PositionRange> theirs = positions_in(sharding, to, keys);
    group.messages.send(rows, theirs, to, tag_of(slot_of(i), index));
    if (to != comm_.rank() || theirs.empty()) continue;
    const PositionRange mine = rows_in(sharding, to, keys);
    collect_rows(rows, theirs, heads_of(own, unit_.unit, 1).narrow(1, mine.begin, mine.end - mine.begin));
  }
}

// Waits until at most `most` groups are in flight. It keeps adding parts meanwhile, which rules out a
// deadlock: the first task whose part is missing has been computed, or is the next one on its rank.
void GradientShares::release(std::size_t most, Work& work) {
  while (groups_.size() > most) {
    add_parts();
    Group& first = groups_.front();
    const bool is_added = !wants_rows() || first.tasks.back() < next_;
    if (!first.messages.test() || !is_added) continue;
    work.bytes_sent += first.messages.bytes_sent();
    groups_.pop_front();
  }
}

void GradientShares::finish(Work& work) {
  const auto count = std::ssize(unit_.tasks);
  while (wants_rows() && next_ < count) add_parts();
  release(0, work);
  keys_.wait();
}

// Adds the parts that have arrived, in the order of tasks.
void GradientShares::add_parts() {
  if (!wants_rows()) return;
  for (; next_ < std::ssize(unit_.tasks); ++next_) {
    const PositionRange rows = rows_in(forward_.layout.query, comm_.rank(), placed(next_).task.rows);
    if (rows.begin == rows.end) continue;
    if (!take_part(next_, rows)) return;
    add(next_, rows);
    asked_ = false;
  }
}

// Returns whether part_ holds a task's part for these rows of the rank.
bool GradientShares::take_part(std::int64_t i, const PositionRange& rows) {
  const auto& [task, from] = placed(i);
  const std::vector<PositionRange> positions = positions_in(forward_.layout.query, comm_.rank(), task.rows);
  const Dims shape{rows.end - rows.begin, columns()};
  if (part_.shape() != shape) part_ = Tensor::uninitialized(shape, DType::f32);
  if (from != comm_.rank()) {
    if (!asked_) part_message_.receive(part_, side_by_side(positions), from, tag_of(slot_of(i), kPart));
    asked_ = true;
    return part_message_.test();
  }
  for (const Group& group : groups_) {
    const auto at = std::ranges::find(group.tasks, i);
    if (at == group.tasks.end()) continue;
    collect_rows(group.parts[static_cast<std::size_t>(at - group.tasks.begin())],
                 moved(positions, task.rows.begin), part_);
    return true;
  }
  return false;
}

// A sum begins with the first part, as in the kernel (execute/query_parts.cpp).
void GradientShares::add(std::int64_t i, const PositionRange& rows) {
  const GradientTask& task = placed(i).task;
  if (task.split == 0)
    std::swap(sum_, part_);
  else
    add_to(part_, sum_);
  if (task.split + 1 < task.splits) return;
  const MutableTensorView own = heads_of(call_.grad_query, unit_.unit, forward_.group());
  add_gradient_parts(
      sum_.view().reshape({1, rows.end - rows.begin, forward_.group(), forward_.query.size(3)}),
      call_.grad_output.dtype(), forward_.options, unit_.part,
      own.narrow(1, rows.begin, rows.end - rows.begin));
}

}  // namespace heed::distributed
