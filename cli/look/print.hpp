// Answers for people to read.
#pragma once

#include <string>
#include <vector>

#include "look/answer.hpp"
#include "look/evict.hpp"
#include "look/ranking.hpp"
#include "terminal.hpp"

namespace heed::cli {

/// "4 heads, 9 queries, 9 keys, D 24, f32, fused (avx512), causal".
[[nodiscard]] std::string call_line(const Document& document);
/// "head 3", or "batch 1, head 3" where there are several.
[[nodiscard]] std::string plane_text(const Document& document, std::int64_t batch, std::int64_t head);
/// What was looked at, in a line or two.
void print_call(const TextOutput& output, const Document& document);
/// A table of the heads, and `with_keys` below each the keys that it attends to most.
void print_heads(const TextOutput& output, const Document& document, const std::vector<HeadSummary>& heads,
                 bool with_keys);
/// The keys that `heads` heads attend to most, of all or of those in the table above; nothing without keys.
void print_most_received(const TextOutput& output, const Document& document,
                         const std::vector<ReceivedKey>& keys, std::size_t heads);
/// What was asked for and what it cost, beside the plain forward.
void print_cost(const TextOutput& output, const std::vector<CostLine>& cost);
/// Rows with their keys, at most a hundred.
void print_rows(const TextOutput& output, const Document& document, const std::vector<AttendedRow>& rows);
/// What each policy threw away, and what the heads lost by it.
void print_evictions(const TextOutput& output, const Document& document,
                     const std::vector<Eviction>& evictions, const LookArguments& arguments);
/// Each head of the tile as a picture: bins of rows and keys where it is larger than the output. `heads` are
/// those of its head axis where they are several, but not all.
void print_tile(const TextOutput& output, const Document& document, const WeightTile& tile,
                const std::vector<std::int64_t>& heads);
/// Each head of a map [B, H, R, C] as a picture, those of `heads` only and in that order.
void print_map(const TextOutput& output, const Document& document, const Tensor& map,
               const std::vector<HeadSummary>& heads);

/// What masks leave to `heads`, each picture once.
void print_masks(const TextOutput& output, const Document& document, const std::vector<HeadSummary>& heads);

}  // namespace heed::cli
