// Machine-readable output of `heed look`: JSON and CSV.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "look/answer.hpp"
#include "look/evict.hpp"

namespace heed::cli {

/// The call: sizes, dtype, kernel and options. Each answer adds its own members.
[[nodiscard]] nlohmann::ordered_json call_json(const Document& document);
/// Adds the head's name, the runner-up, and all scores with their numbers of rows.
void add_names(const HeadSummary& head, nlohmann::ordered_json& json);
[[nodiscard]] nlohmann::ordered_json heads_json(const Document& document,
                                                const std::vector<HeadSummary>& heads);
[[nodiscard]] nlohmann::ordered_json cost_json(const std::vector<CostLine>& cost);
[[nodiscard]] nlohmann::ordered_json rows_json(const Document& document,
                                               const std::vector<AttendedRow>& rows);
/// For each policy, the keys it kept, when it evicted the others, and the loss of every row.
[[nodiscard]] nlohmann::ordered_json evictions_json(const std::vector<Eviction>& evictions,
                                                    const LookArguments& arguments);
/// A tensor as nested lists; NaN is null.
[[nodiscard]] nlohmann::ordered_json values_json(const Tensor& tensor);

/// The same data as CSV with a header line (RFC 4180).
[[nodiscard]] std::string heads_csv(const Document& document, const std::vector<HeadSummary>& heads);
/// One line per row and key. A row requested alone has all its keys, otherwise its heaviest.
[[nodiscard]] std::string rows_csv(const Document& document, const std::vector<AttendedRow>& rows);
/// One line per policy, head and row, with the row's loss.
[[nodiscard]] std::string evictions_csv(const Document& document, const std::vector<Eviction>& evictions,
                                        const LookArguments& arguments);
/// One line per cell: batch, head, row, key, allowed, weight. `heads` are the tile's heads; it is empty if
/// there is only one, or if all are in the tile.
[[nodiscard]] std::string tile_csv(const WeightTile& tile, const std::vector<std::int64_t>& heads);

}  // namespace heed::cli
