// The ranks of heed-mpi: from MPI_Init to the exit code.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "distributed/mpi/communicator.hpp"
#include "failure.hpp"

namespace heed::cli {

/// The MPI session of a process. Only rank 0 prints; the other ranks' standard output is discarded.
class Session {
 public:
  Session(int& argc, char**& argv);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] const distributed::Communicator& comm() const { return *comm_; }
  [[nodiscard]] int ranks_on_machine() const { return ranks_on_machine_; }
  /// Threads per rank by default: this rank's share of its machine's processors.
  [[nodiscard]] int default_threads() const;

  /// Broadcasts rank 0's text to every rank.
  [[nodiscard]] std::string shared(std::string text) const;

  /// Ends MPI and returns the exit code. If all ranks fail, rank 0 prints the reason. A rank that fails alone
  /// prints its own reason and aborts the others.
  [[nodiscard]] int end(const std::optional<Failure>& failure);

 private:
  [[nodiscard]] bool all_fail() const;

  std::optional<distributed::Communicator> comm_;
  int ranks_on_machine_ = 1;
};

/// Runs `work` on all ranks. If it throws on one rank, it throws on all.
void together(const Session& session, const std::function<void()>& work);

/// Lists temporary files of rank 0, so that a signal to any rank (mpirun sends SIGTERM) removes them. An
/// empty list clears the last one.
void hold_temporaries(const std::vector<std::string>& paths);

}  // namespace heed::cli
