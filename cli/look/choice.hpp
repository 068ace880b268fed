// Which heads and rows a question is about: names and words become numbers once the call is known.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heed/document.hpp"
#include "look/arguments.hpp"

namespace heed::cli {

/// Heads [begin, end) of the head axis.
struct HeadSpan {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Of the query, counted from behind (2: queries, 3: heads, 4: batch entries); 1 where it has no such axis
/// yet.
[[nodiscard]] std::int64_t axis_size(const Document& document, int from_behind);
[[nodiscard]] std::int64_t key_count(const Document& document);

/// Those of the layer with this name. Throws UsageError, naming --layer, where there is none.
[[nodiscard]] HeadSpan heads_of_layer(const std::vector<LayerHeads>& layers, const std::string& name);

/// The heads that --head names, or else those of --layer, ascending; none: all. Throws UsageError for what
/// the call does not have.
[[nodiscard]] std::vector<std::int64_t> heads_named(const Document& document,
                                                    const std::optional<std::string>& layer,
                                                    const std::vector<std::string>& names);

/// Fills `rows` by --row and --token, each once, in the order asked for. Throws UsageError for rows and words
/// that are not there. Returns whether a range went past the last row.
bool choose_rows(const Document& document, LookArguments& arguments);

/// Whether --batch, --head and --layer leave this head.
[[nodiscard]] bool is_asked_for(const LookArguments& arguments, std::int64_t batch, std::int64_t head);

/// The one head that is asked for; -1: several, or all.
[[nodiscard]] std::int64_t only_head(const LookArguments& arguments);

}  // namespace heed::cli
