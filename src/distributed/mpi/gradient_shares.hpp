// One unit's gradients, whose keys ranks share: each computes its tasks (heed/backward_share.hpp), some at a
// time. Gradients of keys go to where the keys are. Parts of rows' gradients go to where the rows are, which
// adds them in the order of tasks, beside the computation of the next.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "distributed/mpi/backward_call.hpp"
#include "distributed/mpi/messages.hpp"
#include "distributed/mpi/schemes.hpp"
#include "distributed/mpi/travel.hpp"
#include "heed/backward_share.hpp"

namespace heed::distributed {

/// A task of a unit, and the rank that computes it.
struct PlacedTask {
  GradientTask task;
  int rank = 0;
};

/// The unit that is under way.
struct SharedUnit {
  Unit unit;
  CallPart part;                         ///< all its rows
  const std::vector<PlacedTask>& tasks;  ///< in the order of gradient_tasks()
  std::int64_t first_slot;               ///< of tags: each task has one
};

class GradientShares {
 public:
  GradientShares(const Communicator& comm, const BackwardCall& call, const SharedUnit& unit);

  /// This rank's tasks, in their order. `inputs` have the rows of all ranks.
  void compute(const AttentionBackwardInputs& inputs, const AttentionOptions& options, Work& work);
  /// Until all gradients are where they belong.
  void finish(Work& work);
  [[nodiscard]] bool out_of_range() const { return out_of_range_; }

 private:
  // Some tasks that were computed together, and their messages.
  struct Group {
    explicit Group(const Communicator& comm) : messages(comm) {}
    std::vector<std::int64_t> tasks;
    std::vector<TensorView> parts;  // of each task: [rows, columns]
    Tensor memory;                  // of the parts
    Messages messages;
  };

  [[nodiscard]] std::int64_t columns() const;
  [[nodiscard]] bool wants_rows() const { return call_.grad_query.data() != nullptr; }
  [[nodiscard]] std::int64_t slot_of(std::int64_t task) const { return unit_.first_slot + task; }
  [[nodiscard]] const PlacedTask& placed(std::int64_t task) const;
  void receive_keys();
  void compute_group(Group& group, const AttentionBackwardInputs& inputs, const AttentionOptions& options,
                     Work& work);
  void send_group(Group& group);
  void send_keys(Group& group, std::int64_t task, const Tensor& from, const MutableTensorView& own,
                 std::size_t index);
  void release(std::size_t most, Work& work);
  void add_parts();
  [[nodiscard]] bool take_part(std::int64_t task, const PositionRange& rows);
  void add(std::int64_t task, const PositionRange& rows);

  const Communicator& comm_;
  const BackwardCall& call_;
  const Call& forward_;
  const SharedUnit& unit_;
  Tensor key_, value_;  // gradients of this rank's tasks: [1, 1, Lk, columns]
  std::deque<Group> groups_;
  Messages keys_;
  std::int64_t next_ = 0;  // the task whose part is added next
  bool asked_ = false;     // for it
  Tensor part_, sum_;      // [rows of this rank, columns]
  Messages part_message_;
  bool out_of_range_ = false;
};

}  // namespace heed::distributed
