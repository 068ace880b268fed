// Circuits: the heads, and the reads between them, through which a logit comes about.
//
// A logit is a sum over what the parts of the model wrote to the last row of the stream. What a head wrote
// there is a sum over what it read, and so on, back to the embeddings. With norms and weights held, these
// sums are exact (Elhage et al. 2021). A part of a query or key is worth what the head would lose without it.
// The search follows the largest shares backwards, for each head to at most eight keys and eight values. It
// checks each edge by patching: the reader alone runs without what the writer wrote (as in ACDC; Conmy et al.
// 2023).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "heed/export.hpp"
#include "heed/model/model.hpp"
#include "heed/model/why.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// The input of a reader that an edge enters.
enum class EdgeInto {
  logit,  ///< the logit itself
  value,  ///< the value of a key that a head attends to
  key,    ///< the key, and so the head's weights
  query   ///< the query of the head's row, and so its weights
};
/// "logit", "value", "key", "query".
[[nodiscard]] HEED_API std::string_view name_of(EdgeInto into);

/// A part of the model that writes, and the place where a head or the logit reads it.
struct CircuitEdge {
  StreamPart writer;
  std::int64_t place = 0;  ///< the position where it wrote, and where it is read
  EdgeInto into = EdgeInto::logit;
  ModelHead reader{};           ///< not for logit
  std::int64_t reader_row = 0;  ///< the row of the reader; `place` for logit and query
  double share = 0;             ///< in the logit, with norms held
  double patched = 0;  ///< how far the logit falls if the reader alone does not see it; NaN if not patched
};

/// The predicted token that a circuit explains, and the number of its edges.
struct CircuitOptions {
  std::optional<std::int64_t> row{};    ///< the row that predicts; default: the last
  std::optional<std::int64_t> token{};  ///< the predicted token; default: the likeliest
  std::optional<std::int64_t> than{};   ///< another token, whose logit is subtracted
  std::int64_t edges = 30;              ///< at most, 1 to 1,000
  bool patch = true;                    ///< runs the model once for each read that is checked
  int threads = 0;                      ///< 0: all processors
};

/// The edges behind a predicted token.
struct Circuit {
  std::int64_t row = 0;
  std::int64_t token = 0;
  std::optional<std::int64_t> than{};
  double logit = 0;      ///< before a last softcap; a difference if there is `than`
  double threshold = 0;  ///< reads with at least this share were checked
  /// From the logit backwards: readers of later layers first, then by share.
  std::vector<CircuitEdge> edges{};
  /// Edges that patching denies: it moves the logit by less than half of the threshold. They were not
  /// followed.
  std::vector<CircuitEdge> denied{};
};

/// tokens [L], i64 or i32, as for Model::hidden_states(), whose Errors it throws; also Error
/// (invalid_argument) for a row or token out of range, for a model whose logits are not a sum of the layers'
/// outputs (BERT), and for a text whose streams take more than 2 GiB.
[[nodiscard]] HEED_API Circuit find_circuit(const Model& model, const TensorView& tokens,
                                            const CircuitOptions& options = {});

}  // namespace heed
