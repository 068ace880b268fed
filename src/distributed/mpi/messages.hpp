// Messages under way together. They move on in test() and wait() of any of these, and in other calls of MPI.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <span>
#include <vector>

#include "distributed/mpi/communicator.hpp"
#include "heed/sharding.hpp"
#include "heed/tensor.hpp"

namespace heed::distributed {

class Messages {
 public:
  explicit Messages(const Communicator& comm) : comm_(comm) {}
  /// Gives up those that are still under way: an exception is, too.
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  /// Rows of a view [..., rows, columns] where they lie; they stay as they are until wait(). The receiver
  /// names ranges of the same lengths. Tags are taken modulo what MPI has. Nothing is sent where there is no
  /// element, or to the rank itself.
  void send(const TensorView& from, std::span<const PositionRange> rows, int to, std::int64_t tag);
  void receive(const MutableTensorView& into, std::span<const PositionRange> rows, int from,
               std::int64_t tag);
  /// Bytes, likewise.
  void send(std::span<const std::byte> bytes, int to, std::int64_t tag);
  void receive(std::span<std::byte> bytes, int from, std::int64_t tag);

  /// Whether all have ended.
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
