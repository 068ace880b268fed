#include "distributed/mpi/agreement.hpp"

#include <new>
#include <optional>
#include <string>

#include "core/message.hpp"
#include "heed/error.hpp"

namespace heed::distributed {
namespace {

std::optional<Error> error_of(const std::function<void()>& work) {
  try {
    work();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::out_of_memory, "not enough memory for the call");
  }
}

// The code and message of the first failed rank, on every rank.
Error message_of(const Communicator& comm, int rank, const std::optional<Error>& own) {
  std::string text = own ? own->what() : "";
  std::int64_t head[2] = {own ? static_cast<std::int64_t>(own->code()) : 0, std::ssize(text)};
  check(MPI_Bcast(head, 2, MPI_INT64_T, rank, comm.get()), "MPI_Bcast");
  text.resize(static_cast<std::size_t>(head[1]));
  check(MPI_Bcast(text.data(), static_cast<int>(text.size()), MPI_CHAR, rank, comm.get()), "MPI_Bcast");
  return {static_cast<ErrorCode>(head[0]), "rank " + std::to_string(rank) + ": " + text};
}

}  // namespace

void agree(const Communicator& comm, const std::function<void()>& work) {
  const std::optional<Error> own = error_of(work);
  std::int64_t first = own ? comm.size() - comm.rank() : 0;  // larger for lower ranks
  comm.take_largest({&first, 1});
  if (first == 0) return;
  const Error of_first = message_of(comm, static_cast<int>(comm.size() - first), own);
  if (own) throw *own;
  throw of_first;
}

void agree_on(const Communicator& comm, const std::vector<Common>& numbers) {
  std::vector<std::int64_t> ends;  // the maximum, and the maximum of the complement
  for (const Common& one : numbers) {
    ends.push_back(one.value);
    ends.push_back(~one.value);
  }
  comm.take_largest(ends);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::int64_t most = ends[2 * i], least = ~ends[2 * i + 1];
    if (most != least)
      detail::refuse(numbers[i].name, " is ", numbers[i].value, " on rank ", comm.rank(), " and ranges from ",
                     least, " to ", most, " over all ranks; equal values are expected");
  }
}

}  // namespace heed::distributed
