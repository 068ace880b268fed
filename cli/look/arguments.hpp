// What `heed look` is told on its command line.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "attend_arguments.hpp"
#include "attend_inputs.hpp"
#include "heed/eviction.hpp"
#include "heed/inspect.hpp"
#include "heed/model_look.hpp"
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

/// A policy of --evict, as it was given.
struct EvictionChoice {
  std::string text;
  EvictionPolicy policy;
};

/// Of every head, where --check does not say how many.
inline constexpr std::int64_t kRowsToCheck = 16;

struct LookArguments {
  std::string document;  ///< a file of `look --save` or `explain --save`; empty: query, key and value
  AttendArguments call;  ///< its inputs and options
  std::string model;     ///< a model's folder; then
  std::vector<std::string> words;    ///< what stands behind DOC
  std::string text;                  ///< all words that it reads,
  std::vector<std::string> texts;    ///< files with more texts, and
  std::optional<std::string> layer;  ///< the layer to look at, by its name; none: all
  WeighedBy by = WeighedBy::attention;
  std::string tokens;  ///< files with a line a token
  std::string key_tokens;

  // The question; none of row, tile, word and evict: the summary of the heads.
  std::vector<std::string> head_names;  ///< "3", "1.3"
  std::vector<std::int64_t> heads;  ///< what they are, with --layer, on the head axis; ascending; none: all
  std::optional<std::int64_t> batch;
  std::optional<std::string> row;  ///< "5", "5:10", "5,7", a word
  std::optional<TileRange> tile;   ///< without batch and head
  std::optional<std::string> word;
  std::vector<std::int64_t> rows;  ///< what row and word are
  std::vector<EvictionChoice> evict;
  std::optional<std::int64_t> prompt;  ///< rows read whole before anything is evicted
  std::optional<CauseQuestion> cause;  ///< with model: what heads cause
  std::int64_t top_k = 5;
  std::string sort;                     ///< one of sort_columns(); empty: as they are numbered
  bool brief = false;                   ///< a line a head
  std::optional<HeadPattern> find;      ///< the heads nearest to this name
  std::string needle;                   ///< words whose retrieval is asked for,
  std::vector<TokenSpan> needle_spans;  ///< and their places
  std::optional<std::int64_t> top;      ///< so many heads
  bool price = false;                   ///< what the summary cost, however little it is
  MapSize map{};
  bool draw_mask = false;
  bool received = true;
  std::optional<std::int64_t> check;  ///< rows to check
  bool proof = false;                 ///< the page says what the check found

  /// Reads the tensors of the call that have positions; none: they are read whole.
  TensorReading read;
  /// Computes the call over ranks; none: in this process. Its output is there where one is checked.
  std::function<AttentionResult(const AttentionOptions&)> attend;

  bool json = false;
  std::string csv, npy, save, html, png;  ///< files to write; empty where not asked for
  std::vector<Place> tiles_around;        ///< whose surroundings the page holds in full
  bool serve = false;                     ///< the page, and what it asks for
  std::int64_t port = 0;                  ///< there; 0: any
};

/// Whether options under this heading of the help say what is computed, not what is asked or written.
[[nodiscard]] bool belongs_to_call(const std::string& group);

void add_look_options(CLI::App& app, LookArguments& arguments);

/// What no single option can check, once all are parsed; with --model, `document` and `words` become `text`.
/// Throws UsageError.
void complete_look_arguments(const CLI::App& app, LookArguments& arguments);

}  // namespace heed::cli
