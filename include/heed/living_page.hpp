// A page that holds a trained model and computes with it: one HTML file, in which one types words and sees
// every step of the model change. It needs nothing else, no network either.
#pragma once

#include <cstdint>
#include <string>

#include "heed/export.hpp"
#include "heed/trained_model.hpp"

namespace heed {

struct LivingPage {
  std::string name;  ///< of the model: "induction"
  std::string text;  ///< that the page opens with; empty: one that the model can read
};

/// The most that a page computes anew at every letter.
inline constexpr std::int64_t kMostLivingParameters = 500'000;
inline constexpr std::int64_t kMostLivingContext = 256;

/// Writes the page, whole or not at all; its numbers take 16 / 3 bytes a parameter. Throws Error:
/// invalid_argument for a larger model, or a text that it cannot read (the message begins with "the text");
/// io where the file cannot be written.
HEED_API void write_living_page(const std::string& path, const TrainedModel& trained, const LivingPage& page);

}  // namespace heed
