// Heads that stand out: those nearest to a name, those that find a needle, and what all of them look at.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "heed/document.hpp"
#include "heed/model_look.hpp"
#include "look/arguments.hpp"
#include "terminal.hpp"

namespace heed::cli {

/// Heads of the summary that were asked for, in the order asked for, --top of them. `retrieval` has one a
/// head of the document where a needle is asked for.
[[nodiscard]] std::vector<HeadSummary> ranked_heads(const Document& document, const LookArguments& arguments,
                                                    const std::vector<Retrieval>& retrieval);

/// The answer to --find or --needle: a line a head.
void print_ranking(const TextOutput& output, const Document& document, const std::vector<HeadSummary>& heads,
                   const LookArguments& arguments, const std::vector<Retrieval>& retrieval);

/// Adds "needle" to each of the heads' objects.
void add_retrieval(const std::vector<HeadSummary>& heads, const std::vector<Retrieval>& retrieval,
                   nlohmann::ordered_json& list);

/// The keys that these heads attend to most, all together, with the mean of what a head gives them.
struct ReceivedKey {
  std::int64_t key = 0;
  double weight = 0;
};
[[nodiscard]] std::vector<ReceivedKey> most_received(const Document& document,
                                                     const std::vector<HeadSummary>& heads);

}  // namespace heed::cli
