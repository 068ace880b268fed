// Parts of a call as calls of their own, whose segments cover all of their rows.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem/problem.hpp"
#include "heed/tensor.hpp"

namespace heed::detail {

/// Chosen rows of every batch entry, side by side. They keep their positions and their keys.
struct CallOfRows {
  Tensor query, mask, bias;        ///< copies of what has the rows: the problem reads them
  std::vector<std::int64_t> rows;  ///< the problem reads these, too
  Problem problem;                 ///< its targets are not set
};

/// `rows` ascend. Dropout draws by a row's number in the call: here by its number among the rows.
CallOfRows call_of_rows(const Problem& whole, const std::vector<std::int64_t>& rows);

/// So many blocks of so many rows of a key head, for timing: side by side around the middle of the work, of
/// as many heads as there are blocks, then rows, then batch entries. The targets are those of these rows;
/// bins of the map have about as many rows as in the whole, but at most a block.
Problem sample_of(const Problem& whole, std::int64_t blocks, std::int64_t block_rows);

/// Pairs of a row and a key that causal, window, lengths and segments allow, of one head.
double cells_of(const Problem& problem);

}  // namespace heed::detail
