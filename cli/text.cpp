#include "text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <span>
#include <utility>

#include "core/utf8.hpp"

namespace heed::cli {
namespace {

using heed::detail::CodePoint;

struct Range {
  std::uint32_t first;
  std::uint32_t last;
};

bool within(std::span<const Range> ranges, std::uint32_t value) {
  return std::ranges::any_of(ranges,
                             [value](Range range) { return value >= range.first && value <= range.last; });
}

// Common blocks of Unicode's general categories Mn and Me, and zero-width format characters.
constexpr Range kNoWidth[] = {{0x0300, 0x036F}, {0x0483, 0x0489}, {0x0591, 0x05BD},
                              {0x064B, 0x065F}, {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF},
                              {0x200B, 0x200D}, {0x20D0, 0x20FF}, {0xFE00, 0xFE2F}};
// Unicode's East_Asian_Width W and F, by block.
constexpr Range kWide[] = {{0x1100, 0x115F}, {0x2E80, 0x303E},   {0x3041, 0xA4CF},
                           {0xAC00, 0xD7A3}, {0xF900, 0xFAFF},   {0xFF00, 0xFF60},
                           {0xFFE0, 0xFFE6}, {0x1F300, 0x1FAFF}, {0x20000, 0x3FFFD}};
// Marks that reorder the text after them, and the line and paragraph separators.
constexpr Range kReordering[] = {{0x200E, 0x200F}, {0x2028, 0x202E}, {0x2066, 0x2069}, {0xFEFF, 0xFEFF}};

// Blocks of scripts that are written from right to left.
constexpr Range kRightToLeft[] = {
    {0x0590, 0x08FF}, {0xFB1D, 0xFDFF}, {0xFE70, 0xFEFC}, {0x10800, 0x10FFF}, {0x1E800, 0x1EFFF}};

// White space and zero-width characters, which are invisible at the ends of a text.
constexpr Range kUnseen[] = {{'\t', '\n'},     {'\r', '\r'},     {' ', ' '},
                             {0x00A0, 0x00A0}, {0x1680, 0x1680}, {0x2000, 0x200D},
                             {0x202F, 0x202F}, {0x205F, 0x2060}, {0x3000, 0x3000}};

std::string hexadecimal(const char* pattern, std::uint32_t value) {
  std::array<char, 16> buffer{};
  const int length = std::snprintf(buffer.data(), buffer.size(), pattern, static_cast<unsigned>(value));
  return {buffer.data(), static_cast<std::size_t>(length)};
}

std::string escaped(const CodePoint& point) {
  if (point.value == '\n') return "\\n";
  if (point.value == '\r') return "\\r";
  if (point.value == '\t') return "\\t";
  return point.value > 0xFF ? hexadecimal("\\u{%04X}", point.value) : hexadecimal("\\x%02X", point.value);
}

bool is_printable(const CodePoint& point) {
  const bool control = point.value < 0x20 || (point.value >= 0x7F && point.value < 0xA0);
  return point.valid && !control && !within(kReordering, point.value);
}

std::string sign_of(const CodePoint& point) {
  if (point.value == ' ') return "␣";
  if (point.value == '\t') return "⇥";
  if (point.value == '\n') return "⏎";
  if (point.value == '\r') return "␍";
  return escaped(point);
}

// Levenshtein distance in which swapping two neighbours costs one ("optimal string alignment").
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before;  // row i - 2 of the table
  std::vector<std::size_t> last(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::vector<std::size_t> row(b.size() + 1, i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replace, last[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = std::exchange(last, std::move(row));
  }
  return last.back();
}

// Splits a line into words. Text in square brackets, a shape, is one word.
std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words(1);
  bool in_brackets = false;
  for (const char c : line) {
    if (c == '[' || c == ']') in_brackets = c == '[';
    if (c == ' ' && !in_brackets) {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

}  // namespace

bool is_utf8(std::string_view text) { return heed::detail::is_utf8(text); }

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const CodePoint point = heed::detail::decode_utf8(text);
    result += is_printable(point) ? std::string(text.substr(0, point.length)) : escaped(point);
    text.remove_prefix(point.length);
  }
  return result;
}

std::string token_text(std::string_view token) {
  std::string result;
  std::string unseen;  // invisible characters since the last visible one; `signs` spells them out
  std::string signs;
  bool any = false;
  while (!token.empty()) {
    const CodePoint point = heed::detail::decode_utf8(token);
    const std::string as_is(token.substr(0, point.length));
    token.remove_prefix(point.length);
    if (point.valid && within(kUnseen, point.value)) {
      unseen += is_printable(point) ? as_is : sign_of(point);
      signs += sign_of(point);
      continue;
    }
    result += (any ? unseen : signs) + (is_printable(point) ? as_is : sign_of(point));
    any = true;
    unseen.clear();
    signs.clear();
  }
  return any ? result + signs : '"' + signs + '"';
}

std::string isolated(const std::string& word) {
  for (std::string_view rest = word; !rest.empty();) {
    const CodePoint point = heed::detail::decode_utf8(rest);
    if (point.valid && within(kRightToLeft, point.value)) return "\u2068" + word + "\u2069";
    rest.remove_prefix(point.length);
  }
  return word;
}

int display_width(std::string_view text) {
  int width = 0;
  while (!text.empty()) {
    const CodePoint point = heed::detail::decode_utf8(text);
    if (!within(kNoWidth, point.value)) width += within(kWide, point.value) ? 2 : 1;
    text.remove_prefix(point.length);
  }
  return width;
}

std::string formatted(const char* pattern, double value) {
  std::array<char, 400> text{};  // a double has at most 309 digits before its point
  std::snprintf(text.data(), text.size(), pattern, value);
  return text.data();
}

std::string fixed(double value, int decimals) {
  return std::isnan(value) ? "-" : formatted(("%." + std::to_string(decimals) + "f").c_str(), value);
}

std::string signed_fixed(double value, int decimals) {
  return (std::isnan(value) || std::signbit(value) ? "" : "+") + fixed(value, decimals);
}

std::string joined_words(const std::string& first, const std::vector<std::string>& more) {
  return more.empty() ? first : first + " " + joined_words(more);
}

std::string joined_words(const std::vector<std::string>& words) { return detail::joined_texts(words, " "); }

std::string with_dashes(std::string_view name) {
  std::string dashed(name);
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  return dashed;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string wrap(std::string_view text, int width, int indent) {
  const std::string line_break = '\n' + std::string(static_cast<std::size_t>(indent), ' ');
  std::string result;
  for (const std::string& line : split(text, '\n')) {
    if (!result.empty()) result += line_break;
    int column = indent;
    bool first = true;
    for (const std::string& word : words_of(line)) {
      const int length = display_width(word);
      if (!first && column + 1 + length > width) {
        result += line_break;
        column = indent;
      } else if (!first) {
        result += ' ';
        ++column;
      }
      result += word;
      column += length;
      first = false;
    }
  }
  return result;
}

std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& known) {
  std::optional<std::string> best;
  std::size_t least = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

std::string shell_quoted(const std::string& word) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+=:,./@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

}  // namespace heed::cli
