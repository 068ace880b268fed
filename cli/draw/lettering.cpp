#include "draw/lettering.hpp"

#include <algorithm>
#include <map>

#include "core/utf8.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

std::string subscript(int number) {
  std::string text;
  for (const char digit : std::to_string(number))
    text += std::string("\xe2\x82") + static_cast<char>(0x80 + (digit - '0'));  // U+2080 + digit
  return text;
}

}  // namespace

std::vector<std::string> characters(std::string_view text) {
  std::vector<std::string> all;
  std::size_t begin = 0;
  while (begin < text.size()) {
    std::size_t end = begin + 1;
    while (end < text.size() && detail::continues_letter(text[end])) ++end;
    const std::string point(text.substr(begin, end - begin));
    if (!all.empty() && display_width(point) == 0)
      all.back() += point;
    else
      all.push_back(point);
    begin = end;
  }
  return all;
}

std::string shortened(std::string_view text, int width) {
  if (display_width(text) <= width) return std::string(text);
  std::string result;
  int used = 1;  // the ellipsis
  for (const std::string& character : characters(text)) {
    used += display_width(character);
    if (used > width) break;
    result += character;
  }
  return width < 1 ? "" : result + "…";
}

std::string spaces(int count) { return std::string(static_cast<std::size_t>(std::max(0, count)), ' '); }

std::string left_aligned(std::string_view text, int width) {
  const std::string fitting = shortened(text, width);
  return fitting + spaces(width - display_width(fitting));
}

std::string right_aligned(std::string_view text, int width) {
  const std::string fitting = shortened(text, width);
  return spaces(width - display_width(fitting)) + fitting;
}

std::string in_columns(const std::vector<std::string>& cells, const std::vector<int>& widths) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i)
    line += widths[i] < 0 ? left_aligned(cells[i], -widths[i]) : right_aligned(cells[i], widths[i]);
  return line;
}

std::string line_of(const std::vector<std::string>& cells, const std::vector<int>& widths) {
  const std::string line = in_columns(cells, widths);
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

int widest(const std::vector<std::string>& texts) {
  int width = 0;
  for (const std::string& text : texts) width = std::max(width, display_width(text));
  return width;
}

std::vector<std::string> labels_of(const std::vector<std::string>& words) {
  std::map<std::string, int> count;
  for (const std::string& word : words) ++count[word];
  std::map<std::string, int> seen;
  std::vector<std::string> labels;
  for (const std::string& word : words)
    labels.push_back(token_text(word) + (count[word] > 1 ? subscript(++seen[word]) : ""));
  return labels;
}

}  // namespace heed::cli
