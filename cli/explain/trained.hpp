// heed explain --model: a trained model's heads and predictions on a text.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "explain/print.hpp"
#include "heed/model/model.hpp"

namespace heed::cli {

/// The heads to print: the named ones, or all of a layer. Without either, the table lists all heads. It is
/// followed by the maps of the best previous-token head and the best induction head, or of one head per layer
/// if neither exists.
struct HeadChoice {
  std::optional<std::string> layer;  ///< its name
  std::vector<std::string> heads;    ///< "3", "1.3", numbered as in heed look
};

struct ModelReading {
  const heed::Model& model;
  std::string name;  ///< the model's
  ModelTokens tokens;
  Tensor logits;  ///< [L, vocabulary]; empty if the model predicts no tokens
};
[[nodiscard]] ModelReading read_with(const heed::Model& model, const std::string& name, ModelTokens tokens);

/// Prints the table of heed look --model, the head maps, and the model's next-token prediction. Throws
/// UsageError for an unknown layer or head.
void explain_trained(const TextOutput& output, const ModelReading& reading, const HeadChoice& choice);
/// The same as one JSON object, with all chosen heads (by default all).
void explain_trained_json(std::ostream& out, const ModelReading& reading, const HeadChoice& choice);

/// Follows the token at `row` through the layers: what each layer adds, attends to and would predict.
void explain_walk(const TextOutput& output, const ModelReading& reading, std::int64_t row);
void explain_walk_json(std::ostream& out, const ModelReading& reading, std::int64_t row);

}  // namespace heed::cli
