// heed explain --model: what a model and its heads do with some words.
#pragma once

#include <cstdint>
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

/// A text that a model read.
struct ModelReading {
  const heed::Model& model;
  std::string name;  ///< the model's
  ModelTokens tokens;
  Tensor logits;  ///< [L, vocabulary]; empty where the model predicts none
};
[[nodiscard]] ModelReading read_with(const heed::Model& model, const std::string& name,
                                     const std::string& text, const std::string& source);

/// Prints the table that heed look --model prints, the maps of heads, and what the model expects next. Throws
/// UsageError for a layer or head that the model does not have.
void explain_trained(const TextOutput& output, const ModelReading& reading, const HeadChoice& choice);
/// The same as one JSON object with all heads chosen (all of them where none is).
void explain_trained_json(std::ostream& out, const ModelReading& reading, const HeadChoice& choice);

/// The token at `row` on its way through the layers: what they add, attend to, and would predict.
void explain_walk(const TextOutput& output, const ModelReading& reading, std::int64_t row);
void explain_walk_json(std::ostream& out, const ModelReading& reading, std::int64_t row);

}  // namespace heed::cli
