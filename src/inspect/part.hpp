// Parts of a call as separate calls, whose segments cover all of their rows.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem/problem.hpp"
#include "heed/tensor.hpp"

namespace heed::detail {

/// Chosen rows of every batch entry, side by side, with their positions and all their keys.
struct CallOfRows {
  Tensor query, mask, bias;        ///< copies of the chosen rows, read by the problem
  std::vector<std::int64_t> rows;  ///< also read by the problem
  Problem problem;                 ///< its targets are not set
};

/// `rows` must ascend. Dropout uses the row number in the call, here the index into `rows`.
CallOfRows call_of_rows(const Problem& whole, const std::vector<std::int64_t>& rows);

/// A sample for timing: `blocks` blocks of `block_rows` rows of a key head. The blocks lie around the middle
/// of the work and take heads first, then rows, then batch entries. Targets point at these rows. Bins of the
/// map have about as many rows as in the whole call, but at most a block.
Problem sample_of(const Problem& whole, std::int64_t blocks, std::int64_t block_rows);

/// The number of pairs (row, key) of one head that causal, window, lengths and segments allow.
double cells_of(const Problem& problem);

}  // namespace heed::detail
