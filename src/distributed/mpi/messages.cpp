#include "distributed/mpi/messages.hpp"

#include <algorithm>

#include "distributed/mpi/row_type.hpp"
#include "heed/dtype.hpp"

namespace heed::distributed {
namespace {

// Bytes of a message: MPI counts them in 31 bits.
constexpr std::size_t kMostBytes = std::size_t{1} << 30;

std::int64_t bytes_of(const TensorView& view, std::span<const PositionRange> rows) {
  std::int64_t count = 0;
  for (const PositionRange& range : rows) count += range.end - range.begin;
  for (int axis = 0; axis < view.rank(); ++axis)
    if (axis != view.rank() - 2) count *= view.size(axis);
  return count * static_cast<std::int64_t>(size_of(view.dtype()));
}

}  // namespace

Messages::~Messages() {
  for (MPI_Request& request : requests_) {
    if (request == MPI_REQUEST_NULL) continue;
    MPI_Cancel(&request);
    MPI_Request_free(&request);
  }
}

int Messages::tag_of(std::int64_t tag) const {
  return static_cast<int>(tag % (static_cast<std::int64_t>(comm_.largest_tag()) + 1));
}

MPI_Request* Messages::next() {
  requests_.push_back(MPI_REQUEST_NULL);
  return &requests_.back();
}

void Messages::send(const TensorView& from, std::span<const PositionRange> rows, int to, std::int64_t tag) {
  const std::int64_t bytes = bytes_of(from, rows);
  if (bytes == 0 || to == comm_.rank()) return;
  const RowType type(from, rows);
  check(MPI_Isend(from.data(), 1, type.get(), to, tag_of(tag), comm_.get(), next()), "MPI_Isend");
  bytes_sent_ += bytes;
}

void Messages::receive(const MutableTensorView& into, std::span<const PositionRange> rows, int from,
                       std::int64_t tag) {
  if (bytes_of(into, rows) == 0 || from == comm_.rank()) return;
  const RowType type(into, rows);
  check(MPI_Irecv(into.data(), 1, type.get(), from, tag_of(tag), comm_.get(), next()), "MPI_Irecv");
}

void Messages::send(std::span<const std::byte> bytes, int to, std::int64_t tag) {
  if (to == comm_.rank()) return;
  for (std::size_t at = 0; at < bytes.size(); at += kMostBytes) {
    const auto part = bytes.subspan(at, std::min(kMostBytes, bytes.size() - at));
    check(
        MPI_Isend(part.data(), static_cast<int>(part.size()), MPI_BYTE, to, tag_of(tag), comm_.get(), next()),
        "MPI_Isend");
  }
  bytes_sent_ += static_cast<std::int64_t>(bytes.size());
}

void Messages::receive(std::span<std::byte> bytes, int from, std::int64_t tag) {
  if (from == comm_.rank()) return;
  for (std::size_t at = 0; at < bytes.size(); at += kMostBytes) {
    const auto part = bytes.subspan(at, std::min(kMostBytes, bytes.size() - at));
    check(MPI_Irecv(part.data(), static_cast<int>(part.size()), MPI_BYTE, from, tag_of(tag), comm_.get(),
                    next()),
          "MPI_Irecv");
  }
}

bool Messages::test() {
  int done = 0;
  check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE),
        "MPI_Testall");
  if (done != 0) requests_.clear();
  return done != 0;
}

void Messages::wait() {
  check(MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE),
        "MPI_Waitall");
  requests_.clear();
}

}  // namespace heed::distributed
