// MPI datatypes for rows of a tensor in place: tensors travel without packing.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <span>
#include <utility>

#include "heed/attention/sharding.hpp"
#include "heed/tensor.hpp"

namespace heed::distributed {

class RowType {
 public:
  /// Rows `rows` (ascending) of every head of a view [heads, rows, columns], relative to its element (0, 0,
  /// 0). Throws Error (invalid_argument) for sizes that MPI cannot count (2^31 and more).
  RowType(const TensorView& view, std::span<const PositionRange> rows);
  ~RowType();
  RowType(RowType&& other) noexcept : type_(std::exchange(other.type_, MPI_DATATYPE_NULL)) {}
  RowType(const RowType&) = delete;
  RowType& operator=(const RowType&) = delete;
  RowType& operator=(RowType&&) = delete;

  [[nodiscard]] MPI_Datatype get() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

}  // namespace heed::distributed
