// Heads that make one word attend to another, and the other keys of the best head.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "heed/inspect/document.hpp"
#include "terminal.hpp"

namespace heed::cli {

struct PairAnswer {
  Document document;
  std::vector<std::int64_t> rows, keys;  ///< positions of the two words
  std::vector<PairWeight> heads;         ///< all heads, heaviest first
  std::string text{};                    ///< as typed; empty if only its tokens are known
};

/// `row` and `key` are words from the command line. Throws UsageError if the text lacks one. `of_text`, such
/// as " for --against", names the text in the message; `hint` ends it if the text lacks the key.
[[nodiscard]] PairAnswer answer_pair(Document document, const std::string& row, const std::string& key,
                                     const std::string& of_text = "", const std::string& hint = "");

struct PairPrinting {
  std::string row, key;     ///< as given
  std::int64_t heads = 10;  ///< lines of the table
  std::int64_t top_k = 12;  ///< keys listed for a row that is too long to draw whole
};

/// Prints the table of heads and draws the best head's row. `against`, if not null, is the answer for another
/// text.
void print_pair(const TextOutput& output, const PairAnswer& answer, const PairAnswer* against,
                const PairPrinting& printing);

/// All heads, with the `top_k` heaviest keys of their rows.
[[nodiscard]] nlohmann::ordered_json pair_json(const PairAnswer& answer, const PairAnswer* against,
                                               const PairPrinting& printing);

}  // namespace heed::cli
