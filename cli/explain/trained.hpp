// heed explain --model: what the heads of a trained model do with some words.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "explain/print.hpp"
#include "heed/model.hpp"

namespace heed::cli {

/// Which heads to tell of: those named, or all of a layer. Where neither is chosen, the table has all, and
/// those are drawn that best fit a pattern: the previous-token and the induction head, or, without any such,
/// each layer's.
struct HeadChoice {
  std::optional<std::string> layer;  ///< its name
  std::vector<std::string> heads;    ///< "3", "1.3", as heed look counts them
};

/// Prints the table that heed look --model prints, the maps of heads, and what the model expects next. Throws
/// UsageError for a layer or head that the model does not have.
void explain_trained(const TextOutput& output, const TrainedModel& trained, const std::string& name,
                     const Reading& reading, const HeadChoice& choice);
/// The same as one JSON object with all heads chosen (all of them where none is).
void explain_trained_json(std::ostream& out, const TrainedModel& trained, const std::string& name,
                          const Reading& reading, const HeadChoice& choice);

}  // namespace heed::cli
