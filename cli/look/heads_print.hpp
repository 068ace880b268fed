// The tables of heads as text.
#pragma once

#include <string>
#include <vector>

#include "look/heads_order.hpp"
#include "terminal.hpp"

namespace heed::cli {

/// The score behind the name: "0.66", or "0.66*" for a score without the first key's weight. Empty without a
/// name.
[[nodiscard]] std::string score_text(const HeadSummary& head);

/// Prints a table of the heads. `with_keys` adds each head's most attended keys.
void print_heads(const TextOutput& output, const Document& document, const std::vector<HeadSummary>& heads,
                 bool with_keys);
/// Prints the answer to --find or --needle, one line per head. Otherwise the table, with keys for few heads
/// without --brief.
void print_answer(const TextOutput& output, const Document& document, const std::vector<HeadSummary>& heads,
                  const HeadsQuestion& question, const Needle& needle);
/// Prints the most received keys, averaged over `heads` heads: all, or those in the table above. Prints
/// nothing without keys.
void print_most_received(const TextOutput& output, const Document& document,
                         const std::vector<ReceivedKey>& keys, std::size_t heads);
/// Prints the cost of each result beside the plain forward pass.
void print_cost(const TextOutput& output, const std::vector<CostLine>& cost);

}  // namespace heed::cli
