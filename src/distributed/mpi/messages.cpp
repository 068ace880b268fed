#include "distributed/mpi/messages.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/message.hpp"
#include "heed/dtype.hpp"
#include "heed/error.hpp"

namespace heed::distributed {
namespace {

int count_of(const char* what, std::int64_t size) {
  if (size > std::numeric_limits<int>::max())
    detail::refuse(what, " of a sent tensor are ", size, "; fewer than 2^31 are expected");
  return static_cast<int>(size);
}

// A datatype that is only used to build another.
class Step {
 public:
  explicit Step(MPI_Datatype type = MPI_DATATYPE_NULL) : type_(type) {}
  ~Step() {
    if (type_ != MPI_DATATYPE_NULL) MPI_Type_free(&type_);
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  MPI_Datatype* out() { return &type_; }
  [[nodiscard]] MPI_Datatype get() const { return type_; }

 private:
  MPI_Datatype type_;
};

// An MPI datatype for rows of a tensor in place: tensors travel without packing.
class RowType {
 public:
  /// Rows `rows` (ascending) of every head of a view [heads, rows, columns], relative to its element (0, 0,
  /// 0). Throws Error (invalid_argument) for sizes that MPI cannot count (2^31 and more).
  RowType(const TensorView& view, std::span<const PositionRange> rows) {
    const int row_axis = view.rank() - 2, column_axis = view.rank() - 1;
    const auto bytes = static_cast<MPI_Aint>(size_of(view.dtype()));
    const auto stride = [&](int axis) { return static_cast<MPI_Aint>(view.strides()[axis]) * bytes; };
    const int columns = count_of("the columns", view.size(column_axis));
    Step element, cells, row;
    check(MPI_Type_contiguous(static_cast<int>(bytes), MPI_BYTE, element.out()), "MPI_Type_contiguous");
    check(MPI_Type_create_hvector(columns, 1, stride(column_axis), element.get(), cells.out()),
          "MPI_Type_create_hvector");
    // With this extent, the rows of a range follow each other.
    check(MPI_Type_create_resized(cells.get(), 0, stride(row_axis), row.out()), "MPI_Type_create_resized");
    std::vector<int> lengths;
    std::vector<MPI_Aint> places;
    for (const PositionRange& range : rows) {
      lengths.push_back(count_of("the rows", range.end - range.begin));
      places.push_back(static_cast<MPI_Aint>(range.begin) * stride(row_axis));
    }
    check(MPI_Type_create_hindexed(count_of("the ranges of rows", std::ssize(rows)), lengths.data(),
                                   places.data(), row.get(), &type_),
          "MPI_Type_create_hindexed");
    for (int axis = row_axis - 1; axis >= 0; --axis) {
      const Step inner(std::exchange(type_, MPI_DATATYPE_NULL));
      check(MPI_Type_create_hvector(count_of("the heads", view.size(axis)), 1, stride(axis), inner.get(),
                                    &type_),
            "MPI_Type_create_hvector");
    }
    check(MPI_Type_commit(&type_), "MPI_Type_commit");
  }
  ~RowType() {
    if (type_ != MPI_DATATYPE_NULL) MPI_Type_free(&type_);
  }
  RowType(RowType&& other) noexcept : type_(std::exchange(other.type_, MPI_DATATYPE_NULL)) {}
  RowType(const RowType&) = delete;
  RowType& operator=(const RowType&) = delete;
  RowType& operator=(RowType&&) = delete;

  [[nodiscard]] MPI_Datatype get() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

// The maximum size of a message in bytes: MPI counts in 31 bits.
constexpr std::size_t kMaxBytes = std::size_t{1} << 30;
// The maximum number of row ranges that are sent as separate messages.
constexpr std::size_t kMaxPieces = 32;

std::int64_t bytes_of(const TensorView& view, std::span<const PositionRange> rows) {
  std::int64_t count = 0;
  for (const PositionRange& range : rows) count += range.end - range.begin;
  for (int axis = 0; axis < view.rank(); ++axis)
    if (axis != view.rank() - 2) count *= view.size(axis);
  return count * static_cast<std::int64_t>(size_of(view.dtype()));
}

// The first element of these rows if they are contiguous in memory and small enough for one message; else
// nullptr.
template <class View>
auto contiguous_rows(const View& view, std::span<const PositionRange> rows) -> decltype(view.data()) {
  for (std::size_t i = 1; i < rows.size(); ++i)
    if (rows[i].begin != rows[i - 1].end) return nullptr;
  const View all = view.narrow(-2, rows.front().begin, rows.back().end - rows.front().begin);
  const bool fits = bytes_of(view, rows) <= static_cast<std::int64_t>(kMaxBytes);
  return fits && all.is_contiguous() ? all.data() : nullptr;
}

// Calls visit(view [rows, columns], ranges) for the messages that carry rows of all heads: one per head and
// range, or one per head if there are many ranges. A message that is contiguous on both sides travels without
// copies, and while the sender computes.
template <class View, class Visit>
void each_piece(const View& view, std::span<const PositionRange> rows, Visit visit) {
  if (bytes_of(view, rows) == 0) return;
  if (view.rank() > 2) {
    for (std::int64_t i = 0; i < view.size(0); ++i) each_piece(view.select(0, i), rows, visit);
  } else if (rows.size() > kMaxPieces) {
    visit(view, rows);
  } else {
    for (const PositionRange& range : rows)
      if (range.begin < range.end) visit(view, std::span(&range, 1));
  }
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
  if (to == comm_.rank()) return;
  each_piece(from, rows, [&](const TensorView& piece, std::span<const PositionRange> ranges) {
    const std::int64_t bytes = bytes_of(piece, ranges);
    bytes_sent_ += bytes;
    if (const void* data = contiguous_rows(piece, ranges))
      check(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag_of(tag), comm_.get(), next()),
            "MPI_Isend");
    else
      check(MPI_Isend(piece.data(), 1, RowType(piece, ranges).get(), to, tag_of(tag), comm_.get(), next()),
            "MPI_Isend");
  });
}

void Messages::receive(const MutableTensorView& into, std::span<const PositionRange> rows, int from,
                       std::int64_t tag) {
  if (from == comm_.rank()) return;
  each_piece(into, rows, [&](const MutableTensorView& piece, std::span<const PositionRange> ranges) {
    if (void* data = contiguous_rows(piece, ranges))
      check(MPI_Irecv(data, static_cast<int>(bytes_of(piece, ranges)), MPI_BYTE, from, tag_of(tag),
                      comm_.get(), next()),
            "MPI_Irecv");
    else
      check(MPI_Irecv(piece.data(), 1, RowType(piece, ranges).get(), from, tag_of(tag), comm_.get(), next()),
            "MPI_Irecv");
  });
}

void Messages::send(std::span<const std::byte> bytes, int to, std::int64_t tag) {
  if (to == comm_.rank()) return;
  for (std::size_t at = 0; at < bytes.size(); at += kMaxBytes) {
    const auto part = bytes.subspan(at, std::min(kMaxBytes, bytes.size() - at));
    check(
        MPI_Isend(part.data(), static_cast<int>(part.size()), MPI_BYTE, to, tag_of(tag), comm_.get(), next()),
        "MPI_Isend");
  }
  bytes_sent_ += std::ssize(bytes);
}

void Messages::receive(std::span<std::byte> bytes, int from, std::int64_t tag) {
  if (from == comm_.rank()) return;
  for (std::size_t at = 0; at < bytes.size(); at += kMaxBytes) {
    const auto part = bytes.subspan(at, std::min(kMaxBytes, bytes.size() - at));
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
