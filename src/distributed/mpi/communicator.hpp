// A private copy of the caller's communicator, which separates a call's messages from others.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <span>

namespace heed::distributed {

/// Throws Error (internal) unless the code is MPI_SUCCESS.
void check(int code, const char* function);

class Communicator {
 public:
  /// Throws Error (invalid_argument) unless MPI is initialised and not finalised.
  explicit Communicator(MPI_Comm comm);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] MPI_Comm get() const { return comm_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] int largest_tag() const { return largest_tag_; }

  void take_largest(std::span<std::int64_t> numbers) const;
  /// Replaces each number by its sum over all ranks.
  void add_up(std::span<std::int64_t> numbers) const;

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1, largest_tag_ = 32767;
};

}  // namespace heed::distributed
