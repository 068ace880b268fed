// Answers to questions about a subject, from its report and, for single cells, from query, key and lse.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "look/arguments.hpp"
#include "look/document.hpp"

namespace heed::cli {

struct KeyWeight {
  std::int64_t key = 0;
  double weight = 0;
};

/// What one row of one head attends to.
struct RowOfHead {
  std::int64_t batch = 0, head = 0, row = 0;
  double entropy = 0;
  double distance = 0;
  std::vector<KeyWeight> top;   ///< the heaviest first
  std::vector<double> weights;  ///< of every key; only where one row was asked for
};

/// Heads of the summary that were asked for, in the order asked for.
[[nodiscard]] std::vector<HeadSummary> heads_of(const Subject& subject, const LookArguments& arguments);

/// The row of --row in every head asked for.
[[nodiscard]] std::vector<RowOfHead> answer_row(const Subject& subject, const LookArguments& arguments);

/// Every row whose token is that of --token, in every head asked for. Throws UsageError where there is none.
[[nodiscard]] std::vector<RowOfHead> answer_token(const Subject& subject, const LookArguments& arguments);

/// The tile of --tile in the heads asked for.
[[nodiscard]] WeightTile answer_tile(const Subject& subject, const LookArguments& arguments);

/// The weights summed into the bins of --map, [B, H, R, C]: from the report's map where that holds them, else
/// computed.
[[nodiscard]] Tensor answer_map(const Subject& subject, const LookArguments& arguments);

/// Lets --tile end where the rows and the keys do. Returns whether it was longer.
bool cut_tile(const Subject& subject, LookArguments& arguments);

/// Throws UsageError, before any work, where a question lies outside the matrix or its answer would not fit.
void check_question(const Subject& subject, const LookArguments& arguments);

/// Element [indices…] of an f32 or f64 tensor.
[[nodiscard]] double number_at(const Tensor& tensor, std::initializer_list<std::int64_t> index);

}  // namespace heed::cli
