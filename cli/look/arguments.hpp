// The command line arguments of `heed look`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "attend_arguments.hpp"
#include "attend_inputs.hpp"
#include "heed/attention/eviction.hpp"
#include "heed/inspect/reports.hpp"
#include "heed/model/look.hpp"
#include "look/cause.hpp"

namespace CLI {
class App;
}

namespace heed::cli {

/// A query and a key, counted from 0.
struct Place {
  std::int64_t row = 0;
  std::int64_t key = 0;
};

/// A policy of --evict, with its text as given.
struct EvictionChoice {
  std::string text;
  EvictionPolicy policy;
};

/// Rows of each head for --check without a number.
inline constexpr std::int64_t kRowsToCheck = 16;

struct LookArguments {
  std::string document;  ///< a file from `look --save` or `explain --save`; empty: query, key and value
  AttendArguments call;  ///< the inputs and options of the call
  std::string model;     ///< a model's folder
  std::vector<std::string> words;    ///< the words after DOC
  std::string text;                  ///< for a model: the text to read
  std::vector<std::string> texts;    ///< for a model: files with further texts
  std::optional<std::string> layer;  ///< the layer's name; none: all layers
  WeighedBy by = WeighedBy::attention;
  std::string tokens;  ///< files with one token per line
  std::string key_tokens;

  // The question. Without row, tile, word and evict it is the summary of the heads.
  std::vector<std::string> head_names;  ///< "3", "1.3"
  std::vector<std::int64_t>
      heads;  ///< the named heads, restricted to --layer, as ascending indices of the head axis; empty: all
  std::optional<std::int64_t> batch;
  std::optional<std::string> row;  ///< "5", "5:10", "5,7", a word
  std::optional<TileRange> tile;   ///< its batch and head are not set
  std::optional<std::string> word;
  std::vector<std::int64_t> rows;  ///< the rows that `row` and `word` select
  std::vector<EvictionChoice> evict;
  std::optional<std::int64_t> prompt;  ///< rows read in full before eviction starts
  std::optional<CauseQuestion> cause;  ///< a question about causes; requires `model`
  std::int64_t top_k = 5;
  std::string sort;                     ///< one of sort_columns(); empty: in the order of their numbers
  bool brief = false;                   ///< one line per head
  std::optional<HeadPattern> find;      ///< rank heads by this pattern
  std::string needle;                   ///< find heads that retrieve these words
  std::vector<TokenSpan> needle_spans;  ///< the token ranges of `needle`
  std::optional<std::int64_t> top;      ///< number of heads to list
  bool price = false;                   ///< always print the cost of the summary
  MapSize map{};
  bool draw_mask = false;
  bool received = true;
  std::optional<std::int64_t> check;  ///< rows to check
  bool proof = false;                 ///< the page shows the result of the check

  /// Reads the call's tensors that have positions. If empty, they are read whole.
  TensorReading read;
  /// Computes the call over ranks. If empty, this process computes it. The result includes the output if
  /// --check needs it.
  std::function<AttentionResult(const AttentionOptions&)> attend;

  bool json = false;
  std::string csv, npy, save, html, png;  ///< files to write; empty if not requested
  std::vector<Place> tiles_around;        ///< cells around which the page contains all weights
  bool serve = false;                     ///< serve the page and the weights that it requests
  std::int64_t port = 0;                  ///< of the server; 0: any free port
};

/// Whether the options under this help heading define the call, rather than the question or the output.
[[nodiscard]] bool belongs_to_call(const std::string& group);

void add_look_options(CLI::App& app, LookArguments& arguments);

/// Checks that need several options; call it after parsing. With --model, `document` and `words` become
/// `text`. Throws UsageError.
void complete_look_arguments(const CLI::App& app, LookArguments& arguments);

}  // namespace heed::cli
