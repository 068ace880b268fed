#include "look/print.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <ostream>
#include <utility>

#include "draw/lettering.hpp"
#include "draw/palette.hpp"
#include "look/choice.hpp"
#include "look/names.hpp"
#include "look/sort.hpp"
#include "looked_at.hpp"
#include "machine.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr int kName = 17;
constexpr int kLeastPlace = 6;
constexpr std::array<std::pair<const char*, int>, 7> kHeadColumns = {{{"score", 7},
                                                                      {"entropy", 9},
                                                                      {"sink", 7},
                                                                      {"distance", 10},
                                                                      {"self", 7},
                                                                      {"previous", 10},
                                                                      {"next", 7}}};
constexpr int kWord = 16;  // most columns of a token
constexpr std::size_t kMostRows = 100;
constexpr int kCostName = 34;
constexpr std::int64_t kMostRuns = 60;

std::string fixed(double value, int decimals) {
  if (std::isnan(value)) return "-";
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

// Shortens a number in an option to four significant digits; returns other text unchanged.
std::string short_value(const std::string& value) {
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  if (value.empty() || *end != '\0') return value;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", number);
  return std::strlen(text.data()) < value.size() ? text.data() : value;
}

// About four significant digits.
std::string four_digits(double value) {
  const double size = std::abs(value);
  return fixed(value, size < 10 ? 3 : size < 100 ? 2 : size < 1000 ? 1 : 0);
}

std::string seconds_text(double seconds) {
  if (std::abs(seconds) < 1e-3) return fixed(seconds * 1e6, 0) + " us";
  if (std::abs(seconds) < 1) return fixed(seconds * 1e3, 1) + " ms";
  return fixed(seconds, 2) + " s";
}

// "the (17)", or "17" if no tokens are known.
std::string key_text(const std::vector<std::string>& tokens, std::int64_t index) {
  const std::string number = std::to_string(index);
  if (tokens.empty()) return number;
  return shortened(token_text(tokens[static_cast<std::size_t>(index)]), kWord) + " (" + number + ")";
}

void print_line(const TextOutput& output, const std::string& line) {
  output.stream << wrap(line, output.width, 4) << '\n';
}

// Prints items separated by dots without breaking any. Lines are indented by `indent` spaces.
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

// The ranges where `is_one` holds, "0-3, 17, 40-63"; at most kMostRuns of them.
std::string runs_text(std::int64_t count, const std::function<bool(std::int64_t)>& is_one) {
  std::string text;
  std::int64_t runs = 0;
  for (std::int64_t begin = 0, end = 0; begin < count; begin = end) {
    end = begin + 1;
    if (!is_one(begin)) continue;
    while (end < count && is_one(end)) ++end;
    if (++runs > kMostRuns) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(begin);
    if (end - begin > 1) text += "-" + std::to_string(end - 1);
  }
  if (runs > kMostRuns) text += " … and " + std::to_string(runs - kMostRuns) + " more; --json has all";
  return text.empty() ? "none" : text;
}

void print_keys(const TextOutput& output, const Document& document, const Eviction& eviction,
                std::int64_t batch) {
  const std::int64_t queries = document.report.queries, keys = document.report.keys;
  const auto stays = [&](std::int64_t j) {
    return eviction.trace.gone.at<std::int64_t>(batch, j) == queries;
  };
  std::int64_t kept = 0;
  for (std::int64_t j = 0; j < keys; ++j) kept += stays(j);
  const std::string of_batch = document.report.batch > 1 ? "batch " + std::to_string(batch) + ", " : "";
  const auto line = [&](const char* what, std::int64_t count,
                        const std::function<bool(std::int64_t)>& is_one) {
    print_line(output, "  " + of_batch + what + " " + std::to_string(count) + " of " + std::to_string(keys) +
                           " keys: " + runs_text(keys, is_one));
  };
  line("evicted", keys - kept, [&](std::int64_t j) { return !stays(j); });
  line("kept", kept, stays);
}

void print_head_keys(const TextOutput& output, const Document& document, const HeadSummary& head) {
  if (head.most_received.empty()) return;
  std::string line = "    attended to most:";
  for (std::size_t k = 0; k < head.most_received.size(); ++k) {
    const std::string more = std::string(k == 0 ? " " : " · ") +
                             key_text(document.report.key_tokens, head.most_received[k]) + " " +
                             four_digits(head.most_received_weight[k]);
    if (display_width(line + more) > output.width) break;
    line += more;
  }
  output.stream << faint(line, output.color) << '\n';
}

}  // namespace

std::string plane_text(const Document& document, std::int64_t batch, std::int64_t head) {
  const std::string text = printable(name_of_head(document.report, head));
  return document.report.batch > 1 ? "batch " + std::to_string(batch) + ", " + text : text;
}

std::string call_line(const Document& document) {
  const AttentionReport& report = document.report;
  std::string line = std::to_string(report.heads) + (report.heads == 1 ? " head" : " heads");
  if (report.batch != 1) line += ", " + std::to_string(report.batch) + " batch entries";
  line += ", " + std::to_string(report.queries) + " queries, " + std::to_string(report.keys) + " keys, D " +
          std::to_string(report.head_dim) + ", " + std::string(name_of(report.dtype)) + ", " + report.kernel +
          " (" + report.isa + ")";
  for (const auto& [name, value] : report.options)
    line += ", " + name + (value == "true" ? "" : " " + short_value(value));
  return line;
}

void print_call(const TextOutput& output, const Document& document) {
  print_line(output, printable(call_line(document)));
}

void print_heads(const TextOutput& output, const Document& document, const std::vector<HeadSummary>& heads,
                 bool with_keys) {
  const auto place_of_head = [&](const HeadSummary& head) {
    return (document.report.batch > 1 ? std::to_string(head.batch) + "/" : "") +
           printable(head_label(document.report, head.head));
  };
  int places = kLeastPlace;
  for (const HeadSummary& head : heads) places = std::max(places, display_width(place_of_head(head)) + 2);
  std::string heading = left_aligned("head", places) + left_aligned("looks like", kName);
  for (const auto& [name, width] : kHeadColumns) heading += right_aligned(name, width);
  output.stream << '\n' << bold(heading, output.color) << '\n';
  for (const HeadSummary& head : heads) {
    const std::array<std::string, kHeadColumns.size()> numbers = {
        score_text(head),    four_digits(head.entropy), fixed(head.first, 3), four_digits(head.distance),
        fixed(head.self, 3), fixed(head.previous, 3),   fixed(head.next, 3)};
    std::string line = left_aligned(place_of_head(head), places) + left_aligned(name_text(head), kName);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      line += right_aligned(numbers[i], kHeadColumns[i].second);
    output.stream << line << '\n';
    if (head.nan_rows > 0)
      output.stream << "    " << head.nan_rows << (head.nan_rows == 1 ? " row" : " rows")
                    << " of NaN left out\n";
    const std::string next = runner_up_text(head);
    if (with_keys && !next.empty()) output.stream << faint("    " + next, output.color) << '\n';
    if (with_keys) print_head_keys(output, document, head);
  }
  if (std::any_of(heads.begin(), heads.end(), tells_of_rest))
    output.stream << faint(kRestNote, output.color) << '\n';
}

void print_most_received(const TextOutput& output, const Document& document,
                         const std::vector<ReceivedKey>& keys, std::size_t heads) {
  if (keys.empty()) return;
  const std::string by =
      heads == document.report.summaries.size()
          ? "a head"
          : (heads == 1 ? "the head" : "one of the " + std::to_string(heads) + " heads") + " above";
  output.stream << '\n' << bold("attended to most, by " + by + " on average", output.color) << '\n';
  std::vector<std::string> items;
  for (const ReceivedKey& one : keys)
    items.push_back(key_text(document.report.key_tokens, one.key) + " " + four_digits(one.weight));
  print_items(output, items, 2);
}

void print_cost(const TextOutput& output, const std::vector<CostLine>& cost) {
  if (cost.empty()) return;
  output.stream << '\n'
                << bold(left_aligned("cost", kCostName) + right_aligned("time", 12) +
                            right_aligned("plain = 1", 11) + right_aligned("memory", 12),
                        output.color)
                << '\n';
  bool estimated = false;
  double seconds = 0;
  double bytes = 0;
  const auto print_line = [&](const std::string& what, const std::string& time, double times,
                              const std::string& sign, double memory) {
    output.stream << left_aligned(what, kCostName) << right_aligned(time, 12)
                  << right_aligned(std::isnan(times) ? ""
                                                     : sign +
                                                           fixed(times, times < 10    ? 2
                                                                        : times < 100 ? 1
                                                                                      : 0) +
                                                           "x",
                                   11)
                  << right_aligned(memory > 0 ? size_text(memory) : "", 12) << '\n';
  };
  for (const CostLine& line : cost) {
    const std::string sign = &line == &cost.front() ? "" : "+";
    const bool told = line.made && !std::isnan(line.seconds);
    estimated = estimated || (line.estimated && line.made);
    seconds += told ? line.seconds : 0;
    bytes += line.made ? line.bytes : 0;
    print_line(line.what + (line.estimated && line.made ? " ~" : ""),
               told        ? sign + seconds_text(line.seconds)
               : line.made ? "unmeasured"
                           : "",
               line.made ? line.times : std::nan(""), sign, line.bytes);
  }
  const CostLine& plain = cost.front();
  print_line("total", seconds_text(seconds), seconds * plain.times / plain.seconds, "", bytes);
  const auto note = [&](const char* text) { output.stream << faint(text, output.color) << '\n'; };
  if (estimated) note("~ estimated from a sample of rows; these lines sum to the time of the pass");
  if (std::isnan(plain.times)) note("the plain forward takes less than 1 ms, too short for a comparison");
  if (std::any_of(cost.begin(), cost.end(), [](const CostLine& l) { return std::isnan(l.seconds); }))
    note("unmeasured: below measurement noise, or included in the time of the pass");
}

void print_rows(const TextOutput& output, const Document& document, const std::vector<AttendedRow>& rows) {
  std::int64_t last = -1;
  std::size_t printed = 0;
  for (const AttendedRow& row : rows) {
    if (printed++ == kMostRows) {
      output.stream << "… and " << rows.size() - kMostRows << " more; --csv FILE or --json has all\n";
      return;
    }
    if (row.row != last)
      output.stream << '\n'
                    << bold("row " + key_text(document.report.query_tokens, row.row), output.color) << '\n';
    last = row.row;
    print_line(output, "  " + plane_text(document, row.batch, row.head) + ": entropy " +
                           four_digits(row.entropy) + ", distance " + four_digits(row.distance));
    std::vector<std::string> items;
    for (const AttendedRow::Key& key : row.top)
      items.push_back(key_text(document.report.key_tokens, key.key) + " " + fixed(key.weight, 4));
    if (items.empty()) items.emplace_back(std::isnan(row.entropy) ? "NaN" : "no key is allowed");
    print_items(output, items, 4);
  }
}

void print_evictions(const TextOutput& output, const Document& document,
                     const std::vector<Eviction>& evictions, const LookArguments& arguments) {
  for (const Eviction& eviction : evictions) {
    std::string title = eviction.policy;
    if (eviction.prompt > 0) title += ", after a prompt of " + std::to_string(eviction.prompt);
    output.stream << '\n' << bold(title, output.color) << '\n';
    std::int64_t batch = -1;
    for (const HeadLoss& head : losses_of(eviction, arguments)) {
      if (head.batch != batch) print_keys(output, document, eviction, batch = head.batch);
      output.stream << "  " << plane_text(document, head.batch, head.head) << ": a row loses "
                    << fixed(head.mean, 4) << " of its weights on average\n";
      std::vector<std::string> items;
      for (const RowLoss& row : head.most)
        items.push_back("row " + key_text(document.report.query_tokens, row.row) + " " +
                        fixed(row.dropped, 4));
      if (!items.empty()) print_items(output, items, 4);
    }
  }
}

}  // namespace heed::cli
