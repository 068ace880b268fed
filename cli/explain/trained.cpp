#include "explain/trained.hpp"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <vector>

#include "command.hpp"
#include "draw/heatmap.hpp"
#include "draw/lettering.hpp"
#include "draw/palette.hpp"
#include "look/choice.hpp"
#include "look/print.hpp"
#include "look/tables.hpp"
#include "looked_at.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr std::int64_t kExpectations = 3;
constexpr double kLikely = 0.01;

const char* meaning_of(std::string_view name) {
  if (name == name_of(HeadPattern::previous_token)) return "each word looks at the one before it";
  if (name == name_of(HeadPattern::next_token)) return "each word looks at the one behind it";
  if (name == name_of(HeadPattern::self)) return "each word looks at itself";
  if (name == name_of(HeadPattern::duplicate_token)) return "each word looks at where it stood before";
  if (name == name_of(HeadPattern::same_token)) return "each word looks at where else it stands";
  if (name == name_of(HeadPattern::separators)) return "words look at punctuation and special tokens";
  if (name == name_of(HeadPattern::vertical)) return "all words look at the same ones";
  if (name == "too few rows") return "too few words to tell";
  if (name == name_of(HeadPattern::induction)) return "each word looks at what followed it the last time";
  if (name == name_of(HeadPattern::first_token_sink))
    return "words look at the first one, and away from the rest";
  if (name == name_of(HeadPattern::local)) return "each word looks at those nearby";
  if (name == name_of(HeadPattern::uniform)) return "each word looks at all before it alike";
  return "no plain rule fits";
}

std::string precise_percent(double share) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %%", 100 * share);
  return text.data();
}

double score_of(const HeadSummary& summary, HeadPattern pattern) {
  return summary.patterns[static_cast<std::size_t>(pattern)].score;
}

// The likeliest, and others that are likely at all.
std::string listed(const std::vector<Expectation>& expected) {
  std::string text;
  for (const Expectation& one : expected)
    if (text.empty() || one.probability >= kLikely)
      text += (text.empty() ? "" : ", ") + token_text(one.token) + " " + precise_percent(one.probability);
  return text;
}

// "induction: 2 layers of 4 heads, attention only, 45952 parameters".
std::string description_of(const TrainedModel& trained, const std::string& name) {
  const nn::LanguageModelConfig& config = trained.model.config;
  const auto counted = [](std::int64_t count, const std::string& thing) {
    return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
  };
  return name + ": " + counted(config.layers, "layer") + " of " + counted(config.heads, "head") +
         (config.attention_only ? ", attention only, " : ", ") +
         counted(nn::parameter_count(config), "parameter");
}

class TrainedModelPrinter {
 public:
  TrainedModelPrinter(const TrainedModel& trained, const Reading& reading, const HeadChoice& choice)
      : trained_(trained), reading_(reading), document_(document_of_layers(reading)) {
    chosen_ = heads_named(document_, choice.layer, choice.heads);
    fill_report(document_, {.map = {}, .full_weights_cells = kFullWeightsCells});
  }

  void print(const TextOutput& output, const std::string& name) const {
    output.stream << wrap(printable(description_of(trained_, name)), output.width, 2) << '\n'
                  << wrap("It reads: " + words(), output.width, 2) << '\n';
    print_heads(output, document_, told(), false);
    for (const std::int64_t head : drawn()) print_head_map(output, head);
    const std::int64_t last = static_cast<std::int64_t>(reading_.tokens.size()) - 1;
    output.stream << '\n'
                  << wrap("After all this it expects " +
                              listed(trained_.expected_after(reading_, last, kExpectations)) + ".",
                          output.width, 2)
                  << '\n';
  }

  [[nodiscard]] nlohmann::ordered_json json(const std::string& name) const {
    nlohmann::ordered_json json = {{"model", name}, {"tokens", reading_.tokens}};
    json["heads"] = nlohmann::ordered_json::array();
    for (const HeadSummary& head : told()) json["heads"].push_back(head_json(head));
    json["next"] = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < reading_.tokens.size(); ++i) {
      const Expectation best = trained_.expected_after(reading_, static_cast<std::int64_t>(i), 1).front();
      json["next"].push_back({{"token", best.token}, {"probability", best.probability}});
    }
    return json;
  }

 private:
  [[nodiscard]] const HeadSummary& summary(std::int64_t head) const {
    return document_.report.summaries[static_cast<std::size_t>(head)];
  }

  [[nodiscard]] std::string words() const {
    std::string text;
    for (const std::string& token : reading_.tokens)
      text += (trained_.tokenizer.is_symbols() && !text.empty() ? " " : "") + printable(token);
    return text;
  }

  [[nodiscard]] std::vector<HeadSummary> told() const {
    if (chosen_.empty()) return document_.report.summaries;
    std::vector<HeadSummary> heads;
    for (const std::int64_t head : chosen_) heads.push_back(summary(head));
    return heads;
  }

  // The head of [begin, end) that fits the pattern best, if it deserves the name.
  [[nodiscard]] std::optional<std::int64_t> best(HeadPattern pattern, std::int64_t begin,
                                                 std::int64_t end) const {
    std::optional<std::int64_t> found;
    double most = threshold_of(pattern);
    for (std::int64_t head = begin; head < end; ++head)
      if (const double score = score_of(summary(head), pattern); score >= most) {
        found = head;
        most = score;
      }
    return found;
  }

  // Of a layer: the head of the first pattern that any of its heads shows, or its first one.
  [[nodiscard]] std::int64_t best_of_layer(std::int64_t begin, std::int64_t end) const {
    for (const PatternScore& score : summary(begin).patterns)
      if (const auto found = best(score.pattern, begin, end)) return *found;
    return begin;
  }

  [[nodiscard]] std::vector<std::int64_t> drawn() const {
    if (!chosen_.empty()) return chosen_;
    std::vector<std::int64_t> heads;
    for (const HeadPattern pattern : {HeadPattern::previous_token, HeadPattern::induction})
      if (const auto head = best(pattern, 0, document_.report.heads)) heads.push_back(*head);
    if (!heads.empty()) return heads;
    std::int64_t begin = 0;
    for (const LayerHeads& layer : document_.report.layers) {
      heads.push_back(best_of_layer(begin, begin + layer.heads));
      begin += layer.heads;
    }
    return heads;
  }

  void print_head_map(const TextOutput& output, std::int64_t head) const {
    const std::string_view name = summary(head).name();
    std::string title = name_of_head(document_.report, head) + ", " + std::string(name);
    title[0] = 'L';
    output.stream << '\n' << bold(title, output.color) << ": " << meaning_of(name) << '\n';
    const WeightTile& tile = document_.report.weights;
    const std::vector<std::string> labels = labels_of(reading_.tokens);
    const auto lines = draw_heatmap({labels, labels, tile.weights.view().select(0, 0).select(0, head),
                                     tile.allowed.view().select(0, 0).select(0, head)},
                                    2, output.width, output.color);
    if (!lines) {
      output.stream << "  (too many words to draw here; heed look --model draws them on a page)\n";
      return;
    }
    print_lines(output, *lines);
  }

  [[nodiscard]] nlohmann::ordered_json head_json(const HeadSummary& one) const {
    const HeadPlace place = place_of(document_.report, one.head);
    const TensorView weights = document_.report.weights.weights.view().select(0, 0).select(0, one.head);
    nlohmann::ordered_json json = {{"label", head_label(document_.report, one.head)},
                                   {"layer", place.layer},
                                   {"head", place.head},
                                   {"looks_like", one.name()}};
    add_names(one, json);
    json["weights"] = values_json(Tensor::copy_of(weights));
    return json;
  }

  const TrainedModel& trained_;
  const Reading& reading_;
  Document document_;
  std::vector<std::int64_t> chosen_;  // none: all
};

}  // namespace

void explain_trained(const TextOutput& output, const TrainedModel& trained, const std::string& name,
                     const Reading& reading, const HeadChoice& choice) {
  TrainedModelPrinter(trained, reading, choice).print(output, name);
}

void explain_trained_json(std::ostream& out, const TrainedModel& trained, const std::string& name,
                          const Reading& reading, const HeadChoice& choice) {
  out << TrainedModelPrinter(trained, reading, choice).json(name).dump() << '\n';
}

}  // namespace heed::cli
