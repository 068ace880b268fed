#include "look/answer.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "command.hpp"
#include "look/evict.hpp"
#include "machine.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr double kBytesOfCell = 9;  // its f64 and its bool

void check_index(const char* option, const std::optional<std::int64_t>& index, std::int64_t count,
                 const char* of) {
  if (index && *index >= count)
    throw UsageError(std::string(option) + " is " + std::to_string(*index) + "; there are " +
                     std::to_string(count) + " " + of + ", counted from 0");
}

// Of the query, counted from behind; before there is a report it may lack some.
std::int64_t axis(const Document& document, int from_behind) {
  return document.query.rank() < from_behind ? 1 : document.query.size(-from_behind);
}

// Heads and batch entries that a question is about.
std::int64_t planes(const Document& document, const LookArguments& arguments) {
  return (arguments.batch ? 1 : axis(document, 4)) * (arguments.head ? 1 : axis(document, 3));
}

void check_tile(const Document& document, const LookArguments& arguments) {
  const TileRange& tile = *arguments.tile;
  const std::int64_t rows = document.query.size(-2);
  const std::int64_t keys = document.key.size(-2);
  if (tile.row_begin >= rows || tile.key_begin >= keys)
    throw UsageError("--tile begins at row " + std::to_string(tile.row_begin) + ", key " +
                     std::to_string(tile.key_begin) + "; there are " + std::to_string(rows) +
                     " queries and " + std::to_string(keys) + " keys, counted from 0");
  const double cells =
      static_cast<double>(tile.row_end - tile.row_begin) * static_cast<double>(tile.key_end - tile.key_begin);
  const double bytes = cells * static_cast<double>(planes(document, arguments)) * kBytesOfCell;
  if (bytes > memory_of_machine() / 2)
    throw UsageError(
        "--tile asks for " + size_text(4 * cells) + " a head in f32, and " + size_text(bytes) +
        " to compute it, more than half of this machine's memory (" + size_text(memory_of_machine()) +
        "); --head N, a smaller tile, --map 1024x1024 (exact sums) or --row N --top-k K answer more cheaply");
}

TileRange with_plane(TileRange range, const LookArguments& arguments) {
  range.batch = arguments.batch.value_or(-1);
  range.head = arguments.head.value_or(-1);
  return range;
}

// visit(batch, head) for those asked for.
template <class Visit>
void for_each_plane(const Document& document, const LookArguments& arguments, Visit visit) {
  for (std::int64_t b = 0; b < document.report.batch; ++b)
    for (std::int64_t h = 0; h < document.report.heads; ++h)
      if (b == arguments.batch.value_or(b) && h == arguments.head.value_or(h)) visit(b, h);
}

double order_of(const HeadSummary& head, HeadOrder order) {
  double value = 0;
  if (order == HeadOrder::sink) value = head.first;
  if (order == HeadOrder::entropy) value = head.entropy;
  if (order == HeadOrder::distance) value = head.distance;
  if (order == HeadOrder::received && !head.most_received_weight.empty())
    value = head.most_received_weight.front();
  return std::isnan(value) ? -std::numeric_limits<double>::infinity() : value;
}

}  // namespace

std::vector<HeadSummary> heads_of(const Document& document, const LookArguments& arguments) {
  std::vector<HeadSummary> heads;
  for (const HeadSummary& head : document.report.summaries)
    if (head.batch == arguments.batch.value_or(head.batch) && head.head == arguments.head.value_or(head.head))
      heads.push_back(head);
  if (arguments.order != HeadOrder::given)
    std::stable_sort(heads.begin(), heads.end(), [&](const HeadSummary& a, const HeadSummary& b) {
      return order_of(a, arguments.order) > order_of(b, arguments.order);
    });
  return heads;
}

std::vector<AttendedRow> answer_row(const Document& document, const LookArguments& arguments) {
  std::vector<AttendedRow> rows;
  for_each_plane(document, arguments, [&](std::int64_t b, std::int64_t h) {
    rows.push_back(attended_row(document, b, h, *arguments.row, arguments.top_k, true));
  });
  return rows;
}

std::vector<AttendedRow> answer_token(const Document& document, const LookArguments& arguments) {
  std::vector<AttendedRow> rows;
  for (std::size_t i = 0; i < document.report.query_tokens.size(); ++i) {
    if (document.report.query_tokens[i] != *arguments.word) continue;
    for_each_plane(document, arguments, [&](std::int64_t b, std::int64_t h) {
      rows.push_back(attended_row(document, b, h, static_cast<std::int64_t>(i), arguments.top_k));
    });
  }
  return rows;
}

WeightTile answer_tile(const Document& document, const LookArguments& arguments) {
  return attention_tile(document, with_plane(*arguments.tile, arguments));
}

bool cut_tile(const Document& document, LookArguments& arguments) {
  if (!arguments.tile) return false;
  TileRange& tile = *arguments.tile;
  const std::int64_t rows = document.query.size(-2);
  const std::int64_t keys = document.key.size(-2);
  const bool longer = tile.row_end > rows || tile.key_end > keys;
  tile.row_end = std::min(tile.row_end, rows);
  tile.key_end = std::min(tile.key_end, keys);
  return longer;
}

void check_question(const Document& document, const LookArguments& arguments) {
  const std::int64_t queries = axis(document, 2);
  const std::int64_t keys = document.key.size(-2);
  check_index("--batch", arguments.batch, axis(document, 4), "batch entries");
  check_index("--head", arguments.head, axis(document, 3), "heads");
  check_index("--row", arguments.row, queries, "queries");
  if (arguments.tile) check_tile(document, arguments);
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
  if (arguments.order == HeadOrder::received && document.has_report && document.report.received.rank() != 3)
    throw UsageError("--sort is 'received', which DOC does not hold: it was saved with --no-received");
  if (!arguments.word) return;
  const std::vector<std::string>& tokens = document.report.query_tokens;
  if (tokens.empty())
    throw UsageError("--token is given, but no tokens are known; --tokens FILE (a line a token) is expected");
  if (std::find(tokens.begin(), tokens.end(), *arguments.word) != tokens.end()) return;
  const std::optional<std::string> meant =
      tokens.size() <= 10000 ? nearest(*arguments.word, tokens) : std::nullopt;
  throw UsageError("--token is '" + *arguments.word + "', which is none of the tokens" +
                   (meant ? "; did you mean " + *meant + "?" : ""));
}

}  // namespace heed::cli
