// The call that a question is about, the heads that it asks for, and options that several questions take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heed/inspect/document.hpp"
#include "look/source.hpp"

namespace heed::cli {

struct SharedOptions {
  std::vector<std::string> head_names;  ///< "3", "1.3"
  std::optional<std::int64_t> batch;
  std::int64_t top_k = 5;
  bool received = true;
  bool json = false;
  std::string csv, npy, save;  ///< files to write; empty if not requested
};

/// --head, --batch and --top-k.
void add_choice_options(CLI::App& app, SharedOptions& shared);
/// --json, --csv, --npy and --save.
void add_result_options(CLI::App& app, SharedOptions& shared);
/// Throws UsageError for a file name with a wrong end.
void check_file_names(const SharedOptions& shared);

/// Heads [begin, end) of the head axis.
struct HeadSpan {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// The size of an axis of the query, counted from the end (2: queries, 3: heads, 4: batch entries). Without a
/// report, a missing axis has size 1.
[[nodiscard]] std::int64_t axis_size(const Document& document, int from_behind);
[[nodiscard]] std::int64_t key_count(const Document& document);

/// The heads of the layer with this name. Throws UsageError, naming --layer, if there is none.
[[nodiscard]] HeadSpan heads_of_layer(const std::vector<LayerHeads>& layers, const std::string& name);

/// The heads named by --head, or all heads of --layer, ascending; empty: all. Throws UsageError for heads
/// that the call does not have.
[[nodiscard]] std::vector<std::int64_t> heads_named(const Document& document,
                                                    const std::optional<std::string>& layer,
                                                    const std::vector<std::string>& names);

/// Throws UsageError if the index of `option`, counted from 0, is not below `count`.
void check_index(const char* option, std::int64_t index, std::int64_t count, const char* of,
                 const char* many = "");

/// The size of the map that a file or a page gets.
[[nodiscard]] MapSize saved_map(const Document& document);

struct Subject {
  /// Throws UsageError for heads and batch entries that the call does not have.
  Subject(Document call, const LookSource& from, const SharedOptions& options);

  /// Fills the report unless the document came with one, and writes --save. `wanted` says what the question
  /// needs: `received` only if --no-received is not given, and everything if the document is saved.
  void complete(ReportOptions wanted);

  /// Whether --batch, --head and --layer select this head.
  [[nodiscard]] bool includes(std::int64_t batch, std::int64_t head) const;

  /// The only selected head; -1 if several or all are selected.
  [[nodiscard]] std::int64_t only_head() const { return heads.size() == 1 ? heads[0] : -1; }

  /// A piece of the weights of the selected heads. If there are several, they are the tile's head axis.
  [[nodiscard]] WeightTile tile(TileRange range) const;

  Document document;
  const LookSource& source;
  const SharedOptions& shared;
  std::vector<std::int64_t> heads;  ///< selected, as ascending indices of the head axis; empty: all
};

/// Report options for a question about these rows, in ascending order. If they are many, all rows are
/// computed: in blocks, a row costs a fraction of a single one.
[[nodiscard]] ReportOptions report_of_rows(const Document& document, std::vector<std::int64_t> rows);

}  // namespace heed::cli
