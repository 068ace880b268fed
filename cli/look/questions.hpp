// Questions of heed look, each with its options and its answer: --row and --token, --tile, --evict, and the
// folders of captured calls. heads.hpp and cause.hpp have the others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heed/attention/eviction.hpp"
#include "look/subject.hpp"

namespace heed::cli {

/// The rows to show, by number or by word.
struct RowsQuestion {
  std::optional<std::string> row;   ///< "5", "5:10", "5,7", a word
  std::optional<std::string> word;  ///< of --token
};
void add_row_option(CLI::App& app, RowsQuestion& question);
void add_token_option(CLI::App& app, RowsQuestion& question);
/// Throws UsageError, before any work, for unknown rows and words.
void answer_rows(Subject subject, const RowsQuestion& question);

/// A piece of the weights.
struct TileQuestion {
  TileRange range{};  ///< its batch and head are not set
};
void add_tile_option(CLI::App& app, TileQuestion& question);
/// Throws UsageError, before any work, for a tile outside the matrix, or if it would be too large.
void answer_tile(Subject subject, const TileQuestion& question);

/// A policy of --evict, with its text as given.
struct EvictionChoice {
  std::string text;
  EvictionPolicy policy;
};
/// The eviction policies to try on a call.
struct EvictQuestion {
  std::vector<EvictionChoice> policies;
  std::optional<std::int64_t> prompt;  ///< rows read in full before eviction starts
};
void add_evict_options(CLI::App& app, EvictQuestion& question);
/// Throws UsageError, before any work, if the call has several layers, or if --prompt does not fit the call
/// or a policy. Throws Error (invalid_argument) for a call that cannot be decoded row by row.
void answer_evict(Subject subject, const EvictQuestion& question);

/// For a folder from heed.transformers.capture(to=…), with one safetensors file per call of a layer: prints
/// each call's layer, its contents and, for each head, the means over its rows. --layer selects the calls of
/// one layer. Throws Error (io) for a folder without calls, and for a file that is no captured call.
void answer_run(const LookSource& source, bool json);

}  // namespace heed::cli
