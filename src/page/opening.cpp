#include "page/opening.hpp"

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace heed::detail {

constexpr double kTelling = 0.3;  // a weaker weight on a distant key is no better opening than a neighbour

namespace {

// By place, whether the token is a word. Without tokens all places are.
std::vector<char> words_among(const std::vector<std::string>& tokens, std::int64_t count) {
  std::vector<char> words(static_cast<std::size_t>(count), 1);
  for (std::size_t i = 0; i < tokens.size(); ++i) words[i] = static_cast<char>(!is_separator(tokens[i]));
  return words;
}

}  // namespace

// A row gives at most four places to the first key, its own and those beside it, so five of its keys suffice.
std::optional<Opening> opening_of(const AttentionReport& report) {
  if (report.top_k_index.count() == 0) return std::nullopt;
  const bool cross = report.query_tokens != report.key_tokens;
  const std::int64_t heads = report.top_k_index.size(1);
  const std::vector<char> row_words = words_among(report.query_tokens, report.queries);
  const std::vector<char> key_words = words_among(report.key_tokens, report.keys);
  std::optional<Opening> found, dull;
  double most = 0, most_dull = 0;
  for (std::int64_t n = 0; n < report.batch * heads; ++n)
    for (std::int64_t row = 0; row < report.queries; ++row) {
      const std::int64_t batch = n / heads;
      const auto of_row = [&](const Tensor& tensor) { return tensor.at<std::int64_t>(batch, row); };
      if (of_row(report.key_end) - of_row(report.key_begin) < 2) continue;
      for (std::int64_t k = 0; k < report.top_k_index.size(3); ++k) {
        const std::int64_t key = report.top_k_index.at<std::int64_t>(batch, n % heads, row, k);
        if (key <= 0 || (!cross && key == of_row(report.position))) continue;
        const double weight = number_at(report.top_k_weight, {batch, n % heads, row, k});
        const bool is_neighbour = !cross && std::abs(key - of_row(report.position)) == 1;
        const bool between_words =
            row_words[static_cast<std::size_t>(row)] != 0 && key_words[static_cast<std::size_t>(key)] != 0;
        const bool is_dull = is_neighbour || !between_words;
        double& largest = is_dull ? most_dull : most;
        if (!(weight > largest)) continue;
        largest = weight;
        (is_dull ? dull : found) = {n, row, key};
      }
    }
  return most >= kTelling || most >= most_dull ? found : dull;
}

namespace {

// The weight of a key among the most attended ones of a row; 0 if it is not one of them.
double top_weight(const AttentionReport& report, std::int64_t batch, std::int64_t head, std::int64_t row,
                  std::int64_t key) {
  for (std::int64_t k = 0; k < report.top_k_index.size(3); ++k)
    if (report.top_k_index.at<std::int64_t>(batch, head, row, k) == key)
      return number_at(report.top_k_weight, {batch, head, row, k});
  return 0;
}

}  // namespace

std::optional<Opening> opening_of_difference(const AttentionReport& report, std::int64_t beside) {
  if (report.top_k_index.count() == 0) return std::nullopt;
  std::optional<Opening> found;
  double most = 0;
  for (std::int64_t batch = 0; batch < report.batch; ++batch)
    for (std::int64_t head = 0; head < beside; ++head)
      for (std::int64_t row = 0; row < report.queries; ++row)
        for (const std::int64_t one : {head, head + beside})
          for (std::int64_t k = 0; k < report.top_k_index.size(3); ++k) {
            const std::int64_t key = report.top_k_index.at<std::int64_t>(batch, one, row, k);
            if (key < 0) continue;
            const double difference = std::abs(top_weight(report, batch, head, row, key) -
                                               top_weight(report, batch, head + beside, row, key));
            if (!(difference > most)) continue;
            most = difference;
            found = {batch * report.heads + head, row, key};
          }
  return found;
}

}  // namespace heed::detail
