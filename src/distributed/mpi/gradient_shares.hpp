// The gradients of one unit whose keys ranks share. Each rank computes its tasks
// (heed/attention/backward_share.hpp), some at a time. Gradients of keys travel to the ranks of the keys.
// Parts of rows' gradients travel to the ranks of the rows, which add them in the order of tasks, during the
// computation of the next ones.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "distributed/mpi/backward_call.hpp"
#include "distributed/mpi/messages.hpp"
#include "distributed/mpi/schemes.hpp"
#include "distributed/mpi/travel.hpp"
#include "heed/attention/backward_share.hpp"

namespace heed::distributed {

/// A task of a unit, and the rank that computes it.
struct PlacedTask {
  GradientTask task;
  int rank = 0;
};

struct SharedUnit {
  Unit unit;
  CallPart part;                         ///< with all its rows
  const std::vector<PlacedTask>& tasks;  ///< in the order of gradient_tasks()
  std::int64_t first_slot;               ///< the first tag slot; each task has one
};

class GradientShares {
 public:
  GradientShares(const Communicator& comm, const BackwardCall& call, const SharedUnit& unit);

  /// Computes this rank's tasks, in their order. `inputs` have the rows of all ranks.
  void compute(const AttentionBackwardInputs& inputs, const AttentionOptions& options, Work& work);
  /// Waits until all gradients have arrived.
  void finish(Work& work);
  [[nodiscard]] bool out_of_range() const { return out_of_range_; }

 private:
  // Tasks that are computed together, and their messages.
  struct Group {
    explicit Group(const Communicator& comm) : messages(comm) {}
    std::vector<std::int64_t> tasks;
    std::vector<TensorView> parts;  // for each task: [rows, columns]
    Tensor memory;                  // memory of the parts
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
  Tensor key_, value_;  // gradients from this rank's tasks: [1, 1, Lk, columns]
  std::deque<Group> groups_;
  Messages keys_;
  std::int64_t next_ = 0;  // the next task whose part is added
  bool asked_ = false;     // its part has been requested
  Tensor part_, sum_;      // [rows of this rank, columns]
  Messages part_message_;
  bool out_of_range_ = false;
};

}  // namespace heed::distributed
