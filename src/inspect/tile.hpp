// A piece of the weights of a checked call.
#pragma once

#include "attention/problem/problem.hpp"
#include "core/tensor/lifted.hpp"
#include "heed/inspect/reports.hpp"

namespace heed::detail {

/// lse as an operand [B, H, Lq]; inputs of two or three axes lack the first ones. Throws for another shape or
/// dtype.
Operand lse_operand(const Problem& problem, const TensorView& lse, int rank);
/// Throws if the range does not lie within the matrix.
void check_tile(const Problem& problem, const TileRange& range);
/// Computes the piece from the rows' lse.
WeightTile make_tile(const Problem& problem, const Operand& lse, const TileRange& range);

/// The allowed cells of the whole matrix [B, H, Lq, Lk], as bool.
Tensor allowed_of(const Problem& problem);

}  // namespace heed::detail
