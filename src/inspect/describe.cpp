#include "inspect/describe.hpp"

#include <string>
#include <utility>
#include <vector>

#include "core/message.hpp"
#include "inspect/rows.hpp"

namespace heed::detail {
namespace {

// The options that differ from the defaults, named as in `heed attend`, in the order of AttentionOptions.
std::vector<std::pair<std::string, std::string>> describe_options(const AttentionOptions& options) {
  std::vector<std::pair<std::string, std::string>> words;
  const auto tensor = [&](const char* name, const std::optional<TensorView>& view) {
    if (view) words.emplace_back(name, text_of(view->dtype()) + " " + text_of(view->shape()));
  };
  if (options.scale) words.emplace_back("scale", text_of(*options.scale));
  if (options.causal) words.emplace_back("causal", "true");
  if (options.align == Align::bottom_right) words.emplace_back("align", "bottom-right");
  if (options.query_offset) words.emplace_back("query-offset", text_of(*options.query_offset));
  if (options.window.left >= 0 || options.window.right >= 0)
    words.emplace_back("window", text_of(options.window.left) + "," + text_of(options.window.right));
  tensor("mask", options.mask);
  if (const SparseMask& mask = options.sparse_mask; !mask.is_empty())
    words.emplace_back("sparse-mask",
                       text_of(Dims{mask.batch(), mask.heads(), mask.query_length(), mask.key_length()}));
  if (!options.score_mod.is_empty()) {
    const std::string_view text = options.score_mod.part()->text();
    words.emplace_back("score-expression", text.empty() ? "a compiled function" : std::string(text));
  }
  tensor("bias", options.bias);
  if (options.softcap > 0) words.emplace_back("softcap", text_of(options.softcap));
  tensor("alibi", options.alibi_slopes);
  tensor("decay", options.decay);
  tensor("sinks", options.sinks);
  tensor("kv-lengths", options.kv_lengths);
  tensor("segments-q", options.query_segments);
  tensor("segments-k", options.key_segments);
  if (options.dropout.probability > 0) {
    words.emplace_back("dropout", text_of(options.dropout.probability));
    words.emplace_back("dropout-seed", text_of(options.dropout.seed));
  }
  return words;
}

// Copies the tokens. Keys use the rows' tokens unless they have their own.
void take_tokens(const ReportOptions& wanted, AttentionReport& report) {
  report.query_tokens = wanted.query_tokens;
  report.key_tokens = wanted.key_tokens;
  report.query_token_ids = wanted.query_token_ids;
  report.key_token_ids = wanted.key_token_ids;
  if (report.queries != report.keys) return;
  if (report.key_tokens.empty()) report.key_tokens = report.query_tokens;
  if (report.key_token_ids.empty() && report.key_tokens == report.query_tokens)
    report.key_token_ids = report.query_token_ids;
}

}  // namespace

void check_tokens(const ReportOptions& wanted, std::int64_t rows, const char* of_rows, std::int64_t columns,
                  const char* of_columns) {
  const auto check = [](const char* name, std::size_t count, std::int64_t expected, const char* of) {
    if (count > 0 && static_cast<std::int64_t>(count) != expected)
      refuse(name, " has ", counted(count, "entry", "entries"), "; ", expected, ", the length of ", of,
             ", is expected");
  };
  check("query_tokens", wanted.query_tokens.size(), rows, of_rows);
  check("key_tokens", wanted.key_tokens.size(), columns, of_columns);
  check("query_token_ids", wanted.query_token_ids.size(), rows, of_rows);
  check("key_token_ids", wanted.key_token_ids.size(), columns, of_columns);
}

void describe_call(const Problem& problem, const AttentionOptions& options, const ReportOptions& wanted,
                   AttentionReport& report) {
  report.batch = problem.batch;
  report.heads = problem.heads;
  report.kv_heads = problem.kv_heads;
  report.queries = problem.query_length;
  report.keys = problem.key_length;
  report.head_dim = problem.head_dim;
  report.value_dim = problem.value_dim;
  report.dtype = problem.dtype;
  take_tokens(wanted, report);
  report.options = describe_options(options);
  fill_places(problem, report);
}

}  // namespace heed::detail
