#include "look/questions.hpp"

#include <algorithm>
#include <numeric>

#include "command.hpp"
#include "heed/io/tensors.hpp"
#include "look/map.hpp"
#include "look/tables.hpp"
#include "machine.hpp"
#include "options.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr double kBytesOfCell = 9;  // one f64 and one bool

std::pair<std::int64_t, std::int64_t> range_in(const std::string& whole, const std::string& part) {
  const std::vector<std::int64_t> ends = whole_numbers(part, ':');
  if (ends.size() != 2 || ends[0] < 0 || ends[1] <= ends[0])
    refuse_value("--tile", whole, "R0:R1,C0:C1 (rows R0 to R1 - 1, keys C0 to C1 - 1)");
  return {ends[0], ends[1]};
}

TileRange tile_in(const std::string& text) {
  std::vector<std::string> parts = split(text, ',');
  if (parts.size() != 2) parts = {"", ""};  // no range
  const auto [row_begin, row_end] = range_in(text, parts[0]);
  const auto [key_begin, key_end] = range_in(text, parts[1]);
  return {row_begin, row_end, key_begin, key_end};
}

// The number of heads times batch entries.
double planes(const Subject& subject) {
  const std::int64_t heads = std::ssize(subject.heads);
  return static_cast<double>((subject.shared.batch ? 1 : axis_size(subject.document, 4)) *
                             (heads > 0 ? heads : axis_size(subject.document, 3)));
}

void check_tile(const Subject& subject, const TileRange& tile) {
  const std::int64_t rows = axis_size(subject.document, 2);
  const std::int64_t keys = key_count(subject.document);
  if (tile.row_begin >= rows || tile.key_begin >= keys)
    refuse_usage("--tile begins at row ", tile.row_begin, ", key ", tile.key_begin, "; there are ",
                 counted(rows, "query", "queries"), " and ", counted(keys, "key"), ", counted from 0");
  const double cells =
      static_cast<double>(tile.row_end - tile.row_begin) * static_cast<double>(tile.key_end - tile.key_begin);
  const double bytes = cells * planes(subject) * kBytesOfCell;
  if (bytes > memory_of_machine() / 2)
    refuse_usage("--tile needs ", size_text(4 * cells), " per head in f32, and ", size_text(bytes),
                 " to compute it, more than half of this machine's memory (", size_text(memory_of_machine()),
                 "); --head N, a smaller tile, --map 1024x1024 (exact sums) or --row N --top-k K need less");
}

std::string tile_csv(const Subject& subject, const WeightTile& tile) {
  std::string text = csv_line({"batch", "head", "row", "key", "allowed", "weight"});
  const TileRange& range = tile.range;
  for (std::int64_t b = 0; b < tile.weights.size(0); ++b)
    for (std::int64_t h = 0; h < tile.weights.size(1); ++h)
      for (std::int64_t i = 0; i < tile.weights.size(2); ++i)
        for (std::int64_t j = 0; j < tile.weights.size(3); ++j)
          text += csv_line(
              {std::to_string(std::max<std::int64_t>(range.batch, 0) + b),
               std::to_string(subject.heads.empty() ? h : subject.heads[static_cast<std::size_t>(h)]),
               std::to_string(range.row_begin + i), std::to_string(range.key_begin + j),
               tile.allowed.at<bool>(b, h, i, j) ? "1" : "0",
               csv_number(number_at(tile.weights, {b, h, i, j}))});
  return text;
}

}  // namespace

void add_tile_option(CLI::App& app, TileQuestion& question) {
  add_text_option(
      app, "--tile", "R0:R1,C0:C1", [&](const std::string& text) { question.range = tile_in(text); },
      "show a tile of the weights: rows R0 to R1 - 1, keys C0 to C1 - 1");
}

void answer_tile(Subject subject, const TileQuestion& question) {
  const Document& document = subject.document;
  const SharedOptions& shared = subject.shared;
  TileRange range = question.range;
  range.row_end = std::min(range.row_end, axis_size(document, 2));
  range.key_end = std::min(range.key_end, key_count(document));
  check_tile(subject, range);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(range.row_end - range.row_begin));
  std::iota(rows.begin(), rows.end(), range.row_begin);
  subject.complete(report_of_rows(document, std::move(rows)));
  const WeightTile tile = subject.tile(range);
  if (!shared.csv.empty()) io::write_text(shared.csv, tile_csv(subject, tile));
  if (!shared.npy.empty()) io::write_npy(shared.npy, tile.weights);
  if (shared.json)
    return print_json(document, {{"rows", {range.row_begin, range.row_end}},
                                 {"keys", {range.key_begin, range.key_end}},
                                 {"weights", values_json(tile.weights)},
                                 {"allowed", values_json(tile.allowed)}});
  const TextOutput output = standard_output();
  print_tile(output, document, tile, subject.heads);
  if (range.row_end < question.range.row_end || range.key_end < question.range.key_end)
    output.stream << "\n--tile ends where the tensors end: there are "
                  << counted(document.report.queries, "query", "queries") << " and "
                  << counted(document.report.keys, "key") << '\n';
}

}  // namespace heed::cli
