#include "look/ranking.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

#include "draw/lettering.hpp"
#include "draw/palette.hpp"
#include "look/answer.hpp"
#include "look/names.hpp"
#include "looked_at.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr std::size_t kMostRanked = 10;  // heads listed without --top
constexpr std::size_t kMostKeysOfAll = 8;

const PatternScore& score_of_pattern(const HeadSummary& head, HeadPattern pattern) {
  return head.patterns[static_cast<std::size_t>(pattern)];
}

// The better of the two scores; -1, below all scores, if both are NaN.
double best_score(const HeadSummary& head, HeadPattern pattern) {
  const PatternScore& score = score_of_pattern(head, pattern);
  return std::fmax(std::fmax(score.score, score.rest_score), -1.0);
}

std::string three_decimals(double value) {
  if (std::isnan(value)) return "-";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3f", value);
  return text.data();
}

const Retrieval& retrieval_of_head(const std::vector<Retrieval>& retrieval, const HeadSummary& head) {
  return retrieval[static_cast<std::size_t>(head.head)];
}

// The token positions of the needle: "2-4, 17".
std::string places_text(const std::vector<TokenSpan>& needle) {
  constexpr std::size_t kMostPlaces = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(needle.size(), kMostPlaces); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(needle[i].first);
    if (needle[i].second - needle[i].first > 1) text += "-" + std::to_string(needle[i].second - 1);
  }
  return text + (needle.size() > kMostPlaces ? ", …" : "");
}

struct RankingColumns {
  std::string title;
  std::array<std::string, 2> names;
};

RankingColumns columns_of(const LookArguments& arguments, const std::vector<Retrieval>& retrieval) {
  if (arguments.find) {
    const std::string name(name_of(*arguments.find));
    return {"heads nearest to " + name + ", named at " + three_decimals(threshold_of(*arguments.find)) +
                " or more",
            {"score", "off first key"}};
  }
  const std::int64_t rows = retrieval.front().rows;
  return {"weight on '" + printable(arguments.needle) + "', token " + places_text(arguments.needle_spans) +
              ": by the last row, and by " + std::to_string(rows) + (rows == 1 ? " row" : " rows") +
              " that may see it",
          {"last row", "mean"}};
}

}  // namespace

std::vector<HeadSummary> ranked_heads(const Document& document, const LookArguments& arguments,
                                      const std::vector<Retrieval>& retrieval) {
  std::vector<HeadSummary> heads = heads_of(document, arguments);
  const auto sort_by = [&](auto value) {
    std::stable_sort(heads.begin(), heads.end(),
                     [&](const HeadSummary& a, const HeadSummary& b) { return value(a) > value(b); });
  };
  if (arguments.find) sort_by([&](const HeadSummary& head) { return best_score(head, *arguments.find); });
  if (!retrieval.empty())
    sort_by([&](const HeadSummary& head) { return retrieval_of_head(retrieval, head).last; });
  const bool is_ranking = arguments.find || !retrieval.empty();
  const auto top = static_cast<std::size_t>(arguments.top.value_or(0));
  if (top > 0 || is_ranking) heads.resize(std::min(heads.size(), top > 0 ? top : kMostRanked));
  return heads;
}

void print_ranking(const TextOutput& output, const Document& document, const std::vector<HeadSummary>& heads,
                   const LookArguments& arguments, const std::vector<Retrieval>& retrieval) {
  constexpr int kPlace = 8, kNumber = 14, kLooks = 20;
  const RankingColumns columns = columns_of(arguments, retrieval);
  output.stream << '\n' << wrap(columns.title, output.width, 4) << "\n\n";
  output.stream << bold(left_aligned("head", kPlace) + right_aligned(columns.names[0], kNumber) +
                            right_aligned(columns.names[1], kNumber) + "  " + "looks like",
                        output.color)
                << '\n';
  for (const HeadSummary& head : heads) {
    std::array<double, 2> numbers{};
    if (arguments.find)
      numbers = {score_of_pattern(head, *arguments.find).score,
                 score_of_pattern(head, *arguments.find).rest_score};
    else
      numbers = {retrieval_of_head(retrieval, head).last, retrieval_of_head(retrieval, head).mean};
    output.stream << left_aligned(printable(head_label(document.report, head.batch, head.head)), kPlace)
                  << right_aligned(three_decimals(numbers[0]), kNumber)
                  << right_aligned(three_decimals(numbers[1]), kNumber) << "  "
                  << left_aligned(name_text(head), kLooks) << score_text(head) << '\n';
  }
}

void add_retrieval(const std::vector<HeadSummary>& heads, const std::vector<Retrieval>& retrieval,
                   nlohmann::ordered_json& list) {
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const Retrieval& found = retrieval_of_head(retrieval, heads[i]);
    list[i]["needle"] = {{"last", found.last}, {"mean", found.mean}, {"rows", found.rows}};
  }
}

std::vector<ReceivedKey> most_received(const Document& document, const std::vector<HeadSummary>& heads) {
  const Tensor& received = document.report.received;
  if (received.rank() != 3 || heads.empty()) return {};
  std::vector<double> sums(static_cast<std::size_t>(received.size(2)));
  for (const HeadSummary& head : heads)
    for (std::size_t j = 0; j < sums.size(); ++j)
      sums[j] += number_at(received, {head.batch, head.head, static_cast<std::int64_t>(j)});
  std::vector<std::size_t> order(sums.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::size_t count = std::min(order.size(), kMostKeysOfAll);
  const auto rank = [&](std::size_t j) { return std::isnan(sums[j]) ? -1.0 : sums[j]; };
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
      [&](std::size_t a, std::size_t b) { return rank(a) > rank(b) || (rank(a) == rank(b) && a < b); });
  std::vector<ReceivedKey> keys;
  for (std::size_t i = 0; i < count; ++i)
    keys.push_back({static_cast<std::int64_t>(order[i]), sums[order[i]] / static_cast<double>(heads.size())});
  return keys;
}

}  // namespace heed::cli
