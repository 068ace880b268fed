// Why a head looks where it looks: the writers of one score.
//
// The score of row i and key j in a head is scale <q_i, k_j>. With norms held at their values, q_i and k_j
// are sums over all parts that the stream has at i and j before the layer: the embedding, the output of each
// earlier head, of each earlier MLP, and the biases. So the score is the sum of a table, a part of q_i times
// a part of k_j (Elhage et al. 2021, compositions Q and K, on one text).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heed/export.hpp"
#include "heed/model/model.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// A summand of the residual stream at one position.
struct StreamPart {
  /// The origin of a summand.
  enum class Kind {
    token,     ///< the embedding of the token, with all that the model adds to it but the position
    position,  ///< the embedding of the position
    head,      ///< what a head of an earlier layer wrote
    mlp,       ///< what the rest of an earlier layer wrote
    biases     ///< of output projections, norms, and the projection of queries or keys
  };
  Kind kind = Kind::biases;
  std::int64_t layer = 0;  ///< for head and mlp
  std::int64_t head = 0;   ///< for head
  std::int64_t from = -1;  ///< for head: the key with its largest weight at this position; -1: none
  double from_weight = 0;  ///< that weight
};

/// "4.2".
[[nodiscard]] HEED_API std::string to_string(const ModelHead& head);
/// "4.2", "MLP 3", "token", "position", "biases".
[[nodiscard]] HEED_API std::string to_string(const StreamPart& part);

/// A score as a sum over pairs of parts: of the query and of the key.
struct ScoreSplit {
  ModelHead head{};
  std::int64_t row = 0, key = 0;
  double score = 0;   ///< scale <q, k>: the sum of the table
  double biased = 0;  ///< the score that the softmax sees: after softcap and bias
  double weight = 0;  ///< p_ij
  std::vector<StreamPart> query_parts, key_parts;
  Tensor table;  ///< [query parts, key parts], f64
};

/// The question why a row looks at a key. Several rows and keys may be given (all places of a word); the pair
/// with the largest weight is taken.
struct WhyQuestion {
  std::vector<std::int64_t> rows, keys;  ///< 1 to 32 each
  std::vector<std::int64_t> than{};      ///< other keys, to compare with; 0 to 32
  std::optional<ModelHead> head{};       ///< default: the head with the largest weight
  int threads = 0;                       ///< 0: all processors
};

/// Why a head looks from a row to a key.
struct WhyAnswer {
  ScoreSplit split;
  std::optional<ScoreSplit> than{};  ///< the same row and head with the heaviest of the other keys
};

/// Runs the model over tokens [L] once. Memory is O(L) besides the run's. Throws Errors as
/// Model::hidden_states() does, and Error (invalid_argument) for a row, key or head out of range, and for a
/// row that may see none of the keys.
[[nodiscard]] HEED_API WhyAnswer why(const Model& model, const TensorView& tokens,
                                     const WhyQuestion& question);

/// Subtracts b from a, entry by entry: why one key and not another, or one text and not another. The result
/// keeps the row, key, head and parts of a. Throws Error (invalid_argument) if the tables differ in shape.
[[nodiscard]] HEED_API ScoreSplit difference(const ScoreSplit& a, const ScoreSplit& b);

/// The sum of each row of the table, and of each column: a part with the whole of the other side.
[[nodiscard]] HEED_API std::vector<double> query_shares(const ScoreSplit& split);
[[nodiscard]] HEED_API std::vector<double> key_shares(const ScoreSplit& split);

/// An entry of the table of a ScoreSplit.
struct PartPair {
  std::int64_t query = 0, key = 0;  ///< indices of parts
  double share = 0;
};
/// The largest entries of the table by size, largest first.
[[nodiscard]] HEED_API std::vector<PartPair> largest_pairs(const ScoreSplit& split, std::int64_t count);

}  // namespace heed
