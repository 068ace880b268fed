// Statistics of a model's heads over several texts, for the poster of `heed atlas`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heed/inspect/document.hpp"
#include "picture/atlas.hpp"

namespace heed::cli {

/// One head over all texts.
struct HeadStudy {
  std::vector<double> scores;  ///< one per HeadPattern: the mean over the texts that have one, else NaN
  AtlasHead head;              ///< its map and example come from the text with the best example
};

/// Studies all heads of batch entry `batch` over the texts. Throws UsageError if a text has no such batch
/// entry or if the texts differ in their number of heads.
[[nodiscard]] std::vector<HeadStudy> study_heads(const std::vector<Document>& texts, std::int64_t batch);

/// The score that changes most and the size of its change. The text reads "induction +0.62". Both are empty
/// or 0 if no score changes.
struct ScoreChange {
  double size = 0;
  std::string text;
};
[[nodiscard]] ScoreChange change_between(const HeadStudy& from, const HeadStudy& to);

}  // namespace heed::cli
