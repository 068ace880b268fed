// The selection and the order of the heads in the summary.
#pragma once

#include <string>
#include <vector>

#include "heed/model/look.hpp"
#include "look/heads.hpp"

namespace heed::cli {

[[nodiscard]] const std::vector<std::string>& sort_columns();
/// The columns that are names of heads, in the order of HeadPattern.
[[nodiscard]] std::vector<std::string> pattern_columns();

/// The tokens of --needle, and its retrieval by each head of the document. Empty: not asked for.
struct Needle {
  std::vector<TokenSpan> spans{};
  std::vector<Retrieval> retrieval{};

  [[nodiscard]] const Retrieval& by(const HeadSummary& head) const {
    return retrieval[static_cast<std::size_t>(head.head)];
  }
};

[[nodiscard]] const PatternScore& score_of_pattern(const HeadSummary& head, HeadPattern pattern);

/// The selected heads, in the order of --sort or --brief. Ties keep their order.
[[nodiscard]] std::vector<HeadSummary> sorted_heads(const Subject& subject, const HeadsQuestion& question);
/// The same, ordered by the score of --find or --needle if given. --top limits their number.
[[nodiscard]] std::vector<HeadSummary> ranked_heads(const Subject& subject, const HeadsQuestion& question,
                                                    const Needle& needle);

/// A key and the mean weight that heads give it. most_received() lists the largest.
struct ReceivedKey {
  std::int64_t key = 0;
  double weight = 0;
};
[[nodiscard]] std::vector<ReceivedKey> most_received(const Document& document,
                                                     const std::vector<HeadSummary>& heads);

}  // namespace heed::cli
