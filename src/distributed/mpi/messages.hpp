// Messages in flight together. They progress in test() and wait() of any of these, and in other MPI calls.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <span>
#include <vector>

#include "distributed/mpi/communicator.hpp"
#include "heed/attention/sharding.hpp"
#include "heed/tensor.hpp"

namespace heed::distributed {

class Messages {
 public:
  explicit Messages(const Communicator& comm) : comm_(comm) {}
  /// Cancels messages still in flight, also after an exception.
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  /// Sends or receives rows of a view [..., rows, columns] in place; they must not change until wait(). The
  /// receiver states ranges of the same lengths. Tags are taken modulo MPI's limit. Nothing is sent without
  /// elements, or to the rank itself.
  void send(const TensorView& from, std::span<const PositionRange> rows, int to, std::int64_t tag);
  void receive(const MutableTensorView& into, std::span<const PositionRange> rows, int from,
               std::int64_t tag);
  /// The same for bytes.
  void send(std::span<const std::byte> bytes, int to, std::int64_t tag);
  void receive(std::span<std::byte> bytes, int from, std::int64_t tag);

  /// Whether all messages are complete.
  bool test();
  void wait();
  [[nodiscard]] std::int64_t bytes_sent() const { return bytes_sent_; }

 private:
  [[nodiscard]] int tag_of(std::int64_t tag) const;
  MPI_Request* next();

  const Communicator& comm_;
  std::vector<MPI_Request> requests_;
  std::int64_t bytes_sent_ = 0;
};

}  // namespace heed::distributed
