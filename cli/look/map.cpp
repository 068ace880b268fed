#include "look/map.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "core/index.hpp"
#include "draw/heatmap.hpp"
#include "draw/lettering.hpp"
#include "draw/palette.hpp"
#include "look/print.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr std::int64_t kMaxMapRows = 48;
constexpr std::int64_t kMaxMaskBins = 64;  // per side, in JSON
constexpr int kLabel = 16;                 // columns for row labels
constexpr int kIndent = 2;
constexpr int kMapWord = 12;

// The first items of all bins, and the end.
std::vector<std::int64_t> begins(std::int64_t bins, std::int64_t size) {
  std::vector<std::int64_t> at;
  for (std::int64_t bin = 0; bin <= bins; ++bin) at.push_back(detail::begin_of_bin(bin, bins, size));
  return at;
}

// A matrix of sums. Cell (r, c) covers rows [row_at(r), row_at(r + 1)) and keys [key_at(c), key_at(c + 1)).
struct Sums {
  std::int64_t rows, columns;
  std::vector<std::int64_t> row_at, key_at;
  std::vector<double> values;
  std::vector<char> allowed;  // whether any of its cells is allowed; empty if unknown
};

// Merges bins until the matrix has at most `rows` x `columns` cells.
Sums fitted(const Sums& fine, std::int64_t rows, std::int64_t columns) {
  Sums sums{std::min(rows, fine.rows), std::min(columns, fine.columns), {}, {}, {}, {}};
  const auto cells = static_cast<std::size_t>(sums.rows * sums.columns);
  sums.values.assign(cells, 0);
  sums.allowed.assign(fine.allowed.empty() ? 0 : cells, 0);
  for (std::int64_t r = 0; r < fine.rows; ++r)
    for (std::int64_t c = 0; c < fine.columns; ++c) {
      const auto from = static_cast<std::size_t>(r * fine.columns + c);
      const auto to = static_cast<std::size_t>(r * sums.rows / fine.rows * sums.columns +
                                               c * sums.columns / fine.columns);
      sums.values[to] += fine.values[from];
      if (!fine.allowed.empty()) sums.allowed[to] |= fine.allowed[from];
    }
  for (const std::int64_t r : begins(sums.rows, fine.rows))
    sums.row_at.push_back(fine.row_at[static_cast<std::size_t>(r)]);
  for (const std::int64_t c : begins(sums.columns, fine.columns))
    sums.key_at.push_back(fine.key_at[static_cast<std::size_t>(c)]);
  return sums;
}

std::vector<std::string> labels(const std::vector<std::int64_t>& at, const std::vector<std::string>& tokens) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i + 1 < at.size(); ++i) {
    const bool single = at[i + 1] - at[i] == 1 && !tokens.empty();
    texts.push_back(single ? shortened(token_text(tokens[static_cast<std::size_t>(at[i])]), kMapWord)
                           : std::to_string(at[i]));
  }
  return texts;
}

// Returns whether the map could be drawn.
bool print_lines(const TextOutput& output, const HeatMap& map) {
  const auto lines = draw_heatmap(map, kIndent, output.width, output.color);
  if (!lines) return false;
  for (const std::string& line : *lines) output.stream << line << '\n';
  return true;
}

void draw(const TextOutput& output, const Document& document, const Sums& fine) {
  const Sums sums = fitted(fine, kMaxMapRows, output.width - kIndent - kLabel);
  Tensor means({sums.rows, sums.columns}, DType::f64);
  Tensor allowed({sums.rows, sums.columns}, DType::boolean);
  for (std::int64_t r = 0; r < sums.rows; ++r) {
    const auto row = static_cast<std::size_t>(r);
    const std::int64_t rows = std::max<std::int64_t>(1, sums.row_at[row + 1] - sums.row_at[row]);
    for (std::int64_t c = 0; c < sums.columns; ++c) {
      const auto cell = static_cast<std::size_t>(r * sums.columns + c);
      means.at<double>(r, c) = sums.values[cell] / static_cast<double>(rows);
      if (!sums.allowed.empty()) allowed.at<bool>(r, c) = sums.allowed[cell] != 0;
    }
  }
  HeatMap map{labels(sums.row_at, document.report.query_tokens),
              labels(sums.key_at, document.report.key_tokens), means.view(), std::nullopt};
  if (!sums.allowed.empty()) map.allowed = allowed.view();
  if (print_lines(output, map) && (fine.row_at.back() - fine.row_at.front() > sums.rows ||
                                   fine.key_at.back() - fine.key_at.front() > sums.columns))
    output.stream
        << "  each cell: the weight that a row of its bin gives, on average, to all keys of its bin\n";
}

void print_title(const TextOutput& output, const std::string& title, const std::string& more) {
  output.stream << '\n' << bold(title, output.color) << more << '\n';
}

}  // namespace

void print_tile(const TextOutput& output, const Document& document, const WeightTile& tile,
                const std::vector<std::int64_t>& heads) {
  const TileRange& range = tile.range;
  const std::int64_t rows = range.row_end - range.row_begin;
  const std::int64_t columns = range.key_end - range.key_begin;
  for (std::int64_t b = 0; b < tile.weights.size(0); ++b)
    for (std::int64_t h = 0; h < tile.weights.size(1); ++h) {
      print_title(output,
                  plane_text(document, std::max<std::int64_t>(range.batch, 0) + b,
                             heads.empty() ? h : heads[static_cast<std::size_t>(h)]),
                  ", rows " + std::to_string(range.row_begin) + " to " + std::to_string(range.row_end - 1) +
                      ", keys " + std::to_string(range.key_begin) + " to " +
                      std::to_string(range.key_end - 1));
      Sums sums{rows, columns, {}, {}, {}, {}};
      for (std::int64_t i = 0; i <= rows; ++i) sums.row_at.push_back(range.row_begin + i);
      for (std::int64_t j = 0; j <= columns; ++j) sums.key_at.push_back(range.key_begin + j);
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j) {
          sums.values.push_back(number_at(tile.weights, {b, h, i, j}));
          sums.allowed.push_back(tile.allowed.at<bool>(b, h, i, j) ? 1 : 0);
        }
      draw(output, document, sums);
    }
}

void print_map(const TextOutput& output, const Document& document, const Tensor& map,
               const std::vector<HeadSummary>& heads) {
  const std::int64_t rows = map.size(2);
  const std::int64_t columns = map.size(3);
  for (const HeadSummary& head : heads) {
    print_title(output, plane_text(document, head.batch, head.head), ", " + head.name());
    Sums sums{rows, columns, begins(rows, document.report.queries), begins(columns, document.report.keys),
              {},   {}};
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        sums.values.push_back(number_at(map, {head.batch, head.head, r, c}));
    draw(output, document, sums);
  }
}

void print_masks(const TextOutput& output, const Document& document, const std::vector<HeadSummary>& heads) {
  const AttentionReport& report = document.report;
  if (report.queries == 0 || report.keys == 0) return;
  const MapSize bins{std::min(kMaxMapRows, report.queries),
                     std::min<std::int64_t>(output.width - kIndent - kLabel, report.keys)};
  std::optional<MaskPicture> last;
  for (const HeadSummary& head : heads) {
    MaskPicture picture =
        mask_picture(document.query, document.key, document.options, head.batch, head.head, bins);
    const auto numbers = picture.allowed.values<double>();
    if (last && std::equal(numbers.begin(), numbers.end(), last->allowed.values<double>().begin())) continue;
    char shares[128];
    std::snprintf(shares, sizeof shares,
                  ": %.3g %% of the square allowed, %.3g %% in tiles of 64 x 64 that are computed",
                  100 * picture.allowed_share, 100 * picture.tile_share);
    const bool all = heads.size() > 1 && &head == &heads.front();
    print_title(output,
                "mask of " + plane_text(document, head.batch, head.head) + (all ? " and those like it" : ""),
                shares);
    print_lines(output, {labels(begins(bins.rows, report.queries), report.query_tokens),
                         labels(begins(bins.columns, report.keys), report.key_tokens), picture.allowed.view(),
                         std::nullopt});
    last = std::move(picture);
  }
}

Json masks_json(const Document& document, const std::vector<HeadSummary>& heads) {
  Json list = Json::array();
  const AttentionReport& report = document.report;
  if (report.queries == 0 || report.keys == 0) return list;
  const MapSize bins{std::min(kMaxMaskBins, report.queries), std::min(kMaxMaskBins, report.keys)};
  for (const HeadSummary& head : heads) {
    const MaskPicture picture =
        mask_picture(document.query, document.key, document.options, head.batch, head.head, bins);
    list.push_back({{"batch", head.batch},
                    {"head", head.head},
                    {"allowed_share", picture.allowed_share},
                    {"tile_share", picture.tile_share},
                    {"allowed", values_json(picture.allowed)}});
  }
  return list;
}

}  // namespace heed::cli
