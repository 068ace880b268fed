// Text output of `heed look`.
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
/// "head 3", or "batch 1, head 3" for several batch entries.
[[nodiscard]] std::string plane_text(const Document& document, std::int64_t batch, std::int64_t head);
/// Prints the subject in one or two lines.
void print_call(const TextOutput& output, const Document& document);
/// Prints a table of the heads. `with_keys` adds each head's most attended keys.
void print_heads(const TextOutput& output, const Document& document, const std::vector<HeadSummary>& heads,
                 bool with_keys);
/// Prints the most received keys, averaged over `heads` heads: all, or those in the table above. Prints
/// nothing without keys.
void print_most_received(const TextOutput& output, const Document& document,
                         const std::vector<ReceivedKey>& keys, std::size_t heads);
/// Prints the cost of each result beside the plain forward pass.
void print_cost(const TextOutput& output, const std::vector<CostLine>& cost);
/// Prints rows with their most attended keys, at most 100 rows.
void print_rows(const TextOutput& output, const Document& document, const std::vector<AttendedRow>& rows);
/// Prints the keys that each policy evicted, and the losses of the heads.
void print_evictions(const TextOutput& output, const Document& document,
                     const std::vector<Eviction>& evictions, const LookArguments& arguments);
/// Draws each head of the tile, binned if it is larger than the output. `heads` are the heads of its head
/// axis; it is empty if there is only one, or if all are shown.
void print_tile(const TextOutput& output, const Document& document, const WeightTile& tile,
                const std::vector<std::int64_t>& heads);
/// Draws a map [B, H, R, C] of each of `heads`, in that order.
void print_map(const TextOutput& output, const Document& document, const Tensor& map,
               const std::vector<HeadSummary>& heads);

/// Draws the masks of `heads`. A mask equal to the previous one is skipped.
void print_masks(const TextOutput& output, const Document& document, const std::vector<HeadSummary>& heads);

}  // namespace heed::cli
