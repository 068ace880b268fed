// Rankings of heads: the best matches for a name, the best retrievers of a needle, and the keys most attended
// by all.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "heed/inspect/document.hpp"
#include "heed/model/look.hpp"
#include "look/arguments.hpp"
#include "terminal.hpp"

namespace heed::cli {

/// The requested heads, ordered by --find's or --needle's score if given. --top limits their number. For a
/// needle, `retrieval` has one entry per head of the document.
[[nodiscard]] std::vector<HeadSummary> ranked_heads(const Document& document, const LookArguments& arguments,
                                                    const std::vector<Retrieval>& retrieval);

/// Prints the answer to --find or --needle, one line per head.
void print_ranking(const TextOutput& output, const Document& document, const std::vector<HeadSummary>& heads,
                   const LookArguments& arguments, const std::vector<Retrieval>& retrieval);

/// Adds "needle" to the JSON object of each head.
void add_retrieval(const std::vector<HeadSummary>& heads, const std::vector<Retrieval>& retrieval,
                   nlohmann::ordered_json& list);

/// A key and the mean weight that heads give it. most_received() lists the largest.
struct ReceivedKey {
  std::int64_t key = 0;
  double weight = 0;
};
[[nodiscard]] std::vector<ReceivedKey> most_received(const Document& document,
                                                     const std::vector<HeadSummary>& heads);

}  // namespace heed::cli
