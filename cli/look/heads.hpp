// The summary of the heads: what heed look answers unless another question is asked.
#pragma once

#include <optional>
#include <string>

#include "heed/inspect/reports.hpp"
#include "look/page.hpp"
#include "look/subject.hpp"

namespace heed::cli {

struct HeadsQuestion {
  std::string sort;                 ///< one of sort_columns(); empty: in the order of their numbers
  bool brief = false;               ///< one line per head
  std::optional<HeadPattern> find;  ///< rank heads by this pattern
  std::string needle;               ///< find heads that retrieve these words
  std::optional<std::int64_t> top;  ///< number of heads to list
  MapSize map{};
  bool draw_mask = false;
  bool price = false;  ///< always print the cost of the summary
  PageOptions page;
};

/// Adds the options of the question; add_page_options() adds the others.
void add_heads_options(CLI::App& app, HeadsQuestion& question);

/// `command` is question_command(). Throws UsageError, before any work, if the call cannot answer an option.
void answer_heads(const LookSource& source, const SharedOptions& shared, const HeadsQuestion& question,
                  const std::string& command);

/// The summary of several texts that a model reads.
void answer_texts(const LookSource& source, const SharedOptions& shared, const HeadsQuestion& question);

}  // namespace heed::cli
