#include "look/answer.hpp"

#include <algorithm>
#include <utility>

#include "command.hpp"
#include "look/choice.hpp"
#include "look/evict.hpp"
#include "look/sort.hpp"
#include "machine.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr double kBytesOfCell = 9;  // one f64 and one bool

void check_index(const char* option, const std::optional<std::int64_t>& index, std::int64_t count,
                 const char* of) {
  if (index && *index >= count)
    throw UsageError(std::string(option) + " is " + std::to_string(*index) + "; there are " +
                     std::to_string(count) + " " + of + ", counted from 0");
}

// The number of heads times batch entries of a question.
std::int64_t planes(const Document& document, const LookArguments& arguments) {
  const auto heads = static_cast<std::int64_t>(arguments.heads.size());
  return (arguments.batch ? 1 : axis_size(document, 4)) * (heads > 0 ? heads : axis_size(document, 3));
}

void check_tile(const Document& document, const LookArguments& arguments) {
  const TileRange& tile = *arguments.tile;
  const std::int64_t rows = axis_size(document, 2);
  const std::int64_t keys = key_count(document);
  if (tile.row_begin >= rows || tile.key_begin >= keys)
    throw UsageError("--tile begins at row " + std::to_string(tile.row_begin) + ", key " +
                     std::to_string(tile.key_begin) + "; there are " + std::to_string(rows) +
                     " queries and " + std::to_string(keys) + " keys, counted from 0");
  const double cells =
      static_cast<double>(tile.row_end - tile.row_begin) * static_cast<double>(tile.key_end - tile.key_begin);
  const double bytes = cells * static_cast<double>(planes(document, arguments)) * kBytesOfCell;
  if (bytes > memory_of_machine() / 2)
    throw UsageError(
        "--tile needs " + size_text(4 * cells) + " per head in f32, and " + size_text(bytes) +
        " to compute it, more than half of this machine's memory (" + size_text(memory_of_machine()) +
        "); --head N, a smaller tile, --map 1024x1024 (exact sums) or --row N --top-k K need less");
}

// Calls visit(batch, head) for each requested one.
template <class Visit>
void for_each_plane(const Document& document, const LookArguments& arguments, Visit visit) {
  for (std::int64_t b = 0; b < document.report.batch; ++b)
    for (std::int64_t h = 0; h < document.report.heads; ++h)
      if (is_asked_for(arguments, b, h)) visit(b, h);
}

// Concatenates contiguous tensors along `axis`; their other axes agree.
Tensor joined(const std::vector<Tensor>& parts, int axis) {
  Dims shape = parts.front().shape();
  shape[axis] = 0;
  for (const Tensor& part : parts) shape[axis] += part.size(axis);
  Tensor whole(shape, parts.front().dtype());
  std::int64_t at = 0;
  for (const Tensor& part : parts) {
    copy(part, whole.mutable_view().narrow(axis, at, part.size(axis)));
    at += part.size(axis);
  }
  return whole;
}

}  // namespace

std::vector<HeadSummary> heads_of(const Document& document, const LookArguments& arguments) {
  std::vector<HeadSummary> heads;
  for (const HeadSummary& head : document.report.summaries)
    if (is_asked_for(arguments, head.batch, head.head)) heads.push_back(head);
  if (!arguments.sort.empty())
    sort_heads(heads, arguments.sort);
  else if (arguments.brief)
    sort_heads(heads, "score");
  return heads;
}

std::vector<AttendedRow> answer_rows(const Document& document, const LookArguments& arguments) {
  std::vector<AttendedRow> rows;
  const bool all_weights = arguments.row && arguments.rows.size() == 1;
  for (const std::int64_t row : arguments.rows)
    for_each_plane(document, arguments, [&](std::int64_t b, std::int64_t h) {
      rows.push_back(attended_row(document, b, h, row, arguments.top_k, all_weights));
    });
  return rows;
}

WeightTile answer_tile(const Document& document, const LookArguments& arguments) {
  TileRange range = *arguments.tile;
  range.batch = arguments.batch.value_or(-1);
  range.head = only_head(arguments);
  if (arguments.heads.size() < 2) return attention_tile(document, range);
  std::vector<Tensor> weights, allowed;
  for (const std::int64_t head : arguments.heads) {
    TileRange one = range;
    one.head = head;
    WeightTile tile = attention_tile(document, one);
    weights.push_back(std::move(tile.weights));
    allowed.push_back(std::move(tile.allowed));
  }
  return {range, joined(weights, 1), joined(allowed, 1)};
}

Tensor weights_of_rows(const Document& document, LookArguments arguments) {
  std::vector<Tensor> rows;
  for (const std::int64_t row : arguments.rows) {
    arguments.tile = TileRange{row, row + 1, 0, document.report.keys};
    rows.push_back(answer_tile(document, arguments).weights);
  }
  return joined(rows, 2);
}

bool cut_tile(const Document& document, LookArguments& arguments) {
  if (!arguments.tile) return false;
  TileRange& tile = *arguments.tile;
  const std::int64_t rows = axis_size(document, 2);
  const std::int64_t keys = key_count(document);
  const bool longer = tile.row_end > rows || tile.key_end > keys;
  tile.row_end = std::min(tile.row_end, rows);
  tile.key_end = std::min(tile.key_end, keys);
  return longer;
}

void check_question(const Document& document, const LookArguments& arguments) {
  const std::int64_t queries = axis_size(document, 2);
  const std::int64_t keys = key_count(document);
  check_index("--batch", arguments.batch, axis_size(document, 4), "batch entries");
  if (arguments.tile) check_tile(document, arguments);
  // A KV cache belongs to one layer. Its evictions depend on all heads of that layer together.
  if (!arguments.evict.empty() && document.report.layers.size() > 1)
    throw UsageError("--evict works on one layer, but this call has the heads of " +
                     std::to_string(document.report.layers.size()) +
                     (arguments.model.empty() ? "" : "; --layer N is expected with it"));
  check_evictions(document, arguments);
  if (arguments.map.rows > 0 && (queries == 0 || keys == 0))
    throw UsageError("--map is given for a call without queries or keys");
  for (const char* option : {arguments.html.empty() ? "" : "--html", arguments.serve ? "--serve" : ""})
    if (*option != '\0' && (queries == 0 || keys == 0))
      throw UsageError(std::string(option) + " is given for a call without queries or keys");
  for (const Place& place : arguments.tiles_around) {
    check_index("--tile-at", place.row, queries, "queries");
    check_index("--tile-at", place.key, keys, "keys");
  }
  if (arguments.sort == "received" && document.has_report && document.report.received.rank() != 3)
    throw UsageError("--sort is 'received', which DOC lacks because it was saved with --no-received");
}

}  // namespace heed::cli
