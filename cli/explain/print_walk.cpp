#include <cmath>

#include "draw/heatmap.hpp"
#include "draw/lettering.hpp"
#include "draw/palette.hpp"
#include "draw/table.hpp"
#include "explain/print.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr std::int64_t kMaxWords = 24;  // in the list of attended words
constexpr std::size_t kMaxItems = 100;  // in horizontal lists of words
constexpr int kLongestLabel = 14;
constexpr int kFormulaColumn = 17;

std::string percent(double share) { return std::to_string(std::lround(100 * share)) + " %"; }

class Walkthrough {
 public:
  Walkthrough(const TextOutput& output, const Model& model, const Explanation& explanation)
      : output_(output),
        model_(model),
        explanation_(explanation),
        query_words_(labels_of(explanation.question.tokens)),
        key_words_(labels_of(explanation.question.context_tokens)) {}

  void print() {
    print_head(output_, model_, explanation_);
    print_tokens();
    int number = 2;
    for (const Step& step : explanation_.steps) {
      output_.stream << '\n';
      print_heading(output_, number++, heading_of(step));
      if (step.name == "weights")
        print_weights(step);
      else if (step.name == "ids" || step.name == "context_ids")
        print_ids(step);
      else if (step.name != "merged" || model_.heads() > 1)
        print_matrix(step);
    }
  }

 private:
  void print_paragraph(const std::string& text) const {
    output_.stream << spaces(kIndent) << wrap(text, output_.width, kIndent) << '\n';
  }

  // Prints items side by side without breaking any; only the first kMaxItems.
  void print_items(const std::vector<std::string>& items) const {
    const std::size_t shown = std::min(items.size(), kMaxItems);
    std::string line;
    for (std::size_t i = 0; i < shown; ++i) {
      const std::string item = shortened(items[i], output_.width - kIndent);
      if (!line.empty() && kIndent + display_width(line) + 2 + display_width(item) > output_.width) {
        output_.stream << spaces(kIndent) << line << '\n';
        line.clear();
      }
      line += (line.empty() ? "" : "  ") + item;
    }
    output_.stream << spaces(kIndent) << line << '\n';
    if (shown < items.size())
      output_.stream << spaces(kIndent) << "… and " << items.size() - shown << " more words\n";
  }

  void print_tokens() const {
    const bool cross = explanation_.question.cross;
    output_.stream << '\n';
    print_heading(output_, 1,
                  {"tokens", "sentence → words", "[" + std::to_string(query_words_.size()) + "]",
                   "the sentence cut at white space and commas"});
    print_items(query_words_);
    if (!cross) return;
    output_.stream << spaces(kIndent) << faint("attending to", output_.color) << '\n';
    print_items(key_words_);
  }

  const std::vector<std::string>& words_of(const std::string& axis) const {
    return axis == "Lk" ? key_words_ : query_words_;
  }

  void print_ids(const Step& step) const {
    const std::vector<std::string>& words = step.name == "ids" ? query_words_ : key_words_;
    std::vector<std::string> pairs;
    for (std::size_t i = 0; i < words.size(); ++i)
      pairs.push_back(words[i] + " " + std::to_string(step.value.values<std::int64_t>()[i]));
    print_items(pairs);
  }

  // Prints a step's matrix. If there are several heads, only head 0 is printed.
  void print_matrix(const Step& step) const {
    const bool heads = step.value.rank() == 3;
    if (heads && step.value.size(0) > 1)
      output_.stream << spaces(kIndent)
                     << faint("head 0 of " + std::to_string(step.value.size(0)), output_.color) << '\n';
    const TensorView matrix = heads ? step.value.view().select(0, 0) : step.value.view();
    const std::string& row_axis = step.axes[heads ? 1 : 0];
    Table table{words_of(row_axis), {}, matrix};
    if (step.axes.back() == "Lk") table.columns = key_words_;
    print_lines(output_, draw_table(table, kIndent, output_.width, output_.color));
  }

  void print_weights(const Step& step) const {
    output_.stream << spaces(kIndent) << faint(sums_of_rows(step.value), output_.color) << '\n';
    for (std::int64_t head = 0; head < step.value.size(0); ++head) {
      output_.stream << '\n';
      if (step.value.size(0) > 1)
        output_.stream << spaces(kIndent) << bold("head " + std::to_string(head), output_.color) << '\n';
      print_map(step.value.view().select(0, head), head);
      print_attended(head);
    }
  }

  static std::string sums_of_rows(const Tensor& weights) {
    double worst = 0;
    for (std::int64_t h = 0; h < weights.size(0); ++h)
      for (std::int64_t i = 0; i < weights.size(1); ++i) {
        double sum = 0;
        for (std::int64_t j = 0; j < weights.size(2); ++j)
          sum += static_cast<double>(weights.at<float>(h, i, j));
        if (!(std::abs(sum - 1) <= worst)) worst = std::abs(sum - 1);
      }
    return worst == 0 ? "each row sums to 1" : formatted("each row sums to 1, to within %.0e", worst);
  }

  void print_map(const TensorView& weights, std::int64_t head) const {
    HeatMap map{query_words_, key_words_, weights, std::nullopt};
    Tensor allowed;
    if (const Step* masked = explanation_.find("masked")) {
      allowed = allowed_in(masked->value.view().select(0, head));
      map.allowed = allowed;
    }
    const auto lines = draw_heatmap(map, kIndent, output_.width, output_.color);
    if (lines) return print_lines(output_, *lines);
    print_paragraph("A map of " + std::to_string(query_words_.size()) + " by " +
                    std::to_string(key_words_.size()) + " words does not fit " +
                    std::to_string(output_.width) +
                    " columns. --word W follows one word; --json and --save hold every weight.");
  }

  static Tensor allowed_in(const TensorView& masked) {
    Tensor allowed(masked.shape(), DType::boolean);
    for (std::int64_t i = 0; i < masked.shape()[0]; ++i)
      for (std::int64_t j = 0; j < masked.shape()[1]; ++j)
        allowed.at<bool>(i, j) = masked.at<float>(i, j) != -std::numeric_limits<float>::infinity();
    return allowed;
  }

  // "Life → first 60 %, Life 34 %, is 6 %"
  void print_attended(std::int64_t head) const {
    const auto rows = std::ssize(query_words_);
    const int label = std::min(widest(query_words_), kLongestLabel);
    output_.stream << '\n';
    for (std::int64_t i = 0; i < std::min(rows, kMaxWords); ++i)
      output_.stream << spaces(kIndent) << left_aligned(query_words_[static_cast<std::size_t>(i)], label)
                     << " → " << wrap(attended_by(head, i), output_.width, kIndent + label + 3) << '\n';
    if (rows > kMaxWords) print_paragraph("… and " + std::to_string(rows - kMaxWords) + " more words");
  }

  std::string attended_by(std::int64_t head, std::int64_t word) const {
    std::string list;
    for (std::int64_t k = 0; k < explanation_.top_index.size(2); ++k) {
      const std::int64_t j = explanation_.top_index.at<std::int64_t>(head, word, k);
      const double weight = static_cast<double>(explanation_.top_weight.at<float>(head, word, k));
      if (j < 0 || !(weight >= 0.005)) break;
      list += (list.empty() ? "" : ", ") + shortened(key_words_[static_cast<std::size_t>(j)], kLongestLabel) +
              " " + percent(weight);
    }
    return list.empty() ? "nothing" : list;
  }

  const TextOutput& output_;
  const Model& model_;
  const Explanation& explanation_;
  std::vector<std::string> query_words_;
  std::vector<std::string> key_words_;
};

// Describes the weight tensor of layouts that use only one.
std::string layout_line(const Model& model) {
  if (model.layout == WeightLayout::per_head) return "";
  const std::string shape = to_string(Dims{
      model.heads() * model.key_dim() + model.attention.kv_heads() * (model.key_dim() + model.value_dim()),
      model.dim()});
  if (model.layout == WeightLayout::in_proj)
    return "W_q, W_k, W_v lie one after the other in in_proj_weight " + shape + ".";
  return "W_q, W_k, W_v of each head lie together in qkv_layer.weight " + shape + ".";
}

}  // namespace

void print_lines(const TextOutput& output, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) output.stream << line << '\n';
}

void print_heading(const TextOutput& output, int number, const Heading& heading) {
  const std::string left = " " + right_aligned(std::to_string(number), 2) + " " + heading.title;
  const int gap = std::max(2, kFormulaColumn - display_width(left));
  const int formula_end = display_width(left) + gap + display_width(heading.formula);
  // A formula too long to share the line with the shape is printed on its own line.
  const bool together = formula_end + 2 + display_width(heading.shape) <= output.width;
  const int used = display_width(heading.shape) + (together ? formula_end : display_width(left));
  output.stream << bold(left, output.color);
  if (together) output.stream << spaces(gap) << heading.formula;
  output.stream << spaces(output.width - used) << faint(heading.shape, output.color) << '\n';
  if (!together) output.stream << spaces(kIndent) << heading.formula << '\n';
  output.stream << spaces(kIndent) << faint(wrap(heading.meaning, output.width, kIndent), output.color)
                << '\n';
}

Heading heading_of(const Step& step) {
  return {step.title, step.formula, to_string(step.value.shape()), step.meaning};
}

std::string subject_of(const Model& model, const Explanation& explanation) {
  const Question& question = explanation.question;
  const std::string kind = question.cross ? "Cross-attention" : "Self-attention";
  return kind + (question.causal ? ", causal" : "") + ": " + counted(std::ssize(question.tokens), "word") +
         ", " + counted(model.heads(), "head") + ", D " + std::to_string(model.dim()) + ", d_k " +
         std::to_string(model.key_dim()) + ", d_v " + std::to_string(model.value_dim());
}

void print_head(const TextOutput& output, const Model& model, const Explanation& explanation) {
  output.stream << bold(wrap(subject_of(model, explanation), output.width, 0), output.color) << '\n'
                << wrap("Weights " + printable(model.origin) + ".", output.width, 0) << '\n';
  if (const std::string line = layout_line(model); !line.empty())
    output.stream << wrap(line, output.width, 0) << '\n';
}

void print_walk(const TextOutput& output, const Model& model, const Explanation& explanation) {
  Walkthrough(output, model, explanation).print();
}

}  // namespace heed::cli
