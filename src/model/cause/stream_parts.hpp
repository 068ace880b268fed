// Splits the residual stream at one row into its writers: the embedding, heads, MLPs and biases.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heed/model/why.hpp"
#include "model/cause/row_trace.hpp"
#include "model/families/family.hpp"

namespace heed::detail {

struct StreamParts {
  std::vector<StreamPart> parts;           ///< the last are the biases
  std::vector<std::vector<double>> added;  ///< [D] each; they sum to the stream
};

/// The parts before `layer` at position `at` of the text `ids`, whose trace is given. A norm of the stream
/// (BERT) is held at its value and applied to all parts.
[[nodiscard]] StreamParts parts_of_stream(const Model& model, const RowTrace& trace,
                                          std::span<const std::int64_t> ids, std::int64_t at,
                                          std::int64_t layer, int threads);

/// The parts of a head's input [d] at position `at` of a text of `length` tokens: [parts, d], f64.
[[nodiscard]] Tensor project_parts(const StreamParts& stream, const HeadInput& input, std::int64_t size,
                                   std::int64_t at, std::int64_t length, int threads);

}  // namespace heed::detail
