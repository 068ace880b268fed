#include <algorithm>
#include <array>
#include <cmath>

#include "draw/lettering.hpp"
#include "draw/palette.hpp"
#include "looked_at.hpp"
#include "text.hpp"
#include "who/answer.hpp"
#include "word_places.hpp"

namespace heed::cli {
namespace {

constexpr int kNumber = 9;
constexpr int kPair = 13;
constexpr int kShownColumns = 76;         // of the text
constexpr int kBarWord = 18;              // most columns of a word beside its bar
constexpr std::int64_t kDrawnWhole = 40;  // most keys of a row that is drawn whole

std::string three_digits(double value) { return std::isnan(value) ? "nan" : formatted("%.3f", value); }

std::string pair_text(const PairWeight& one) {
  return one.rank > 0 ? std::to_string(one.row) + " → " + std::to_string(one.key) : "not seen";
}

std::string rank_text(const PairWeight& one) {
  return one.rank > 0 && !std::isnan(one.weight) ? std::to_string(one.rank) : "-";
}

// A bar with a resolution of 1/8 column, in block characters. Empty for NaN.
std::string bar(double share, int width) {
  constexpr std::array<const char*, 8> kParts = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  if (std::isnan(share)) return "";
  const auto eighths = static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * 8 * width));
  std::string text;
  for (int i = 0; i < eighths / 8; ++i) text += "█";
  return text + kParts[static_cast<std::size_t>(eighths % 8)];
}

// The word at the first place, or the tokens from there on that spell it.
std::string spelled_from(const std::vector<std::string>& tokens, const std::vector<std::int64_t>& places) {
  if (tokens.empty()) return "";
  const auto token = [&](std::size_t i) { return tokens[static_cast<std::size_t>(places[i])]; };
  std::string word(without_continuation(token(0)));
  const bool is_spelled = std::ranges::any_of(
      places, [&](std::int64_t place) { return tokens[static_cast<std::size_t>(place)] != token(0); });
  for (std::size_t i = 1; is_spelled && i < places.size() && places[i] == places[i - 1] + 1; ++i)
    word += without_continuation(token(i));
  return word;
}

// "it (8, 14)", with at most kMax places.
std::string word_and_places(const std::vector<std::string>& tokens, const std::vector<std::int64_t>& places) {
  constexpr std::size_t kMax = 8;
  const std::string word = spelled_from(tokens, places);
  std::string text = tokens.empty() ? "#" : token_text(word) + " (";
  for (std::size_t i = 0; i < std::min(kMax, places.size()); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(places[i]);
  if (places.size() > kMax) text += ", … " + std::to_string(places.size()) + " in total";
  return text + (tokens.empty() ? "" : ")");
}

const PairWeight& same_head(const PairAnswer& answer, const PairWeight& one) {
  return *std::ranges::find_if(answer.heads, [&](const PairWeight& other) {
    return other.batch == one.batch && other.head == one.head;
  });
}

bool has_choice(const PairAnswer& answer) { return answer.rows.size() > 1 || answer.keys.size() > 1; }

struct DrawnRow {
  const PairAnswer& answer;
  const PairWeight& one;
  std::vector<AttendedRow::Key> keys;
};

class PairPrinter {
 public:
  PairPrinter(const TextOutput& output, const PairAnswer& answer, const PairAnswer* against,
              const PairPrinting& printing)
      : output_(output), answer_(answer), against_(against), printing_(printing) {}

  void print() {
    print_question("", answer_);
    if (against_ != nullptr) print_question("against ", *against_);
    print_table();
    std::vector<DrawnRow> rows = {row_of(answer_, answer_.heads.front())};
    if (against_ != nullptr) rows.push_back(row_of(*against_, same_head(*against_, answer_.heads.front())));
    double largest = 0;
    for (const DrawnRow& row : rows)
      for (const auto& key : row.keys) largest = std::max(largest, key.weight);
    for (const DrawnRow& row : rows) print_row(row, largest);
  }

 private:
  void print_question(const std::string& what, const PairAnswer& answer) const {
    const AttentionReport& report = answer.document.report;
    std::string line = what + word_and_places(report.query_tokens, answer.rows) + " → " +
                       word_and_places(report.key_tokens, answer.keys);
    const std::string text = answer.text.empty() ? text_of(report.query_tokens, kShownColumns)
                                                 : quoted_text(answer.text, kShownColumns);
    if (!text.empty()) line += " in " + text;
    if (has_choice(answer)) line += "; each head with its heaviest pair of these places";
    output_.stream << wrap(line, output_.width, 2) << '\n';
  }

  void print_table() const {
    const AttentionReport& report = answer_.document.report;
    const auto shown = std::min<std::int64_t>(printing_.heads, std::ssize(answer_.heads));
    int label_width = 6;
    for (std::int64_t i = 0; i < shown; ++i) {
      const PairWeight& one = answer_.heads[static_cast<std::size_t>(i)];
      label_width = std::max(label_width, display_width(head_label(report, one.batch, one.head)) + 2);
    }
    std::string heading = left_aligned("head", label_width) + right_aligned("weight", kNumber) +
                          right_aligned("rank", kNumber - 2) + right_aligned("row → key", kPair);
    if (against_ != nullptr)
      heading += right_aligned("against", kNumber + 1) + right_aligned("rank", kNumber - 2) +
                 right_aligned("change", kNumber);
    output_.stream << '\n' << bold(heading + "  looks like", output_.color) << '\n';
    for (std::int64_t i = 0; i < shown; ++i)
      print_head(answer_.heads[static_cast<std::size_t>(i)], label_width);
    if (const auto more = std::ssize(answer_.heads) - shown; more > 0)
      output_.stream << faint("… and " + std::to_string(more) + " more; --heads lists them", output_.color)
                     << '\n';
  }

  void print_head(const PairWeight& one, int label_width) const {
    const AttentionReport& report = answer_.document.report;
    std::string line = left_aligned(printable(head_label(report, one.batch, one.head)), label_width) +
                       right_aligned(three_digits(one.weight), kNumber) +
                       right_aligned(rank_text(one), kNumber - 2) + right_aligned(pair_text(one), kPair);
    if (against_ != nullptr) {
      const PairWeight& other = same_head(*against_, one);
      line += right_aligned(three_digits(other.weight), kNumber + 1) +
              right_aligned(rank_text(other), kNumber - 2) +
              right_aligned(signed_fixed(other.weight - one.weight, 3), kNumber);
    }
    line += "  " + summary_of(report, one.batch, one.head).name();
    output_.stream << line << '\n';
  }

  // The row to draw: all visible keys in order, or for a long row the heaviest keys and the requested one.
  [[nodiscard]] DrawnRow row_of(const PairAnswer& answer, const PairWeight& one) const {
    const AttentionReport& report = answer.document.report;
    const std::int64_t begin = report.key_begin.at<std::int64_t>(one.batch, one.row);
    const std::int64_t end = report.key_end.at<std::int64_t>(one.batch, one.row);
    DrawnRow drawn{answer, one, {}};
    if (end - begin > kDrawnWhole) {
      drawn.keys = attended_row(answer.document, one.batch, one.head, one.row, printing_.top_k).top;
      const bool among =
          std::ranges::any_of(drawn.keys, [&](const AttendedRow::Key& key) { return key.key == one.key; });
      if (!among && one.rank > 0) drawn.keys.push_back({one.key, one.weight});
      return drawn;
    }
    const AttendedRow row = attended_row(answer.document, one.batch, one.head, one.row, 0, true);
    for (std::int64_t j = begin; j < end; ++j)
      drawn.keys.push_back({j, row.weights[static_cast<std::size_t>(j)]});
    return drawn;
  }

  // Draws a row. The longest bar has the weight `largest`.
  void print_row(const DrawnRow& row, double largest) const {
    const AttentionReport& report = row.answer.document.report;
    std::string title = name_of_head(report, row.one.head);
    if (report.batch > 1) title = "batch " + std::to_string(row.one.batch) + ", " + title;
    output_.stream << '\n'
                   << bold(printable(title), output_.color) << ": what "
                   << word_with_place(report.query_tokens, row.one.row) << " attends to\n";
    int width = 0;
    for (const auto& key : row.keys)
      width = std::max(width, display_width(word_with_place(report.key_tokens, key.key)));
    width = std::min(width, kBarWord);
    for (const auto& [key, weight] : row.keys) {
      const bool asked = std::ranges::find(row.answer.keys, key) != row.answer.keys.end();
      const std::string bars = largest > 0 ? bar(weight / largest, output_.width - width - 11) : "";
      const std::string line = std::string(asked ? "> " : "  ") +
                               left_aligned(word_with_place(report.key_tokens, key), width) +
                               right_aligned(three_digits(weight), 7) + (bars.empty() ? "" : "  " + bars);
      output_.stream << (asked ? bold(line, output_.color) : line) << '\n';
    }
  }

  const TextOutput& output_;
  const PairAnswer& answer_;
  const PairAnswer* against_;
  const PairPrinting& printing_;
};

}  // namespace

void print_pair(const TextOutput& output, const PairAnswer& answer, const PairAnswer* against,
                const PairPrinting& printing) {
  PairPrinter(output, answer, against, printing).print();
}

}  // namespace heed::cli
