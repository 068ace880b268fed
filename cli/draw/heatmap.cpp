#include "draw/heatmap.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "draw/lettering.hpp"
#include "draw/palette.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr std::int64_t kMaxRows = 100;
constexpr int kLongestLabel = 14;
constexpr int kWidestCell = 9;
constexpr int kTallestHeading = 8;  // letters, for vertical column words
constexpr int kNumberWidth = 4;     // "0.42"
constexpr int kShortestWord = 6;  // columns of a horizontal column word; narrower columns use vertical words
constexpr const char* kForbidden = "·";
constexpr std::array<const char*, 5> kShades = {" ", "░", "▒", "▓", "█"};

struct Layout {
  int indent;
  int label;  ///< columns of a row's word
  int cell;   ///< columns of a cell
  Color color;
  double unit = 1;  ///< numbers are printed in multiples of this power of ten; 1 unless all would read 0.00
};

std::string repeated(const char* text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

// Blank for shares below 2 %. The four other characters divide the range evenly.
std::string shade(double share) {
  if (!(share >= 0.02)) return kShades[0];
  return kShades[static_cast<std::size_t>(std::min(4.0, 1 + std::floor(share * 4)))];
}

std::string number(double value) {
  return std::isnan(value) ? " nan" : shortened(formatted("%.2f", value), kNumberWidth);
}

double unit_for(double largest) {
  constexpr double kReadable = 0.05;
  return largest > 0 && largest < kReadable ? std::pow(10, std::floor(std::log10(largest))) : 1;
}

std::string power_of_ten(double unit) {
  return " x 1e" + std::to_string(static_cast<int>(std::lround(std::log10(unit))));
}

// A coloured cell, with its number in the middle if there is room.
std::string coloured_cell(double value, double share, const Layout& layout) {
  std::string text = spaces(layout.cell);
  if (layout.cell > kNumberWidth) {
    const int before = (layout.cell - kNumberWidth) / 2;
    text = left_aligned(spaces(before) + number(value / layout.unit), layout.cell);
  }
  return on_viridis(text, share, layout.color);
}

// A cell without colour: shading, then its number if there is room for both and spaces.
std::string shaded_cell(double value, double share, const Layout& layout) {
  const int shading = layout.cell - kNumberWidth - 2;
  if (shading < 1) return repeated(shade(share).c_str(), layout.cell);
  return repeated(shade(share).c_str(), shading) + " " + number(value / layout.unit) + " ";
}

std::string forbidden_cell(const Layout& layout) {
  const int before = (layout.cell - 1) / 2;
  return spaces(before) + faint(kForbidden, layout.color) + spaces(layout.cell - before - 1);
}

std::string cell_of(double value, double largest, const Layout& layout) {
  const double share = largest > 0 ? value / largest : 0;
  return layout.color == Color::none ? shaded_cell(value, share, layout)
                                     : coloured_cell(value, share, layout);
}

std::string margin_of(const Layout& layout) { return spaces(layout.indent + layout.label + 1); }

std::string without_trailing_spaces(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

// Horizontal words above their columns.
std::vector<std::string> lying_headings(const std::vector<std::string>& words, const Layout& layout) {
  std::string line = margin_of(layout);
  for (const std::string& word : words) {
    const std::string fitting = shortened(word, layout.cell - 1);
    const int before = (layout.cell - display_width(fitting)) / 2;
    line += left_aligned(spaces(before) + fitting, layout.cell);
  }
  return {without_trailing_spaces(line)};
}

// Vertical words, one letter per line, ending just above their columns.
std::vector<std::string> standing_headings(const std::vector<std::string>& words, const Layout& layout) {
  std::vector<std::vector<std::string>> letters;
  std::size_t tallest = 0;
  for (const std::string& word : words) {
    std::vector<std::string> all = characters(word);
    if (all.size() > kTallestHeading) {
      all.resize(kTallestHeading - 1);
      all.emplace_back("⋮");
    }
    tallest = std::max(tallest, all.size());
    letters.push_back(std::move(all));
  }
  std::vector<std::string> lines;
  for (std::size_t line = 0; line < tallest; ++line) {
    std::string text = margin_of(layout);
    for (const auto& word : letters) {
      const std::size_t above = tallest - word.size();
      std::string letter = line < above ? " " : word[line - above];
      if (display_width(letter) > layout.cell) letter = "*";
      text += left_aligned(spaces((layout.cell - 1) / 2) + letter, layout.cell);
    }
    lines.push_back(without_trailing_spaces(text));
  }
  return lines;
}

std::vector<std::string> headings(const std::vector<std::string>& words, const Layout& layout) {
  const bool lying = layout.cell > widest(words) || layout.cell > kShortestWord;
  return lying ? lying_headings(words, layout) : standing_headings(words, layout);
}

std::vector<std::string> legend(double largest, bool some_forbidden, int width, const Layout& layout) {
  constexpr int kSteps = 20;
  const int steps = layout.color == Color::none ? 2 * static_cast<int>(kShades.size()) : kSteps;
  std::string scale;
  if (layout.color == Color::none) {
    for (const char* one : kShades) scale += repeated(one, 2);
  } else {
    for (int i = 0; i < kSteps; ++i)
      scale += on_viridis(" ", static_cast<double>(i) / (kSteps - 1), layout.color);
  }
  const std::string margin = margin_of(layout);
  const std::string unit = layout.unit == 1 ? "" : power_of_ten(layout.unit);
  std::vector<std::string> lines = {margin + "0 " + scale + " " + number(largest / layout.unit) + unit};
  if (!some_forbidden) return lines;
  const std::string note = " forbidden by the mask";
  const int used = display_width(margin) + 2 + steps + 1 + kNumberWidth + display_width(unit);
  const bool fits = used + 3 + 1 + display_width(note) <= width;
  const std::string text = faint(kForbidden, layout.color) + note;
  if (fits)
    lines.back() += "   " + text;
  else
    lines.push_back(margin + text);
  return lines;
}

}  // namespace

std::optional<std::vector<std::string>> draw_heatmap(const HeatMap& map, int indent, int width, Color color) {
  const Tensor values = Tensor::copy_of(map.values, DType::f64);
  const std::int64_t rows = values.size(0);
  const std::int64_t columns = values.size(1);
  Layout layout{indent, std::min(widest(map.rows), kLongestLabel), 0, color, 1};
  const std::int64_t room = (width - indent - layout.label - 1) / std::max<std::int64_t>(1, columns);
  if (rows == 0 || columns == 0 || rows > kMaxRows || room < 1) return std::nullopt;
  layout.cell = static_cast<int>(std::min<std::int64_t>(kWidestCell, room));

  double largest = 0;
  for (const double value : values.values<double>())
    if (std::isfinite(value)) largest = std::max(largest, value);
  layout.unit = unit_for(largest);
  std::vector<std::string> lines = headings(map.columns, layout);
  bool some_forbidden = false;
  for (std::int64_t i = 0; i < rows; ++i) {
    std::string line =
        spaces(indent) + left_aligned(map.rows[static_cast<std::size_t>(i)], layout.label) + " ";
    for (std::int64_t j = 0; j < columns; ++j) {
      const bool forbidden = map.allowed && !map.allowed->at<bool>(i, j);
      some_forbidden = some_forbidden || forbidden;
      line += forbidden ? forbidden_cell(layout) : cell_of(values.at<double>(i, j), largest, layout);
    }
    lines.push_back(without_trailing_spaces(line));
  }
  for (std::string& line : legend(largest, some_forbidden, width, layout)) lines.push_back(std::move(line));
  return lines;
}

}  // namespace heed::cli
