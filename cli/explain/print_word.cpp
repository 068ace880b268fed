#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "draw/lettering.hpp"
#include "draw/palette.hpp"
#include "draw/table.hpp"
#include "explain/print.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr std::int64_t kMaxKeys = 40;       // up to this number, all keys are listed
constexpr std::int64_t kHeaviestKeys = 20;  // keys listed otherwise
constexpr std::size_t kMaxValues = 6;       // in the weighted sum
constexpr int kLongestKey = 14;
constexpr int kValueLabel = 8;
constexpr int kLongestBar = 24;

std::string four_decimals(double value) { return formatted("%.4f", value); }

class Follower {
 public:
  Follower(const TextOutput& output, const Model& model, const Explanation& explanation, std::int64_t word)
      : output_(output),
        model_(model),
        explanation_(explanation),
        word_(word),
        label_(labels_of(explanation.question.tokens)[static_cast<std::size_t>(word)]),
        key_words_(labels_of(explanation.question.context_tokens)),
        label_width_(std::min(widest(key_words_), kLongestKey)) {}

  void print() {
    print_head(output_, model_, explanation_);
    output_.stream << "Following " << bold(label_, output_.color) << ", word " << word_ + 1 << " of "
                   << explanation_.question.tokens.size() << ".\n";
    print_vector("embeddings", "embedding", "x = E[" + std::to_string(id()) + "]",
                 "the vector that stands for it");
    for (head_ = 0; head_ < model_.heads(); ++head_) {
      if (model_.heads() > 1)
        output_.stream << "\n  " << bold("head " + std::to_string(head_), output_.color) << '\n';
      print_vector("query", "query", explanation_.find("query")->formula, "what it looks for");
      print_keys();
      print_one_product();
      print_sum();
    }
    if (model_.heads() > 1) print_vector("merged", "merged", "z of all heads", "their contexts side by side");
    if (explanation_.find("output") != nullptr)
      print_vector("output", "output", explanation_.find("output")->formula, "the output of the layer");
  }

 private:
  std::int64_t id() const { return explanation_.value("ids").at<std::int64_t>(word_); }

  std::string key_label(std::int64_t j) const { return key_words_[static_cast<std::size_t>(j)]; }

  double entry(const char* step, std::int64_t j) const {
    return static_cast<double>(explanation_.value(step).at<float>(head_, word_, j));
  }

  // This word's row of a step, in this head if the step has heads.
  TensorView row_of(const char* step) const {
    const TensorView value = explanation_.value(step).view();
    return value.rank() == 3 ? value.select(0, head_).select(0, word_) : value.select(0, word_);
  }

  // Row j of the keys or values that this head reads.
  TensorView read_by_head(const char* step, std::int64_t j) const {
    const std::int64_t group = model_.heads() / model_.attention.kv_heads();
    return explanation_.value(step).view().select(0, head_ / group).select(0, j);
  }

  void print_vector(const char* step, const char* title, const std::string& formula, const char* meaning) {
    const TensorView row = row_of(step);
    output_.stream << '\n';
    print_heading(output_, ++number_, {title, formula, to_string(row.shape()), meaning});
    const NumberFormat format(row);
    const int room = std::max(1, (output_.width - kIndent) / NumberFormat::kWidth);
    for (std::int64_t at = 0; at < row.count(); at += room) {
      output_.stream << spaces(kIndent);
      for (std::int64_t i = at; i < std::min<std::int64_t>(row.count(), at + room); ++i)
        output_.stream << format(static_cast<double>(row.at<float>(i)));
      output_.stream << '\n';
    }
  }

  // Keys in descending order of weight. The order is stable, with NaN last.
  std::vector<std::int64_t> by_weight() const {
    std::vector<std::int64_t> order(key_words_.size());
    std::iota(order.begin(), order.end(), std::int64_t{0});
    std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) {
      const double weight = entry("weights", b);
      return entry("weights", a) > (std::isnan(weight) ? -1 : weight);
    });
    return order;
  }

  bool forbidden(std::int64_t j) const {
    return explanation_.find("masked") != nullptr &&
           entry("masked", j) == -std::numeric_limits<double>::infinity();
  }

  std::string bar(double weight) const {
    const int room = std::min(kLongestBar, output_.width - kIndent - label_width_ - 3 * kNumber - 2);
    const int length = static_cast<int>(std::lround(std::max(0.0, weight) * std::max(0, room)));
    if (output_.color != Color::none) return on_viridis(spaces(length), weight, output_.color);
    std::string text;
    for (int i = 0; i < length; ++i) text += "█";
    return text;
  }

  void print_key_row(std::int64_t j) const {
    output_.stream << spaces(kIndent) << left_aligned(key_label(j), label_width_)
                   << right_aligned(four_decimals(entry("scores", j)), kNumber);
    if (forbidden(j)) {
      output_.stream << right_aligned("-inf", kNumber) << right_aligned("0", kNumber) << "  "
                     << faint("later", output_.color) << '\n';
      return;
    }
    output_.stream << right_aligned(four_decimals(entry("scaled", j)), kNumber)
                   << right_aligned(four_decimals(entry("weights", j)), kNumber) << "  "
                   << bar(entry("weights", j)) << '\n';
  }

  void print_keys() {
    const std::string root = "/ √" + std::to_string(model_.key_dim());
    output_.stream << '\n';
    print_heading(output_, ++number_,
                  {"weights", "softmax of q · k_j " + root, "[" + std::to_string(key_words_.size()) + "]",
                   "how well each word fits what it looks for, as shares that sum to 1"});
    std::vector<std::int64_t> keys(key_words_.size());
    std::iota(keys.begin(), keys.end(), std::int64_t{0});
    const auto all = std::ssize(keys);
    if (all > kMaxKeys) {
      keys = by_weight();
      keys.resize(kHeaviestKeys);
    }
    output_.stream << spaces(kIndent + label_width_)
                   << faint(right_aligned("q · k_j", kNumber) + right_aligned(root, kNumber) +
                                right_aligned("weight", kNumber),
                            output_.color)
                   << '\n';
    for (const std::int64_t j : keys) print_key_row(j);
    if (all > kMaxKeys)
      output_.stream << spaces(kIndent) << "… and " << all - kHeaviestKeys << " words with less weight\n";
    double sum = 0;
    for (std::int64_t j = 0; j < all; ++j) sum += entry("weights", j);
    output_.stream << spaces(kIndent) << faint(left_aligned("sum", label_width_), output_.color)
                   << right_aligned(four_decimals(sum), 3 * kNumber) << '\n';
  }

  // "q · k of dessert = 0.8982 × 1.1230 + 0.1030 × 1.3014 + … = 11.1466"
  void print_one_product() const {
    const std::int64_t j = by_weight().front();
    const TensorView query = row_of("query");
    const TensorView key = read_by_head("key", j);
    constexpr std::int64_t kTerms = 2;
    std::string text = "q · k of " + shortened(key_label(j), kLongestKey) + " = ";
    for (std::int64_t c = 0; c < std::min(kTerms, query.count()); ++c)
      text += (c == 0 ? "" : " + ") + factor(query.at<float>(c)) + " × " + factor(key.at<float>(c));
    text += (query.count() > kTerms ? " + … = " : " = ") + four_decimals(entry("scores", j));
    output_.stream << '\n' << spaces(kIndent) << wrap(text, output_.width, kIndent + 2) << '\n';
  }

  static std::string factor(float value) {
    const std::string text = four_decimals(static_cast<double>(value));
    return value < 0 ? "(" + text + ")" : text;
  }

  // Prints the heaviest values with their weights, and the weighted sum.
  void print_sum() {
    const TensorView context = row_of("context");
    std::vector<std::int64_t> keys = by_weight();
    if (keys.size() > kMaxValues) keys.resize(kMaxValues);
    Tensor rows({std::ssize(keys) + 1, context.count()});
    Table table;
    for (std::size_t r = 0; r < keys.size(); ++r) {
      copy(read_by_head("value", keys[r]), rows.mutable_view().select(0, static_cast<std::int64_t>(r)));
      table.rows.push_back(four_decimals(entry("weights", keys[r])) + " × " +
                           shortened(key_label(keys[r]), kValueLabel));
    }
    copy(context, rows.mutable_view().select(0, rows.size(0) - 1));
    table.rows.emplace_back(keys.size() < key_words_.size() ? "… z =" : "z =");
    table.values = rows;
    output_.stream << '\n';
    print_heading(output_, ++number_,
                  {"context", explanation_.find("context")->formula, to_string(context.shape()),
                   "their values, mixed by these weights"});
    print_lines(output_, draw_table(table, kIndent, output_.width, output_.color));
  }

  static constexpr int kNumber = 11;
  const TextOutput& output_;
  const Model& model_;
  const Explanation& explanation_;
  std::int64_t word_;
  std::string label_;
  std::vector<std::string> key_words_;
  int label_width_;
  std::int64_t head_ = 0;
  int number_ = 0;
};

}  // namespace

void print_word(const TextOutput& output, const Model& model, const Explanation& explanation,
                std::int64_t query_word) {
  Follower(output, model, explanation, query_word).print();
}

}  // namespace heed::cli
