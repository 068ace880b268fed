#include "explain/trained.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <ostream>
#include <vector>

#include "command.hpp"
#include "draw/heatmap.hpp"
#include "draw/lettering.hpp"
#include "draw/palette.hpp"
#include "look/tables.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr std::int64_t kExpectations = 3;
constexpr double kLikely = 0.01;
constexpr int kName = 17;
constexpr int kNumber = 10;

// A head of the model: its layer and its place in it, both from 0.
struct HeadPlace {
  std::int64_t layer = 0;
  std::int64_t head = 0;
};

const char* meaning_of(std::string_view name) {
  if (name == name_of(HeadPattern::previous_token)) return "each word looks at the one before it";
  if (name == name_of(HeadPattern::induction)) return "each word looks at what followed it the last time";
  if (name == name_of(HeadPattern::first_token_sink))
    return "words look at the first one, and away from the rest";
  if (name == name_of(HeadPattern::local)) return "each word looks at those nearby";
  if (name == name_of(HeadPattern::uniform)) return "each word looks at all before it alike";
  return "no plain rule fits";
}

std::string two_decimals(double value) {
  if (std::isnan(value)) return "-";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f", value);
  return text.data();
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
      : trained_(trained), reading_(reading), choice_(choice) {
    check();
    for (std::int64_t layer = 0; layer < trained.model.config.layers; ++layer)
      reports_.push_back(report_of(layer));
  }

  void print(const TextOutput& output, const std::string& name) const {
    output.stream << wrap(printable(description_of(trained_, name)), output.width, 2) << '\n'
                  << wrap("It reads: " + words(), output.width, 2) << "\n\n";
    print_table(output);
    for (const HeadPlace& place : chosen()) print_head_map(output, place);
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
    for (std::int64_t layer = 0; layer < trained_.model.config.layers; ++layer)
      for (std::int64_t head = 0; head < trained_.model.config.heads; ++head)
        if (is_chosen({layer, head})) json["heads"].push_back(head_json({layer, head}));
    json["next"] = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < reading_.tokens.size(); ++i) {
      const Expectation best = trained_.expected_after(reading_, static_cast<std::int64_t>(i), 1).front();
      json["next"].push_back({{"token", best.token}, {"probability", best.probability}});
    }
    return json;
  }

 private:
  [[nodiscard]] AttentionReport report_of(std::int64_t layer) const {
    Document document = document_of_layer(reading_, layer);
    fill_report(document, {.received = false, .map = {}, .full_weights_cells = kFullWeightsCells});
    return std::move(document.report);
  }

  void check() const {
    const nn::LanguageModelConfig& config = trained_.model.config;
    if (choice_.layer && *choice_.layer > config.layers)
      throw UsageError("--layer is " + std::to_string(*choice_.layer) + "; the model has the layers 1 to " +
                       std::to_string(config.layers));
    if (choice_.head && *choice_.head >= config.heads)
      throw UsageError("--head is " + std::to_string(*choice_.head) + "; a layer has the heads 0 to " +
                       std::to_string(config.heads - 1));
  }

  [[nodiscard]] const HeadSummary& summary(const HeadPlace& place) const {
    return reports_[static_cast<std::size_t>(place.layer)].summaries[static_cast<std::size_t>(place.head)];
  }

  [[nodiscard]] std::string words() const {
    std::string text;
    for (const std::string& token : reading_.tokens)
      text += (trained_.tokenizer.is_symbols() && !text.empty() ? " " : "") + printable(token);
    return text;
  }

  [[nodiscard]] bool is_chosen(const HeadPlace& place) const {
    return place.layer == choice_.layer.value_or(place.layer + 1) - 1 &&
           place.head == choice_.head.value_or(place.head);
  }

  // The head of [first, end) layers that fits the pattern best, if it deserves the name.
  [[nodiscard]] std::vector<HeadPlace> best(HeadPattern pattern, std::int64_t first, std::int64_t end) const {
    std::vector<HeadPlace> found;
    double most = threshold_of(pattern);
    for (std::int64_t layer = first; layer < end; ++layer)
      for (std::int64_t head = 0; head < trained_.model.config.heads; ++head)
        if (const double score = score_of(summary({layer, head}), pattern); score >= most) {
          found = {{layer, head}};
          most = score;
        }
    return found;
  }

  // Of a layer: the head of the first pattern that any of its heads shows, or its first one.
  [[nodiscard]] HeadPlace best_of_layer(std::int64_t layer) const {
    for (const PatternScore& score : summary({layer, 0}).patterns)
      if (const auto found = best(score.pattern, layer, layer + 1); !found.empty()) return found.front();
    return {layer, 0};
  }

  [[nodiscard]] std::vector<HeadPlace> chosen() const {
    const std::int64_t layers = trained_.model.config.layers;
    std::vector<HeadPlace> places;
    if (choice_.layer || choice_.head) {
      for (std::int64_t layer = 0; layer < layers; ++layer)
        for (std::int64_t head = 0; head < trained_.model.config.heads; ++head)
          if (is_chosen({layer, head})) places.push_back({layer, head});
      return places;
    }
    for (const HeadPattern pattern : {HeadPattern::previous_token, HeadPattern::induction})
      for (const HeadPlace& place : best(pattern, 0, layers)) places.push_back(place);
    if (!places.empty()) return places;
    for (std::int64_t layer = 0; layer < layers; ++layer) places.push_back(best_of_layer(layer));
    return places;
  }

  void print_table(const TextOutput& output) const {
    std::string heading =
        left_aligned("layer", 7) + left_aligned("head", 6) + left_aligned("looks like", kName);
    for (const char* column : {"previous", "induction", "first", "local", "uniform"})
      heading += right_aligned(column, kNumber);
    output.stream << bold(heading, output.color) << '\n';
    for (std::int64_t layer = 0; layer < trained_.model.config.layers; ++layer)
      for (std::int64_t head = 0; head < trained_.model.config.heads; ++head) {
        const HeadSummary& one = summary({layer, head});
        std::string line = left_aligned(std::to_string(layer + 1), 7) +
                           left_aligned(std::to_string(head), 6) +
                           left_aligned(std::string(one.name()), kName);
        for (const PatternScore& score : one.patterns)
          line += right_aligned(two_decimals(score.score), kNumber);
        output.stream << line << '\n';
      }
  }

  void print_head_map(const TextOutput& output, const HeadPlace& place) const {
    const HeadSummary& one = summary(place);
    const std::string title = "Layer " + std::to_string(place.layer + 1) + ", head " +
                              std::to_string(place.head) + ", " + std::string(one.name());
    output.stream << '\n' << bold(title, output.color) << ": " << meaning_of(one.name()) << '\n';
    const WeightTile& tile = reports_[static_cast<std::size_t>(place.layer)].weights;
    const std::vector<std::string> labels = labels_of(reading_.tokens);
    const auto lines = draw_heatmap({labels, labels, tile.weights.view().select(0, 0).select(0, place.head),
                                     tile.allowed.view().select(0, 0).select(0, place.head)},
                                    2, output.width, output.color);
    if (!lines) {
      output.stream << "  (too many words to draw here; heed look --model draws them on a page)\n";
      return;
    }
    print_lines(output, *lines);
  }

  [[nodiscard]] nlohmann::ordered_json head_json(const HeadPlace& place) const {
    const HeadSummary& one = summary(place);
    nlohmann::ordered_json scores;
    for (const PatternScore& score : one.patterns) scores[std::string(name_of(score.pattern))] = score.score;
    const WeightTile& tile = reports_[static_cast<std::size_t>(place.layer)].weights;
    return {
        {"layer", place.layer + 1},
        {"head", place.head},
        {"looks_like", one.name()},
        {"scores", scores},
        {"weights", values_json(Tensor::copy_of(tile.weights.view().select(0, 0).select(0, place.head)))}};
  }

  const TrainedModel& trained_;
  const Reading& reading_;
  const HeadChoice& choice_;
  std::vector<AttentionReport> reports_;
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
