// Examples of heads: where, over many texts, a head moves most from one token to another.
//
// Row i takes p_ij |v_j W_O| from key j (Kobayashi et al. 2020), with the head's slice of W_O. Each row
// counts with the key from which it takes most. Rows that see one key alone are left out.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "heed/export.hpp"
#include "heed/inspect/reports.hpp"
#include "heed/model/model.hpp"

namespace heed {

/// A row and a key of a text.
struct HeadExample {
  std::int64_t text = 0;  ///< index of the text
  std::int64_t row = 0, key = 0;
  double weight = 0;  ///< p_ij
  double moved = 0;   ///< p_ij |v_j W_O|
};

/// A token, or a distance, at which a head moves more than elsewhere.
struct HeadHabit {
  std::int64_t what = 0;  ///< the token's id; the distance row - key
  std::int64_t rows = 0;  ///< number of rows with it
  double moved = 0;       ///< their share of all that the head moves
  double usual = 0;       ///< for tokens: their share of all tokens
};

/// A head's strongest examples over many texts, and its habits.
struct HeadExamples {
  ModelHead head{};
  HeadSummary summary{};            ///< over all texts, by shares of what rows take
  std::vector<HeadExample> best{};  ///< at most one a text; the largest `moved` first
  double mean = 0;                  ///< of `moved` over the rows
  /// Where `moved` exceeds `usual` most; for distances, the largest `moved`. Tokens are left out for a model
  /// whose tokens have no meaning (ModelInfo::symbols).
  std::vector<HeadHabit> rows{}, keys{}, distances{};
};

/// The heads and the number of examples.
struct ExampleOptions {
  std::optional<ModelHead> head{};  ///< only this head; default: all, in order
  std::int64_t best = 10;           ///< number of examples, 1 to 1,000
  std::int64_t habits = 5;          ///< number of habits of each kind, 0 to 1,000
  int threads = 0;                  ///< 0: all processors
  /// Receives the share of texts that are done, from 0 to 1.
  std::function<void(double share)> progress{};
};

/// Runs the model once a text, in O(L) memory. Throws Errors as Model::hidden_states() does, and Error
/// (invalid_argument) for no texts, an option out of range, and a model with a bias of its own (MPNet).
[[nodiscard]] HEED_API std::vector<HeadExamples> examples_of_heads(const Model& model,
                                                                   std::span<const ModelTokens> texts,
                                                                   const ExampleOptions& options = {});

}  // namespace heed
