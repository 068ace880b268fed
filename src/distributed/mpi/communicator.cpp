#include "distributed/mpi/communicator.hpp"

#include <array>
#include <string>

#include "core/message.hpp"
#include "heed/error.hpp"

namespace heed::distributed {

void check(int code, const char* function) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  detail::refuse(ErrorCode::internal, function, ": ",
                 std::string(text.data(), static_cast<std::size_t>(length)));
}

Communicator::Communicator(MPI_Comm comm) {
  int begun = 0, ended = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&ended);
  if (begun == 0 || ended != 0)
    throw Error(
        ErrorCode::invalid_argument,
        "comm is used while MPI is not initialised; a call between MPI_Init and MPI_Finalize is expected");
  if (comm == MPI_COMM_NULL)
    throw Error(ErrorCode::invalid_argument, "comm is MPI_COMM_NULL; a communicator is expected");
  check(MPI_Comm_dup(comm, &comm_), "MPI_Comm_dup");
  check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  void* largest = nullptr;
  int known = 0;
  check(MPI_Comm_get_attr(comm_, MPI_TAG_UB, static_cast<void*>(&largest), &known), "MPI_Comm_get_attr");
  if (known != 0) largest_tag_ = *static_cast<int*>(largest);
}

Communicator::~Communicator() {
  if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
}

void Communicator::take_largest(std::span<std::int64_t> numbers) const {
  check(MPI_Allreduce(MPI_IN_PLACE, numbers.data(), static_cast<int>(numbers.size()), MPI_INT64_T, MPI_MAX,
                      comm_),
        "MPI_Allreduce");
}

void Communicator::add_up(std::span<std::int64_t> numbers) const {
  check(MPI_Allreduce(MPI_IN_PLACE, numbers.data(), static_cast<int>(numbers.size()), MPI_INT64_T, MPI_SUM,
                      comm_),
        "MPI_Allreduce");
}

}  // namespace heed::distributed
