#include "look/print.hpp"

#include <cmath>
#include <cstdlib>

#include "draw/lettering.hpp"
#include "draw/palette.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr int kWord = 16;  // most columns of a token

// Shortens a number in an option to four significant digits; returns other text unchanged.
std::string short_value(const std::string& value) {
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  if (value.empty() || *end != '\0') return value;
  const std::string text = formatted("%.4g", number);
  return text.size() < value.size() ? text : value;
}

}  // namespace

std::string four_digits(double value) {
  const double size = std::abs(value);
  return fixed(value, size < 10 ? 3 : size < 100 ? 2 : size < 1000 ? 1 : 0);
}

std::string key_text(const std::vector<std::string>& tokens, std::int64_t index) {
  const std::string number = std::to_string(index);
  if (tokens.empty()) return number;
  return shortened(token_text(tokens[static_cast<std::size_t>(index)]), kWord) + " (" + number + ")";
}

std::string plane_text(const Document& document, std::int64_t batch, std::int64_t head) {
  const std::string text = printable(name_of_head(document.report, head));
  return document.report.batch > 1 ? "batch " + std::to_string(batch) + ", " + text : text;
}

std::string call_line(const Document& document) {
  const AttentionReport& report = document.report;
  std::string line = counted(report.heads, "head");
  if (report.batch != 1) line += ", " + counted(report.batch, "batch entry", "batch entries");
  line += ", " + counted(report.queries, "query", "queries") + ", " + counted(report.keys, "key") + ", D " +
          std::to_string(report.head_dim) + ", " + std::string(name_of(report.dtype)) + ", " + report.kernel +
          " (" + report.isa + ")";
  for (const auto& [name, value] : report.options)
    line += ", " + name + (value == "true" ? "" : " " + short_value(value));
  return line;
}

void print_line(const TextOutput& output, const std::string& line) {
  output.stream << wrap(line, output.width, 4) << '\n';
}

void print_heading(const TextOutput& output, const std::string& line) {
  output.stream << '\n' << bold(line, output.color) << '\n';
}

void print_items(const TextOutput& output, const std::vector<std::string>& items, int indent) {
  std::string line = spaces(indent);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string more = items[i] + (i + 1 < items.size() ? " ·" : "");
    if (display_width(line) > indent && display_width(line) + 1 + display_width(more) > output.width) {
      output.stream << line << '\n';
      line = spaces(indent);
    }
    line += (display_width(line) > indent ? " " : "") + more;
  }
  output.stream << line << '\n';
}

void print_call(const TextOutput& output, const Document& document) {
  print_line(output, printable(call_line(document)));
}

}  // namespace heed::cli
