// attention_tile_in_bins: a piece of the weights summed into square bins, from query, key and the lse of each
// row.
#include "attention/check/checks.hpp"
#include "attention/problem/operands.hpp"
#include "core/message.hpp"
#include "heed/inspect/document.hpp"
#include "heed/parallel.hpp"
#include "inspect/single_weights.hpp"
#include "inspect/tile.hpp"

namespace heed {
namespace {

using detail::KeyRange;
using detail::Problem;

std::int64_t bins_of(std::int64_t count, std::int64_t step) { return (count + step - 1) / step; }

// One row of bins of one head.
struct BinRow {
  double* sums;
  bool* allowed;
};

void add_row(const Problem& p, const detail::Segment& segment, const detail::Row& row, const TileRange& range,
             std::int64_t step, detail::RowWeights& weights, const BinRow& bins) {
  const KeyRange visible = detail::keys_of(p, segment, row.position);
  const std::int64_t end = std::min(visible.end, range.key_end);
  for (std::int64_t j = std::max(visible.begin, range.key_begin); j < end;) {
    const std::int64_t bin = (j - range.key_begin) / step;
    const std::int64_t bin_end = std::min(end, range.key_begin + (bin + 1) * step);
    for (; j < bin_end; ++j) {
      if (!weights.allows(j)) continue;
      bins.allowed[bin] = true;
      bins.sums[bin] += weights.quick_weight(j);
    }
  }
}

}  // namespace

WeightTile attention_tile_in_bins(const Document& document, const TileRange& range, std::int64_t step) {
  const Problem p = detail::check_call(document.query, document.key, document.key, document.options);
  const detail::Operand lse = detail::lse_operand(p, document.report.lse, document.query.rank());
  detail::check_tile(p, range);
  if (range.batch < 0 || range.head < 0)
    detail::refuse("range has batch ", range.batch, " and head ", range.head,
                   "; one head of one batch entry is expected");
  if (step < 1) detail::refuse("step is ", step, "; 1 or more rows and keys a bin are expected");
  const std::int64_t rows = bins_of(range.row_end - range.row_begin, step);
  const std::int64_t columns = bins_of(range.key_end - range.key_begin, step);
  WeightTile tile{range, Tensor({1, 1, rows, columns}, DType::f64),
                  Tensor({1, 1, rows, columns}, DType::boolean)};
  if (tile.weights.count() == 0) return tile;
  auto* sums = tile.weights.mutable_view().data_as<double>();
  auto* allowed = tile.allowed.mutable_view().data_as<bool>();

  // One thread computes a row of bins, so sums do not depend on the number of threads.
  parallel_for(rows, p.threads, [&](std::int64_t r, int) {
    const std::int64_t begin = range.row_begin + r * step;
    const std::int64_t end = std::min(begin + step, range.row_end);
    detail::RowWeights weights(p);
    for (const detail::RowBlock& block :
         detail::row_blocks(p, begin, end, range.head, range.head + 1, step)) {
      const detail::Segment& segment = p.segments[block.segment];
      if (segment.batch != range.batch) continue;
      for (std::int64_t i = block.begin; i < block.end; ++i) {
        const detail::Row row = detail::row_at(p, block, i);
        weights.set_row(segment, row, detail::read(lse, row.batch, row.head, i));
        add_row(p, segment, row, range, step, weights, {sums + r * columns, allowed + r * columns});
      }
    }
  });
  return tile;
}

}  // namespace heed
