#include "picture/head_map.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/index.hpp"
#include "draw/lettering.hpp"
#include "picture/palette.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kLeastGap = 12;  // cells of at least this size are separated by a line of paper
constexpr int kMaxColumns = 40;   // most columns of a word; Pango cuts it further to the available space

std::vector<std::string> words_of(const std::vector<std::string>& tokens) {
  std::vector<std::string> words;
  for (const std::string& token : tokens) words.push_back(shortened(token_text(token), kMaxColumns));
  return words;
}

void find_largest(HeadMap& map) {
  double among_all = 0, largest = 0;
  for (std::int64_t i = 0; i < map.rows; ++i) {
    std::int64_t seen = 0;
    for (std::int64_t j = 0; j < map.columns; ++j) seen += !std::isnan(map.at(i, j));
    for (std::int64_t j = 0; j < map.columns; ++j) {
      if (std::isnan(map.at(i, j))) continue;
      among_all = std::max(among_all, map.at(i, j));
      if (seen > 1 && j > 0) largest = std::max(largest, map.at(i, j));
    }
  }
  map.largest = largest > 0 ? largest : among_all > 0 ? among_all : 1;
}

// One cell per row and key. NaN weights become 0.
HeadMap map_of_weights(const Document& document, std::int64_t batch, std::int64_t head) {
  const AttentionReport& report = document.report;
  HeadMap map{report.queries, report.keys, {}, words_of(report.query_tokens), words_of(report.key_tokens)};
  const WeightTile tile = attention_tile(document, {0, map.rows, 0, map.columns, batch, head});
  for (std::int64_t i = 0; i < map.rows; ++i)
    for (std::int64_t j = 0; j < map.columns; ++j) {
      const double weight = number_at(tile.weights, {0, 0, i, j});
      map.shares.push_back(!tile.allowed.at<bool>(0, 0, i, j) ? kNaN : std::isnan(weight) ? 0 : weight);
    }
  find_largest(map);
  return map;
}

// Bin r of R holds the rows i with floor(i R / L) = r. A bin with no key that its rows may see is masked.
HeadMap map_of_bins(const Document& document, const Tensor& sums, std::int64_t batch, std::int64_t head) {
  const AttentionReport& report = document.report;
  HeadMap map{sums.size(2), sums.size(3), {}, {}, {}, true};
  for (std::int64_t r = 0; r < map.rows; ++r) {
    const std::int64_t begin = detail::begin_of_bin(r, map.rows, report.queries);
    const std::int64_t end = detail::begin_of_bin(r + 1, map.rows, report.queries);
    std::int64_t key_begin = report.keys, key_end = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      key_begin = std::min(key_begin, report.key_begin.at<std::int64_t>(batch, i));
      key_end = std::max(key_end, report.key_end.at<std::int64_t>(batch, i));
    }
    for (std::int64_t c = 0; c < map.columns; ++c) {
      const bool seen = detail::begin_of_bin(c, map.columns, report.keys) < key_end &&
                        detail::begin_of_bin(c + 1, map.columns, report.keys) > key_begin;
      const double sum = number_at(sums, {batch, head, r, c});
      map.shares.push_back(!seen ? kNaN : std::isnan(sum) ? 0 : sum / static_cast<double>(end - begin));
    }
  }
  find_largest(map);
  return map;
}

// Rounds to steps of 1/255, so that runs of equal neighbours are found.
double ink_share(double share, const MapStyle& style) {
  const double part = std::clamp(share / style.full, 0.0, 1.0);
  return std::round((style.root ? std::sqrt(part) : part) * 255) / 255;
}

Ink ink_at(const HeadMap& map, std::int64_t i, std::int64_t j, const MapStyle& style) {
  const double share = map.at(i, j);
  return std::isnan(share) ? kMasked : mixed(kPaper, style.ink, ink_share(share, style));
}

bool same(const Ink& a, const Ink& b) { return a.red == b.red && a.green == b.green && a.blue == b.blue; }

void draw_image(Canvas& canvas, const Box& box, const HeadMap& map, const MapStyle& style) {
  std::vector<Ink> inks;
  for (std::int64_t i = 0; i < map.rows; ++i)
    for (std::int64_t j = 0; j < map.columns; ++j) inks.push_back(ink_at(map, i, j, style));
  canvas.image(box, inks, map.rows, map.columns);
}

// Draws one rectangle per run of equal cells. Cells without ink are skipped.
void draw_cells(Canvas& canvas, const Box& box, const HeadMap& map, const MapStyle& style) {
  const double width = box.width / static_cast<double>(map.columns);
  const double height = box.height / static_cast<double>(map.rows);
  const bool apart = std::min(width, height) >= kLeastGap;
  const double gap = apart ? 0.75 : 0;
  for (std::int64_t i = 0; i < map.rows; ++i)
    for (std::int64_t j = 0, end = 0; j < map.columns; j = end) {
      const Ink ink = ink_at(map, i, j, style);
      for (end = j + 1; !apart && end < map.columns && same(ink, ink_at(map, i, end, style));) ++end;
      if (same(ink, kPaper)) continue;
      canvas.fill({box.x + static_cast<double>(j) * width, box.y + static_cast<double>(i) * height,
                   static_cast<double>(end - j) * width - gap, height - gap},
                  ink);
    }
}

void draw_numbers(Canvas& canvas, const Box& box, const HeadMap& map, const MapStyle& style) {
  const double width = box.width / static_cast<double>(map.columns);
  const double height = box.height / static_cast<double>(map.rows);
  const double size = std::min({9.0, width / 2.6, height / 1.6});
  for (std::int64_t i = 0; i < map.rows; ++i)
    for (std::int64_t j = 0; j < map.columns; ++j) {
      if (std::isnan(map.at(i, j))) continue;
      canvas.text(
          {box.x + static_cast<double>(j) * width, box.y + static_cast<double>(i) * height, width, height},
          short_share(map.at(i, j)),
          {.size = size, .side = Side::middle, .ink = letters_on(ink_at(map, i, j, style))});
    }
}

double word_size(double cell) { return std::min(9.0, cell * 0.8); }

void draw_words(Canvas& canvas, const Box& box, const HeadMap& map, const MapStyle& style) {
  const double width = box.width / static_cast<double>(map.columns);
  const double height = box.height / static_cast<double>(map.rows);
  for (std::int64_t i = 0; i < std::ssize(map.row_words); ++i)
    canvas.text({box.x - style.margin, box.y + static_cast<double>(i) * height, style.margin - 4, height},
                map.row_words[static_cast<std::size_t>(i)],
                {.size = word_size(height), .side = Side::right, .ink = kText});
  for (std::int64_t j = 0; j < std::ssize(map.column_words); ++j)
    canvas.text_upwards(
        {box.x + static_cast<double>(j) * width, box.y - style.margin, width, style.margin - 4},
        map.column_words[static_cast<std::size_t>(j)], {.size = word_size(width), .ink = kText});
}

std::string tick_text(double share) { return formatted("%.2g", share); }

}  // namespace

bool HeadMap::is_masked() const {
  return std::ranges::any_of(shares, [](double share) { return std::isnan(share); });
}

HeadMap head_map(const Document& document, std::int64_t batch, std::int64_t head, std::int64_t most) {
  if (document.report.queries <= most && document.report.keys <= most)
    return map_of_weights(document, batch, head);
  return map_of_bins(document, attention_map(document, {most, most}), batch, head);
}

std::vector<HeadMap> head_maps(const Document& document, std::int64_t most) {
  const AttentionReport& report = document.report;
  const bool single = report.queries <= most && report.keys <= most;
  const Tensor sums = single ? Tensor() : attention_map(document, {most, most});
  std::vector<HeadMap> maps;
  for (std::int64_t batch = 0; batch < report.batch; ++batch)
    for (std::int64_t head = 0; head < report.heads; ++head)
      maps.push_back(single ? map_of_weights(document, batch, head)
                            : map_of_bins(document, sums, batch, head));
  return maps;
}

std::string short_share(double share) {
  const std::string number = fixed(share, 2);
  return number == "1.00" ? "1" : number == "0.00" ? "0" : number.substr(number[0] == '0' ? 1 : 0);
}

double word_margin(Canvas& canvas, const HeadMap& map, double cell, double most) {
  constexpr double kBeside = 8;
  double widest = 0;
  for (const auto* words : {&map.row_words, &map.column_words})
    for (const std::string& word : *words) {
      if (widest + kBeside >= most) return most;
      widest = std::max(widest, canvas.text_width(word, {.size = word_size(cell)}));
    }
  return widest > 0 ? std::min(most, widest + kBeside) : 0;
}

void draw_map(Canvas& canvas, const Box& box, const HeadMap& map, const MapStyle& style) {
  if (style.as_image)
    draw_image(canvas, box, map, style);
  else
    draw_cells(canvas, box, map, style);
  canvas.outline(box, kRule, 0.5);
  if (style.numbers) draw_numbers(canvas, box, map, style);
  if (style.words) draw_words(canvas, box, map, style);
}

void draw_scale(Canvas& canvas, const Box& box, const MapStyle& style) {
  constexpr int kSteps = 64;
  constexpr double kBar = 9;
  std::vector<Ink> inks;
  for (int i = 0; i < kSteps; ++i) inks.push_back(mixed(kPaper, style.ink, (i + 0.5) / kSteps));
  canvas.image({box.x, box.y, box.width, kBar}, inks, 1, kSteps);
  canvas.outline({box.x, box.y, box.width, kBar}, kRule, 0.5);
  for (const double of_full : {0.0, style.root ? 0.05 : 0.25, style.root ? 0.25 : 0.5, 1.0}) {
    const double share = of_full * style.full;
    const double part = style.root ? std::sqrt(of_full) : of_full;
    const double x = box.x + part * box.width;
    canvas.line(x, box.y + kBar, x, box.y + kBar + 3, kFaintText, 0.5);
    const Side side = part == 0 ? Side::left : part == 1 ? Side::right : Side::middle;
    const double from = part == 0 ? x : part == 1 ? x - 40 : x - 20;
    canvas.text({from, box.y + kBar + 3, 40, 12}, tick_text(share),
                {.size = 8, .side = side, .ink = kFaintText});
  }
}

}  // namespace heed::cli
