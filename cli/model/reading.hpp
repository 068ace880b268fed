// A trained model while it reads some words.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heed/inspect.hpp"
#include "model/folder.hpp"

namespace heed::cli {

/// What it expects at one place.
struct Expectation {
  std::string token;
  double probability = 0;
};

struct Reading {
  std::vector<std::string> tokens;        ///< L of them
  std::vector<Tensor> query, key, value;  ///< a layer: [H, L, d]
  Tensor logits;                          ///< [L, vocabulary]
};

/// Throws UsageError, naming `source`, for text that the model cannot read: no tokens, more than its context,
/// or tokens that it does not know.
[[nodiscard]] Reading read_words(const TrainedModel& trained, const std::string& text,
                                 const std::string& source);

/// A layer's heads, of which `layer` counts from 0: summaries and names, and all weights.
[[nodiscard]] AttentionReport report_of_layer(const Reading& reading, std::int64_t layer);

/// The `count` likeliest tokens after place `place`, the likeliest first.
[[nodiscard]] std::vector<Expectation> expected_after(const TrainedModel& trained, const Reading& reading,
                                                      std::int64_t place, std::int64_t count);

/// "induction: 2 layers of 4 heads, attention only, 45952 parameters".
[[nodiscard]] std::string description_of(const TrainedModel& trained, const std::string& name);

}  // namespace heed::cli
