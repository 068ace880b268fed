// The ranks of heed-mpi: from MPI_Init to the exit code.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "distributed/mpi/communicator.hpp"
#include "failure.hpp"

namespace heed::cli {

/// One a process. Rank 0 alone prints: the standard output of the others leads nowhere.
class Session {
 public:
  Session(int& argc, char**& argv);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] const distributed::Communicator& comm() const { return *comm_; }
  [[nodiscard]] int ranks_on_machine() const { return ranks_on_machine_; }
  /// What a rank takes of its machine's processors where nobody says how many.
  [[nodiscard]] int default_threads() const;

  /// Rank 0's text, on every rank.
  [[nodiscard]] std::string shared(std::string text) const;

  /// Ends MPI, and returns the exit code. Where all ranks fail, rank 0 says why. A rank that fails while the
  /// others go on says so itself and ends them.
  [[nodiscard]] int end(const std::optional<Failure>& failure);

 private:
  [[nodiscard]] bool all_fail() const;

  std::optional<distributed::Communicator> comm_;
  int ranks_on_machine_ = 1;
};

/// Runs `work` on all ranks: where it throws on one, it does on all.
void together(const Session& session, const std::function<void()>& work);

}  // namespace heed::cli
