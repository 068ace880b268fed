// heed look --row and --token: what single queries attend to.
#pragma once

#include <optional>
#include <string>

#include "look/subject.hpp"

namespace heed::cli {

struct RowsQuestion {
  std::optional<std::string> row;   ///< "5", "5:10", "5,7", a word
  std::optional<std::string> word;  ///< of --token
};

void add_row_option(CLI::App& app, RowsQuestion& question);
void add_token_option(CLI::App& app, RowsQuestion& question);

/// Throws UsageError, before any work, for unknown rows and words.
void answer_rows(Subject subject, const RowsQuestion& question);

}  // namespace heed::cli
