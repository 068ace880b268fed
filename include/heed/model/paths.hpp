// Paths through one head into a logit: from each key, and on through each later head.
//
// The head's share in the logit is the sum over its keys of p_ij <v_j W_O, u>, where u is the token's
// direction behind the norms, which are held. A path of two goes through a later head of the same row, which
// reads what the head wrote: in its values (at every position), keys or query (Elhage et al. 2021,
// "composition").
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "heed/export.hpp"
#include "heed/model/circuit.hpp"
#include "heed/model/model.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// A key of a head, and its share in the logit.
struct HeadKeyShare {
  std::int64_t key = 0;
  double weight = 0;  ///< p_ij
  double share = 0;   ///< in the logit
};

/// A path to the logit through a later head.
struct PathOfTwo {
  ModelHead reader{};
  EdgeInto into = EdgeInto::value;  ///< value, key or query
  /// In the logit. For values, what the reader carries on, summed over its keys. For keys (all of them) and
  /// the query, what the reader would write less without the head.
  double share = 0;
};

/// The predicted token that paths lead to.
struct PathOptions {
  std::optional<std::int64_t> row{};    ///< as in CircuitOptions
  std::optional<std::int64_t> token{};  ///< as in CircuitOptions
  std::optional<std::int64_t> than{};   ///< as in CircuitOptions
  int threads = 0;                      ///< 0: all processors
};

/// The paths from a head to a predicted token.
struct HeadPaths {
  std::int64_t row = 0;
  std::int64_t token = 0;
  double logit = 0;                  ///< before a last softcap; a difference if there is `than`
  double share = 0;                  ///< of the head at the row: the sum of `keys`
  std::vector<HeadKeyShare> keys{};  ///< those that the row sees, ascending
  std::vector<PathOfTwo> later{};    ///< three for each later head; the largest by size first
};

/// Runs the model once. The streams take at most 2 GiB. Throws Errors as find_circuit() does,
/// and for a head out of range.
[[nodiscard]] HEED_API HeadPaths paths_of_head(const Model& model, const TensorView& tokens,
                                               const ModelHead& head, const PathOptions& options = {});

}  // namespace heed
