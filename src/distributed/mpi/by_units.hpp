// Computation by units. Each unit belongs to one rank, which gets all its rows and keys, computes the whole
// unit, and returns the results to the ranks of the rows and keys. The next unit's rows arrive during this
// unit's computation.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "distributed/mpi/call.hpp"
#include "distributed/mpi/messages.hpp"
#include "distributed/mpi/schemes.hpp"
#include "distributed/mpi/travel.hpp"

namespace heed::distributed {

/// A result [B, each * Hkv, rows of this rank, columns].
struct UnitResult {
  MutableTensorView own;
  std::int64_t each;
  const Sharding* sharding;  ///< of its rows; nullptr: every rank gets all rows
  bool goes_home = true;     ///< false: it is computed and discarded
};

class ByUnits {
 public:
  /// Computes a unit from its inputs into tensors [each, L, columns], one per result.
  using Compute = std::function<AttentionRun(const Unit&, const UnitTensors&, std::vector<Tensor>& results)>;

  ByUnits(const Communicator& comm, const Call& call, std::vector<Shard> inputs,
          std::vector<UnitResult> results);
  Work run(const Compute& compute);

 private:
  // The results of a unit and the messages that return them.
  struct Done {
    explicit Done(const Communicator& comm) : messages(comm) {}
    std::vector<Tensor> results;
    Messages messages;
  };

  [[nodiscard]] int rank_of(std::int64_t unit) const;
  [[nodiscard]] std::int64_t next_own(std::int64_t unit) const;
  [[nodiscard]] std::unique_ptr<UnitTensors> begin(std::int64_t unit) const;
  [[nodiscard]] std::vector<PositionRange> rows_for(int rank, const UnitResult& result) const;
  [[nodiscard]] std::vector<Tensor> memory_for_unit() const;
  void receive_results(std::int64_t unit);
  void send_home(std::int64_t unit, Done& done);
  void finish(Done& done);

  const Communicator& comm_;
  const Call& call_;
  const std::vector<Shard> inputs_;
  const std::vector<UnitResult> results_;
  Messages sends_, receives_;
  std::deque<Done> done_;
  Work work_;
};

}  // namespace heed::distributed
