// What the heads of a model look like on some texts, for the poster of `heed atlas`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heed/document.hpp"
#include "picture/atlas.hpp"

namespace heed::cli {

/// A head on all texts together.
struct HeadStudy {
  std::vector<double> scores;  ///< of each HeadPattern: the mean over the texts that have one, else NaN
  AtlasHead head;              ///< its map and example are those of the text that has the best example
};

/// All heads of batch entry `batch` of each text. Throws UsageError where the texts are not of the same
/// layers and heads.
[[nodiscard]] std::vector<HeadStudy> study_heads(const std::vector<Document>& texts, std::int64_t batch);

/// The score that differs most, as "induction +0.62", and by how much; empty and 0 where none does.
struct ScoreChange {
  double size = 0;
  std::string text;
};
[[nodiscard]] ScoreChange change_between(const HeadStudy& from, const HeadStudy& to);

}  // namespace heed::cli
