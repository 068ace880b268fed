// A page that contains a trained model and runs it: one self-contained HTML file, which needs no network.
// Readers type words and see every step of the model change.
#pragma once

#include <cstdint>
#include <string>

#include "heed/export.hpp"
#include "heed/nn/trained_model.hpp"

namespace heed {

/// Options of write_living_page().
struct LivingPage {
  std::string name;  ///< name of the model: "induction"
  std::string text;  ///< text that the page starts with; empty: one that the model can read
};

/// Limits for the model, which the page runs again at every keystroke.
inline constexpr std::int64_t kMaxLivingParameters = 500'000;
inline constexpr std::int64_t kMaxLivingContext = 256;

/// Writes the page atomically; its numbers take 16 / 3 bytes per parameter. Throws Error: invalid_argument
/// for a model beyond the limits, or for a text that the model cannot read (message starts with "the text");
/// io if the file cannot be written.
HEED_API void write_living_page(const std::string& path, const TrainedModel& trained, const LivingPage& page);

}  // namespace heed
