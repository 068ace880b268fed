// The operands of the gradients' products by matrix tiles: their layouts, and the packing of rows and of a KV
// block.
#pragma once

#include "attention/kernels/backward/backward_workspace.hpp"
#include "attention/kernels/softmax/matrix_tiles.hpp"

namespace heed::detail::HEED_ISA {

/// Operands of tiles of 16 rows: [row / 16][part][lanes / 16][row % 16][kLanes], with `lanes` lanes per part.
template <int kParts>
HEED_INLINE TileMatrix by_rows(float* data, std::int64_t lanes) {
  return {data, kLanes, kMatrixRows * kParts * lanes, kMatrixRows * kLanes, kMatrixRows * lanes};
}
/// Operands of tiles of 16 columns: [column / 16][part][lanes][16].
template <int kParts>
HEED_INLINE TileMatrix by_columns(float* data, std::int64_t lanes) {
  return {data, kLanes, kParts * lanes * kLanes, kMatrixRows * kLanes, lanes * kLanes};
}
/// Returns the address of vector `lane` / kLanes of row `row`, in an operand by rows. All its parts together
/// have `lanes` lanes.
HEED_INLINE float* row_vector(float* data, std::int64_t lanes, std::int64_t row, std::int64_t lane) {
  return data + row / kMatrixRows * (kMatrixRows * lanes) + lane * kMatrixRows + row % kMatrixRows * kLanes;
}

// Pairs of rows per block, and pairs of keys per chunk.
inline constexpr std::int64_t kRowPairs = kGradientRows / 2;
inline constexpr std::int64_t kKeyPairs = kChunkPanels * kPanel / 2;
/// Floats of an operand by columns with a block's rows and a panel's keys.
inline constexpr std::int64_t kPanelOperand = kPanel * UnitFormat::kWeightParts * kRowPairs;

/// The q or the g of a group's rows: the rows of its head, and the places of its two packed forms.
struct GroupOperand {
  HeadRows source;
  std::int64_t depth, columns, lanes;
  float* rows;  // operand by rows
  float* transposed;
};

/// Squared norms of rows.
struct Squares {
  float largest = 0, total = 0;
  bool any_small = false;  // some row is not 0, but may be too small for the format

  void add(const Squares& other) {
    largest = other.largest > largest ? other.largest : largest;
    total += other.total;
    any_small = any_small || other.any_small;
  }
};

/// Whether the format can hold rows with these norms.
template <class Format>
bool holds(const Squares& squares) {
  return squares.total < kMaxGradientSquare &&
         (squares.largest >= Format::kSmallestSquare || !squares.any_small);
}

inline bool has_numbers(const float* row, std::int64_t columns) {
  Vf largest = zero();
  for (std::int64_t c = 0; c < columns; c += kLanes) largest = maximum(largest, absolute(load(row + c)));
  return reduce_max(largest) > 0;
}

/// Transposes a group's rows of q or g, from row `row` of an operand by rows, to another: lane p of a step
/// holds rows p and p + 16 of the group. After a transposition, a lane has two neighbouring columns of one
/// row. Rows p and p + 16 then exchange halves, so that a lane has one column of both.
template <class Format>
void transpose_group(const GroupOperand& operand, std::int64_t row) {
  const std::int64_t lanes = Format::kParts * operand.lanes, row_pairs = Format::kParts * kRowPairs;
  for (int part = 0; part < Format::kParts; ++part)
    for (std::int64_t d = 0; 2 * d < operand.columns; d += kLanes) {
      Vf pairs[2][kLanes];
      for (int half = 0; half < 2; ++half) {
        const float* from =
            row_vector(operand.rows, lanes, row + half * kMatrixRows, part * operand.lanes + d);
#pragma GCC unroll 16
        for (int r = 0; r < kLanes; ++r) pairs[half][r] = load(from + r * kLanes);
        transpose(pairs[half]);
      }
      for (std::int64_t c = 0; c < smaller(2 * kLanes, operand.columns - 2 * d); c += 2) {
        const Vf first = pairs[0][c / 2], second = pairs[1][c / 2];
        float* to = row_vector(operand.transposed, row_pairs, 2 * d + c, part * kRowPairs + row / 2);
        store(to, pair_high_halves(low_halves(first), low_halves(second)));
        store(to + kLanes, pair_high_halves(first, second));
      }
    }
}

/// Packs rows [row, row + kGroupRows) of a block twice; rows that are left out become 0.
template <class Format>
Squares load_group(const BackwardTaskState& state, std::int64_t block_row, std::int64_t row,
                   const GroupOperand& operand) {
  const BackwardWorkspace& w = state.w;
  const auto& [source, depth, columns, of_part, rows, transposed] = operand;
  Squares squares;
  const std::int64_t lanes = Format::kParts * of_part;
  for (std::int64_t r = row; r < row + kGroupRows; ++r) {
    const std::int64_t of_segment = block_row + r;
    if (of_segment + kGroupRows < state.rows) fetch_row({source, of_segment + kGroupRows, depth}, 0);
    if (of_segment >= state.rows || w.factor[of_segment] == 0) {
      for (std::int64_t d = 0; d < lanes; d += kLanes) store(row_vector(rows, lanes, r, d), zero());
      continue;
    }
    const std::int64_t at = source.at(of_segment);
    const float square = Format::pack_query(source.tensor, at, depth, 1.0f, row_vector(rows, lanes, r, 0),
                                            lanes, kMatrixRows * kLanes);
    const bool is_small = square < Format::kSmallestSquare;
    if (is_small) pack_query(source.tensor, at, depth, 1.0f, w.scratch, columns);
    squares.add({square, square, is_small && has_numbers(w.scratch, columns)});
  }
  transpose_group<Format>(operand, row);
  return squares;
}

/// Loads query rows, queries and output gradients of the block of rows from `row` (of the segment) on.
/// Returns the largest squared norm of a scaled query, or a negative number if numbers are too large or too
/// small.
template <class Format>
float load_matrix_queries(const BackwardTaskState& state, std::int64_t head, std::int64_t row,
                          std::int64_t rows) {
  const BackwardArguments& call = state.call;
  const BackwardWorkspace& w = state.w;
  const Task& task = state.task.rows;
  const GroupOperand query = {rows_of(call.forward.query, task.batch, head, task.row_begin),
                              w.depth,
                              w.columns,
                              lanes_of<Format>(w.depth),
                              w.query,
                              w.query_columns};
  const GroupOperand grad = {rows_of(call.grad_output, task.batch, head, task.row_begin),
                             w.value_depth,
                             w.value_columns,
                             lanes_of<Format>(w.value_depth),
                             w.grad,
                             w.grad_columns};
  Squares queries, grads;
  for (std::int64_t r = 0; r < rows; r += kGroupRows) {
    for (std::int64_t i = r; i < r + kGroupRows; ++i)
      w.query_row[i] = query_row_of(call.forward, task, head, task.row_begin + row + smaller(i, rows - 1));
    w.group[r / kGroupRows] = group_of(w.query_row + r, kGroupRows, true);
    queries.add(load_group<Format>(state, row, r, query));
    grads.add(load_group<Format>(state, row, r, grad));
  }
  if (!holds<Format>(queries) || !holds<Format>(grads)) return -1.0f;
  return queries.largest * call.forward.log2_scale * call.forward.log2_scale;
}

/// Whether any row is not 0. `scratch` holds a row of `columns` floats.
inline bool have_numbers(const RowBlock& block, std::int64_t columns, float* scratch) {
  for (std::int64_t r = block.first; r < block.first + block.count; ++r) {
    pack_query(block.rows.tensor, block.rows.at(r), block.width, 1.0f, scratch, columns);
    if (has_numbers(scratch, columns)) return true;
  }
  return false;
}

/// Packs keys [key, key + count) of the segment: keys and values for the scores, and keys again for the
/// product with score gradients. Returns the largest squared norm of a key, or a negative number.
template <class Format>
float pack_matrix_kv_block(const BackwardTaskState& state, std::int64_t key, std::int64_t count) {
  const BackwardWorkspace& w = state.w;
  const KvSource kv = kv_source_of(state.call.forward, state.task.rows);
  const auto pack = [&](const RowBlock& rows, std::int64_t columns, float* to) {
    const Measure measure = Format::pack_keys(rows, 1.0f, to, w.scratch,
                                              Format::kParts * lanes_of<Format>(rows.width), RowPrefetch{});
    const bool is_held =
        measure.in_range && measure.largest_square < kMaxGradientSquare &&
        (measure.largest_square >= Format::kSmallestSquare || !have_numbers(rows, columns, w.scratch));
    return is_held ? measure.largest_square : -1.0f;
  };
  const RowBlock keys = {kv.keys, key, count, w.depth};
  const float largest = pack(keys, w.columns, w.keys);
  if (largest < 0 || pack({kv.values, key, count, w.value_depth}, w.value_columns, w.values) < 0)
    return -1.0f;
  Format::pair_rows(keys, w.key_rows);
  return largest;
}

}  // namespace heed::detail::HEED_ISA
