// What `heed look` is told on its command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attend_arguments.hpp"
#include "heed/eviction.hpp"
#include "heed/inspect.hpp"

namespace CLI {
class App;
}

namespace heed::cli {

/// What the heads of a summary are ordered by, the largest first.
enum class HeadOrder { given, sink, entropy, distance, received };

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
  std::string model;     ///< a trained model's folder; then
  std::vector<std::string> words;     ///< what stands behind DOC
  std::string text;                   ///< all words that it reads, and
  std::optional<std::int64_t> layer;  ///< the layer to look at, from 1; none: the summaries of all
  std::string tokens;                 ///< files with a line a token
  std::string key_tokens;

  // The question; none of row, tile, word and evict: the summary of the heads.
  std::optional<std::int64_t> head, batch;
  std::optional<std::int64_t> row;
  std::optional<TileRange> tile;  ///< without batch and head
  std::optional<std::string> word;
  std::vector<EvictionChoice> evict;
  std::optional<std::int64_t> prompt;  ///< rows read whole before anything is evicted
  std::int64_t top_k = 5;
  HeadOrder order = HeadOrder::given;
  MapSize map{};
  bool draw_mask = false;
  bool received = true;
  std::optional<std::int64_t> check;  ///< rows to check
  bool proof = false;                 ///< the page says what the check found

  bool json = false;
  std::string csv, npy, save, html, png;  ///< files to write; empty where not asked for
  std::vector<Place> tiles_around;   ///< whose surroundings the page holds in full
  bool serve = false;                ///< the page, and what it asks for
  std::int64_t port = 0;             ///< there; 0: any
};

/// Whether options under this heading of the help say what is computed, not what is asked or written.
[[nodiscard]] bool belongs_to_call(const std::string& group);

void add_look_options(CLI::App& app, LookArguments& arguments);

/// What no single option can check, once all are parsed; with --model, `document` and `words` become `text`.
/// Throws UsageError.
void complete_look_arguments(const CLI::App& app, LookArguments& arguments);

}  // namespace heed::cli
