#include "mpi/session.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <list>
#include <thread>

#include "command.hpp"
#include "distributed/mpi/agreement.hpp"
#include "heed/error.hpp"
#include "heed/parallel.hpp"
#include "io/file_descriptor.hpp"
#include "io/held_temporary.hpp"

namespace heed::cli {
namespace {

using distributed::check;

// Ranks that fail for the same reason do so within milliseconds.
constexpr std::chrono::seconds kPatience(3);

int count_on_machine() {
  MPI_Comm machine = MPI_COMM_NULL;
  check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine),
        "MPI_Comm_split_type");
  int size = 1;
  check(MPI_Comm_size(machine, &size), "MPI_Comm_size");
  check(MPI_Comm_free(&machine), "MPI_Comm_free");
  return size;
}

void silence_standard_output() {
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0 || dup2(nowhere, STDOUT_FILENO) < 0) std::_Exit(EXIT_FAILURE);
  close(nowhere);
}

// A listed file, and its folder.
struct Held {
  explicit Held(const std::filesystem::path& path)
      : folder(open(path.parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)),
        file(folder.get(), path.filename().string()) {}
  io::detail::FileDescriptor folder;
  io::detail::HeldTemporary file;
};
std::list<Held> held;

}  // namespace

Session::Session(int& argc, char**& argv) {
  int provided = 0;
  check(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  comm_.emplace(MPI_COMM_WORLD);
  ranks_on_machine_ = count_on_machine();
  if (comm_->rank() != 0) silence_standard_output();
  // mpirun redirects output, so the terminal's colour support is unknown.
  setenv("NO_COLOR", "1", 0);
}

int Session::default_threads() const {
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  const int share = static_cast<int>(std::max(1L, processors / ranks_on_machine_));
  return std::min(share, heed::default_threads());
}

std::string Session::shared(std::string text) const {
  auto size = std::ssize(text);
  check(MPI_Bcast(&size, 1, MPI_INT64_T, 0, comm_->get()), "MPI_Bcast");
  text.resize(static_cast<std::size_t>(size));
  check(MPI_Bcast(text.data(), static_cast<int>(size), MPI_CHAR, 0, comm_->get()), "MPI_Bcast");
  return text;
}

bool Session::all_fail() const {
  MPI_Request request = MPI_REQUEST_NULL;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  int done = MPI_Ibarrier(MPI_COMM_WORLD, &request) == MPI_SUCCESS ? 0 : 1;
  while (done == 0 && std::chrono::steady_clock::now() < end) {
    if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return done != 0 && request == MPI_REQUEST_NULL;
}

int Session::end(const std::optional<Failure>& failure) {
  if (failure) {
    const bool is_common = all_fail();
    if (!is_common || comm_->rank() == 0) print_failure(*failure);
    if (!is_common) {
      io::detail::remove_temporaries();
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }
  comm_.reset();
  MPI_Finalize();
  return failure ? failure->exit_code : 0;
}

void together(const Session& session, const std::function<void()>& work) {
  distributed::agree(session.comm(), [&] {
    try {
      work();
    } catch (const UsageError& error) {
      throw Error(ErrorCode::invalid_argument, error.what());
    }
  });
}

void hold_temporaries(const std::vector<std::string>& paths) {
  held.clear();
  for (const std::string& path : paths) held.emplace_back(path);
}

}  // namespace heed::cli
