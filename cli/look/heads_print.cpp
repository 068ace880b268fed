#include "look/heads_print.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "draw/lettering.hpp"
#include "draw/palette.hpp"
#include "look/print.hpp"
#include "looked_at.hpp"
#include "machine.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr int kName = 17;
constexpr int kLeastPlace = 6;
constexpr std::size_t kMaxWithKeys = 32;  // most heads whose summary includes the most attended keys

// "too few rows (1)" if there are too few rows to name the head.
std::string name_text(const HeadSummary& head) {
  const std::string name = head.name();
  return head.choices < kLeastRows ? name + " (" + std::to_string(head.choices) + ")" : name;
}

std::string score_of_name(const HeadName& name) { return fixed(name.score, 2) + (name.of_rest ? "*" : ""); }

// "then first-token sink 0.52", or "nearest local 0.41" without a name, or empty.
std::string runner_up_text(const HeadSummary& head) {
  const auto name = head.runner_up();
  const char* how = head.names().empty() ? "nearest " : "then ";
  return name ? how + name_of(*name) + " " + score_of_name(*name) : "";
}

std::string seconds_text(double seconds) {
  if (std::abs(seconds) < 1e-3) return fixed(seconds * 1e6, 0) + " us";
  if (std::abs(seconds) < 1) return fixed(seconds * 1e3, 1) + " ms";
  return fixed(seconds, 2) + " s";
}

// "+1.30x". Empty for NaN.
std::string times_text(double times, const std::string& sign) {
  return std::isnan(times) ? "" : sign + fixed(times, times < 10 ? 2 : times < 100 ? 1 : 0) + "x";
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

// The token positions of the needle: "2-4, 17".
std::string places_text(const std::vector<TokenSpan>& needle) {
  constexpr std::size_t kMaxPlaces = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(needle.size(), kMaxPlaces); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(needle[i].first);
    if (needle[i].second - needle[i].first > 1) text += "-" + std::to_string(needle[i].second - 1);
  }
  return text + (needle.size() > kMaxPlaces ? ", …" : "");
}

std::string title_of_needle(const std::string& words, const Needle& needle) {
  const std::int64_t rows = needle.retrieval.front().rows;
  return "weight on '" + printable(words) + "', token " + places_text(needle.spans) +
         ": by the last row, and by " + counted(rows, "row") + " that may see it";
}

void print_ranking(const TextOutput& output, const Document& document, const std::vector<HeadSummary>& heads,
                   const HeadsQuestion& question, const Needle& needle) {
  const std::vector<int> widths = {-8, 14, 14, 2, -20};
  const std::optional<HeadPattern> find = question.find;
  const std::string title = find ? "heads nearest to " + std::string(name_of(*find)) + ", named at " +
                                       fixed(threshold_of(*find), 3) + " or more"
                                 : title_of_needle(question.needle, needle);
  output.stream << '\n' << wrap(title, output.width, 4) << '\n';
  print_heading(output,
                in_columns({"head", find ? "score" : "last row", find ? "off first key" : "mean"}, widths) +
                    "  looks like");
  for (const HeadSummary& head : heads) {
    const auto [first, second] =
        find ? std::pair(score_of_pattern(head, *find).score, score_of_pattern(head, *find).rest_score)
             : std::pair(needle.by(head).last, needle.by(head).mean);
    output.stream << in_columns({printable(head_label(document.report, head.batch, head.head)),
                                 fixed(first, 3), fixed(second, 3), "", name_text(head)},
                                widths)
                  << score_text(head) << '\n';
  }
}

}  // namespace

std::string score_text(const HeadSummary& head) {
  const std::vector<HeadName> names = head.names();
  return names.empty() ? "" : score_of_name(names.front());
}

void print_heads(const TextOutput& output, const Document& document, const std::vector<HeadSummary>& heads,
                 bool with_keys) {
  const auto place_of_head = [&](const HeadSummary& head) {
    return (document.report.batch > 1 ? std::to_string(head.batch) + "/" : "") +
           printable(head_label(document.report, head.head));
  };
  int places = kLeastPlace;
  for (const HeadSummary& head : heads) places = std::max(places, display_width(place_of_head(head)) + 2);
  const std::vector<int> widths = {-places, -kName, 7, 9, 7, 10, 7, 10, 7};
  print_heading(output, in_columns({"head", "looks like", "score", "entropy", "sink", "distance", "self",
                                    "previous", "next"},
                                   widths));
  bool tells_of_rest = false;
  for (const HeadSummary& head : heads) {
    output.stream << in_columns({place_of_head(head), name_text(head), score_text(head),
                                 four_digits(head.entropy), fixed(head.first, 3), four_digits(head.distance),
                                 fixed(head.self, 3), fixed(head.previous, 3), fixed(head.next, 3)},
                                widths)
                  << '\n';
    if (head.nan_rows > 0) output.stream << "    " << counted(head.nan_rows, "row") << " of NaN left out\n";
    const std::string next = runner_up_text(head);
    if (with_keys && !next.empty()) output.stream << faint("    " + next, output.color) << '\n';
    if (with_keys) print_head_keys(output, document, head);
    tells_of_rest = tells_of_rest || (score_text(head) + next).find('*') != std::string::npos;
  }
  if (tells_of_rest)
    output.stream << faint("* share of the weight that is not on the first key", output.color) << '\n';
}

void print_answer(const TextOutput& output, const Document& document, const std::vector<HeadSummary>& heads,
                  const HeadsQuestion& question, const Needle& needle) {
  if (question.find || !needle.retrieval.empty())
    print_ranking(output, document, heads, question, needle);
  else
    print_heads(output, document, heads, !question.brief && heads.size() <= kMaxWithKeys);
}

void print_most_received(const TextOutput& output, const Document& document,
                         const std::vector<ReceivedKey>& keys, std::size_t heads) {
  if (keys.empty()) return;
  const std::string by =
      heads == document.report.summaries.size()
          ? "a head"
          : (heads == 1 ? "the head" : "one of the " + std::to_string(heads) + " heads") + " above";
  print_heading(output, "attended to most, by " + by + " on average");
  std::vector<std::string> items;
  for (const ReceivedKey& one : keys)
    items.push_back(key_text(document.report.key_tokens, one.key) + " " + four_digits(one.weight));
  print_items(output, items, 2);
}
void print_cost(const TextOutput& output, const std::vector<CostLine>& cost) {
  if (cost.empty()) return;
  const std::vector<int> widths = {-34, 12, 11, 12};
  print_heading(output, in_columns({"cost", "time", "plain = 1", "memory"}, widths));
  bool estimated = false, untold = false;
  double seconds = 0, bytes = 0;
  const auto print = [&](const std::string& what, const std::string& time, const std::string& times,
                         double memory) {
    output.stream << in_columns({what, time, times, memory > 0 ? size_text(memory) : ""}, widths) << '\n';
  };
  for (const CostLine& line : cost) {
    const std::string sign = &line == &cost.front() ? "" : "+";
    const bool told = line.made && !std::isnan(line.seconds);
    const bool guessed = line.made && line.estimated;
    print(line.what + (guessed ? " ~" : ""),
          told        ? sign + seconds_text(line.seconds)
          : line.made ? "unmeasured"
                      : "",
          line.made ? times_text(line.times, sign) : "", line.bytes);
    estimated = estimated || guessed;
    untold = untold || std::isnan(line.seconds);
    seconds += told ? line.seconds : 0;
    bytes += line.made ? line.bytes : 0;
  }
  const CostLine& plain = cost.front();
  print("total", seconds_text(seconds), times_text(seconds * plain.times / plain.seconds, ""), bytes);
  const auto note = [&](const char* text) { output.stream << faint(text, output.color) << '\n'; };
  if (estimated) note("~ estimated from a sample of rows; these lines sum to the time of the pass");
  if (std::isnan(plain.times)) note("the plain forward takes less than 1 ms, too short for a comparison");
  if (untold) note("unmeasured: below measurement noise, or included in the time of the pass");
}

}  // namespace heed::cli
