// The weight that heads give to the tokens of a needle.
#include <algorithm>
#include <limits>

#include "core/message.hpp"
#include "heed/model/look.hpp"

namespace heed {
namespace {

constexpr std::int64_t kRowsOfNeedle = 4096;  // rows whose weights are held at once

bool in_needle(std::int64_t place, std::span<const TokenSpan> needle) {
  return std::ranges::any_of(
      needle, [place](const TokenSpan& span) { return place >= span.first && place < span.second; });
}

void check_needle(const AttentionReport& report, std::span<const TokenSpan> needle) {
  if (needle.empty()) detail::refuse("needle has no tokens; at least one is expected");
  for (const TokenSpan& span : needle)
    if (span.first < 0 || span.first >= span.second || span.second > report.keys)
      detail::refuse("needle holds ", span.first, " to ", span.second, "; places within 0 to ", report.keys,
                     " are expected");
}

// Rows outside the needle that may see all of its first occurrence.
std::vector<bool> rows_that_see(const AttentionReport& report, std::span<const TokenSpan> needle) {
  std::vector<bool> see(static_cast<std::size_t>(report.queries));
  for (std::int64_t i = 0; i < report.queries; ++i)
    see[static_cast<std::size_t>(i)] = report.key_begin.at<std::int64_t>(0, i) <= needle.front().first &&
                                       report.key_end.at<std::int64_t>(0, i) >= needle.front().second &&
                                       !in_needle(i, needle);
  return see;
}

}  // namespace

std::vector<Retrieval> retrieval_of(const Document& document, std::span<const TokenSpan> needle) {
  const AttentionReport& report = document.report;
  if (!document.has_report || report.lse.rank() != 3)
    detail::refuse("the document has no report of its rows; one is expected");
  check_needle(report, needle);
  const std::vector<bool> counts = rows_that_see(report, needle);
  std::vector<Retrieval> heads(static_cast<std::size_t>(report.heads));
  for (std::int64_t begin = 0; begin < report.queries; begin += kRowsOfNeedle) {
    const std::int64_t end = std::min(begin + kRowsOfNeedle, report.queries);
    for (const TokenSpan& span : needle) {
      const Tensor weights = attention_tile(document, {begin, end, span.first, span.second, 0}).weights;
      for (std::int64_t head = 0; head < report.heads; ++head)
        for (std::int64_t i = begin; i < end; ++i) {
          double sum = 0;
          for (std::int64_t j = 0; j < span.second - span.first; ++j)
            sum += number_at(weights, {0, head, i - begin, j});
          Retrieval& found = heads[static_cast<std::size_t>(head)];
          if (counts[static_cast<std::size_t>(i)]) found.mean += sum;
          if (i + 1 == report.queries) found.last += sum;
        }
    }
  }
  const auto rows = std::ranges::count(counts, true);
  for (Retrieval& found : heads) {
    found.rows = rows;
    found.mean = rows > 0 ? found.mean / static_cast<double>(rows) : std::numeric_limits<double>::quiet_NaN();
  }
  return heads;
}

std::vector<TokenSpan> spans_of(std::string_view text, const ModelTokens& tokens, std::string_view words) {
  std::vector<TokenSpan> spans;
  if (words.empty()) return spans;
  for (std::size_t at = text.find(words); at != std::string_view::npos;
       at = text.find(words, at + words.size())) {
    const std::size_t end = at + words.size();
    const auto covers = [at, end](const TextToken& token) { return token.begin < end && token.end > at; };
    const auto first = std::ranges::find_if(tokens.places, covers);
    const auto last = std::find_if_not(first, tokens.places.end(), covers);
    if (first == last) continue;
    const TokenSpan span{first - tokens.places.begin(), last - tokens.places.begin()};
    if (spans.empty() || spans.back() != span) spans.push_back(span);
  }
  return spans;
}

}  // namespace heed
