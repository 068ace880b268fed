// A loop over rows for code that computes single weights.
#pragma once

#include <atomic>
#include <cstdint>

#include "heed/parallel.hpp"
#include "heed/tensor.hpp"
#include "inspect/single_weights.hpp"
#include "inspect/tile.hpp"

namespace heed::detail {

inline constexpr std::int64_t kRowsAtOnce = 256, kRowsAhead = 6;

/// A write target for a tensor [B, H, Lq].
inline Output target_rows(Tensor& tensor) {
  const MutableTensorView view = tensor.mutable_view();
  return {view.data(), view.dtype(), {view.strides()[0], view.strides()[1], view.strides()[2], 0}};
}

inline Tensor row_tensor(const Problem& p) {
  return Tensor({p.batch, p.heads, p.query_length}, p.dtype == DType::f64 ? DType::f64 : DType::f32);
}

/// Calls visit(segment, row, row_weights) for every row of every head for which wanted(batch, i); row_weights
/// is set to that row.
template <class Wanted, class Visit>
void for_each_row(const Problem& p, const char* what, const TensorView& lse, Wanted wanted, Visit visit) {
  std::atomic<std::int64_t> done{0};
  const Operand normaliser = lse_operand(p, lse, 4);
  const auto blocks = row_blocks(p, 0, p.query_length, 0, p.heads, kRowsAtOnce);
  parallel_for(std::ssize(blocks), p.threads, [&](std::int64_t index, int) {
    const RowBlock& block = blocks[static_cast<std::size_t>(index)];
    const Segment& segment = p.segments[block.segment];
    RowWeights row_weights(p);
    for (std::int64_t i = block.begin; i < block.end; ++i) {
      if (!wanted(segment.batch, i)) continue;
      const Row row = row_at(p, block, i);
      if (i + kRowsAhead < block.end) row_weights.expect_row(row_at(p, block, i + kRowsAhead));
      row_weights.set_row(segment, row, read(normaliser, row.batch, row.head, i));
      visit(segment, row, row_weights);
    }
    if (p.progress) p.progress(what, static_cast<double>(++done) / static_cast<double>(blocks.size()));
  });
}

}  // namespace heed::detail
