// One token on its way through a model: what each layer adds to it, what its heads attend to, and what would
// be predicted there.
#pragma once

#include <cstdint>
#include <vector>

#include "heed/export.hpp"
#include "heed/model.hpp"
#include "heed/model_generate.hpp"

namespace heed {

struct WalkedLayer {
  double stream = 0;     ///< length |x| of the token's residual stream before the layer
  double attention = 0;  ///< of what the heads add, behind W_O
  double rest = 0;  ///< of what else the layer changes: the MLP, and norms that lie along the stream (BERT)
  /// As GeneratedToken::watched, of this layer's heads: each token once, with the head that attends to it
  /// most.
  std::vector<WatchedPair> attended;
  std::vector<Expectation>
      predicted;  ///< behind the layer, the likeliest first; none where the model has no head
};

struct Walk {
  std::int64_t row = 0;
  std::vector<WalkedLayer> layers;
  double stream = 0;                  ///< |x| behind the last layer, before the last norm
  std::vector<Expectation> embedded;  ///< what the embedding alone would predict
};

/// The token at `row` of a text; `count` tokens are named of what heads attend to and of what is predicted.
/// Throws Error as hidden_states() does, and invalid_argument for a row that there is not.
[[nodiscard]] HEED_API Walk walk(const Model& model, const ModelTokens& text, std::int64_t row,
                                 std::int64_t count = 3, int threads = 0);

}  // namespace heed
