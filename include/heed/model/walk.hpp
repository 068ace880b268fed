// The path of one token through a model: what each layer adds, what its heads attend to, and what it would
// predict.
#pragma once

#include <cstdint>
#include <vector>

#include "heed/export.hpp"
#include "heed/model/generate.hpp"
#include "heed/model/model.hpp"

namespace heed {

/// A token at one layer: what it reads and what it would predict.
struct WalkedLayer {
  double stream = 0;     ///< norm |x| of the token's residual stream before the layer
  double attention = 0;  ///< norm of what the heads add, after W_O
  double rest = 0;       ///< norm of all other changes by the layer: the MLP, and norms on the stream (BERT)
  /// Like GeneratedToken::watched for this layer's heads: each token once, with the head that attends to it
  /// most.
  std::vector<WatchedPair> attended;
  /// After the layer, the likeliest first; empty if the model does not predict.
  std::vector<Expectation> predicted;
};

/// A token's way through the layers.
struct Walk {
  std::int64_t row = 0;
  std::vector<WalkedLayer> layers;
  double stream = 0;                  ///< |x| after the last layer, before the final norm
  std::vector<Expectation> embedded;  ///< prediction from the embedding alone
};

/// Follows the token at `row` of a text. Lists `count` attended tokens and `count` predicted tokens per
/// layer. Throws Error as hidden_states() does, and invalid_argument for a row out of range.
[[nodiscard]] HEED_API Walk walk(const Model& model, const ModelTokens& text, std::int64_t row,
                                 std::int64_t count = 3, int threads = 0);

}  // namespace heed
