// The heads and rows of a question. Names and words become numbers once the call is known.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heed/inspect/document.hpp"
#include "look/arguments.hpp"

namespace heed::cli {

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

/// Fills `rows` from --row and --token, each row once, in the order given. Throws UsageError for unknown rows
/// and words. Returns whether a range extends past the last row.
bool choose_rows(const Document& document, LookArguments& arguments);

/// Whether --batch, --head and --layer select this head.
[[nodiscard]] bool is_asked_for(const LookArguments& arguments, std::int64_t batch, std::int64_t head);

/// The only requested head; -1 if several or all are requested.
[[nodiscard]] std::int64_t only_head(const LookArguments& arguments);

}  // namespace heed::cli
