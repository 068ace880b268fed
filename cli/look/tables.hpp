// Answers for machines: JSON and CSV.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "look/answer.hpp"
#include "look/evict.hpp"

namespace heed::cli {

/// What was looked at: sizes, dtype, kernel and options. Each answer adds its own members.
[[nodiscard]] nlohmann::ordered_json call_json(const Document& document);
/// Adds what the head is called, the runner-up, and all scores with the rows behind them.
void add_names(const HeadSummary& head, nlohmann::ordered_json& json);
[[nodiscard]] nlohmann::ordered_json heads_json(const Document& document,
                                                const std::vector<HeadSummary>& heads);
[[nodiscard]] nlohmann::ordered_json cost_json(const std::vector<CostLine>& cost);
[[nodiscard]] nlohmann::ordered_json rows_json(const Document& document,
                                               const std::vector<AttendedRow>& rows);
/// Of each policy the keys that it kept, when the others went, and what every row lost.
[[nodiscard]] nlohmann::ordered_json evictions_json(const std::vector<Eviction>& evictions,
                                                    const LookArguments& arguments);
/// A tensor as nested lists; NaN is null.
[[nodiscard]] nlohmann::ordered_json values_json(const Tensor& tensor);

/// The same as tables with a first line of names (RFC 4180).
[[nodiscard]] std::string heads_csv(const Document& document, const std::vector<HeadSummary>& heads);
/// A line a row and key: all keys of a row where it was asked for alone, else its heaviest.
[[nodiscard]] std::string rows_csv(const Document& document, const std::vector<AttendedRow>& rows);
/// A line a policy, head and row: what it lost.
[[nodiscard]] std::string evictions_csv(const Document& document, const std::vector<Eviction>& evictions,
                                        const LookArguments& arguments);
/// A line a cell: batch, head, row, key, allowed, weight. `heads` are those of the tile where they are
/// several, but not all.
[[nodiscard]] std::string tile_csv(const WeightTile& tile, const std::vector<std::int64_t>& heads);

}  // namespace heed::cli
