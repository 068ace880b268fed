// Queries on a document: single rows, and the whole matrix in bins.
#include <algorithm>
#include <cmath>

#include "core/largest.hpp"
#include "core/message.hpp"
#include "heed/inspect/document.hpp"

namespace heed {
namespace {

// Fills in the row's weights and its heaviest keys.
void take_from_tile(const Document& document, std::int64_t top_k, AttendedRow& row) {
  const AttentionReport& report = document.report;
  const WeightTile tile =
      attention_tile(document, {row.row, row.row + 1, 0, report.keys, row.batch, row.head});
  std::vector<std::int64_t> order;
  for (std::int64_t j = 0; j < report.keys; ++j) {
    row.weights.push_back(number_at(tile.weights, {0, 0, 0, j}));
    if (tile.allowed.at<bool>(0, 0, 0, j) && !std::isnan(row.weights.back())) order.push_back(j);
  }
  const auto weight = [&](std::int64_t j) { return row.weights[static_cast<std::size_t>(j)]; };
  detail::keep_largest(order, top_k, weight);
  for (const std::int64_t j : order) row.top.push_back({j, weight(j)});
}

}  // namespace

AttendedRow attended_row(const Document& document, std::int64_t batch, std::int64_t head, std::int64_t row,
                         std::int64_t top_k, bool all_weights) {
  const AttentionReport& report = document.report;
  detail::check_range("batch", batch, 0, report.batch - 1);
  detail::check_range("head", head, 0, report.heads - 1);
  detail::check_range("row", row, 0, report.queries - 1);
  if (top_k < 0) detail::refuse("top_k is ", top_k, "; 0 or more is expected");
  AttendedRow found{batch,
                    head,
                    row,
                    number_at(report.entropy, {batch, head, row}),
                    number_at(report.distance, {batch, head, row}),
                    {},
                    {}};
  const bool holds =
      report.top_k_index.rank() == 4 && report.top_k_index.size(3) >= std::min(top_k, report.keys);
  if (all_weights || !holds) {
    take_from_tile(document, top_k, found);
    if (!all_weights) found.weights.clear();
    return found;
  }
  for (std::int64_t k = 0; k < std::min(top_k, report.top_k_index.size(3)); ++k) {
    const std::int64_t j = report.top_k_index.at<std::int64_t>(batch, head, row, k);
    if (j >= 0) found.top.push_back({j, number_at(report.top_k_weight, {batch, head, row, k})});
  }
  return found;
}

Tensor attention_map(const Document& document, const MapSize& wanted) {
  const AttentionReport& report = document.report;
  const MapSize size = {std::min(wanted.rows, report.queries), std::min(wanted.columns, report.keys)};
  if (size.rows < 1 || size.columns < 1)
    detail::refuse("size is ", wanted.rows, " x ", wanted.columns, ", of ",
                   detail::counted(report.queries, "query", "queries"), " and ",
                   detail::counted(report.keys, "key"), "; at least one bin is expected");
  if (!report.map.empty() && report.map[0].size(2) % size.rows == 0 &&
      report.map[0].size(3) % size.columns == 0)
    return map_in_bins(report.map[0], size);
  AttentionOptions options = document.options;
  options.map = size;
  // The map does not use values; one column of the keys serves as them.
  const TensorView value = document.key.narrow(3, 0, 1);
  return Tensor::copy_of(attention(document.query, document.key, value, options).map, DType::f64);
}

}  // namespace heed
