// Which heads make one word attend to another, and what else the best of them attends to.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "heed/document.hpp"
#include "terminal.hpp"

namespace heed::cli {

/// What was asked of one text.
struct PairAnswer {
  Document document;
  std::vector<std::int64_t> rows, keys;  ///< where the two words stand
  std::vector<PairWeight> heads;         ///< all of them, the heaviest first
};

/// `row` and `key` as the command line has them. Throws UsageError where the text lacks one; `of_text`, such
/// as " for --against", tells which text that is.
[[nodiscard]] PairAnswer answer_pair(Document document, const std::string& row, const std::string& key,
                                     const std::string& of_text = "");

struct PairPrinting {
  std::string row, key;     ///< as they were asked for
  std::int64_t heads = 10;  ///< lines of the table
  std::int64_t top_k = 12;  ///< keys of a row that is too long to be drawn whole
};

/// The table of the heads, and the row of the best one, drawn. `against`, where not null, is the same
/// question of another text.
void print_pair(const TextOutput& output, const PairAnswer& answer, const PairAnswer* against,
                const PairPrinting& printing);

/// All heads with the `top_k` heaviest keys of their rows.
[[nodiscard]] nlohmann::ordered_json pair_json(const PairAnswer& answer, const PairAnswer* against,
                                               const PairPrinting& printing);

}  // namespace heed::cli
