#include "distributed/mpi/row_type.hpp"

#include <limits>
#include <string>
#include <vector>

#include "distributed/mpi/communicator.hpp"
#include "heed/error.hpp"

namespace heed::distributed {
namespace {

int count_of(const char* what, std::int64_t size) {
  if (size > std::numeric_limits<int>::max())
    throw Error(ErrorCode::invalid_argument, std::string(what) + " of a sent tensor are " +
                                                 std::to_string(size) + "; fewer than 2^31 are expected");
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

}  // namespace

RowType::RowType(const TensorView& view, std::span<const PositionRange> rows) {
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
  check(MPI_Type_create_hindexed(count_of("the ranges of rows", static_cast<std::int64_t>(rows.size())),
                                 lengths.data(), places.data(), row.get(), &type_),
        "MPI_Type_create_hindexed");
  for (int axis = row_axis - 1; axis >= 0; --axis) {
    const Step inner(std::exchange(type_, MPI_DATATYPE_NULL));
    check(
        MPI_Type_create_hvector(count_of("the heads", view.size(axis)), 1, stride(axis), inner.get(), &type_),
        "MPI_Type_create_hvector");
  }
  check(MPI_Type_commit(&type_), "MPI_Type_commit");
}

RowType::~RowType() {
  if (type_ != MPI_DATATYPE_NULL) MPI_Type_free(&type_);
}

}  // namespace heed::distributed
