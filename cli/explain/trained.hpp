// heed explain --model: what the heads of a trained model do with some words.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include "explain/print.hpp"
#include "heed/model.hpp"

namespace heed::cli {

/// Which heads to draw: all of a layer, one of them, or, where no layer is chosen, those that best fit a
/// pattern: the previous-token and the induction head, or, without any such, each layer's.
struct HeadChoice {
  std::optional<std::int64_t> layer;  ///< from 1
  std::optional<std::int64_t> head;   ///< from 0, as heed look counts them
};

/// Throws UsageError for a layer or head that the model does not have.
void explain_trained(const TextOutput& output, const TrainedModel& trained, const std::string& name,
                     const Reading& reading, const HeadChoice& choice);
/// The same as one JSON object with all heads chosen (all of them where none is).
void explain_trained_json(std::ostream& out, const TrainedModel& trained, const std::string& name,
                          const Reading& reading, const HeadChoice& choice);

}  // namespace heed::cli
