#include "explain/trained.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

#include "draw/heatmap.hpp"
#include "draw/lettering.hpp"
#include "draw/palette.hpp"
#include "heed/model/generate.hpp"
#include "heed/model/look.hpp"
#include "heed/model/walk.hpp"
#include "look/heads_print.hpp"
#include "look/subject.hpp"
#include "look/tables.hpp"
#include "looked_at.hpp"
#include "text.hpp"
#include "word_places.hpp"

namespace heed::cli {
namespace {

constexpr std::int64_t kExpectations = 3;
constexpr double kLikely = 0.01;

std::string meaning_of(const HeadSummary& summary) {
  const std::string name = summary.name();
  if (const std::vector<HeadName> names = summary.names();
      !names.empty() && names.front().pattern == HeadPattern::fixed_offset)
    return "each word looks at the one that is " + name;
  if (name == name_of(HeadPattern::previous_token)) return "each word looks at the one before it";
  if (name == name_of(HeadPattern::next_token)) return "each word looks at the one after it";
  if (name == name_of(HeadPattern::self)) return "each word looks at itself";
  if (name == name_of(HeadPattern::duplicate_token)) return "each word looks at its earlier occurrences";
  if (name == name_of(HeadPattern::same_token)) return "each word looks at its other occurrences";
  if (name == name_of(HeadPattern::separators)) return "words look at punctuation and special tokens";
  if (name == name_of(HeadPattern::vertical)) return "all words look at the same ones";
  if (name == "too few rows") return "too few words to tell";
  if (name == name_of(HeadPattern::induction)) return "each word looks at what followed it the last time";
  if (name == name_of(HeadPattern::first_token_sink))
    return "words look at the first one and ignore the rest";
  if (name == name_of(HeadPattern::local)) return "each word looks at those nearby";
  if (name == name_of(HeadPattern::uniform)) return "each word looks equally at all words before it";
  return "no simple rule fits";
}

double score_of(const HeadSummary& summary, HeadPattern pattern) {
  return summary.patterns[static_cast<std::size_t>(pattern)].score;
}

// The most likely token, and others with at least probability kLikely.
std::string listed(const std::vector<Expectation>& expected) {
  std::string text;
  for (const Expectation& one : expected)
    if (text.empty() || one.probability >= kLikely)
      text +=
          (text.empty() ? "" : ", ") + token_text(one.token) + " " + fixed(100 * one.probability, 1) + " %";
  return text;
}

// "induction: 2 layers of 4 heads, 45952 parameters".
std::string description_of(const ModelReading& reading) {
  const ModelInfo& info = reading.model.info();
  return reading.name + ": " + counted(info.layers, "layer") + " of " + counted(info.heads, "head") + ", " +
         counted(info.parameters, "parameter");
}

// Joins characters directly, and words with spaces.
std::string text_read(const ModelReading& reading) {
  const std::vector<std::string>& tokens = reading.tokens.shown;
  std::size_t bytes = 0;
  for (const std::string& token : tokens) bytes += token.size();
  return joined_tokens(tokens, reading.tokens.places.back().end != bytes);
}

std::vector<Expectation> expected_at(const ModelReading& reading, std::int64_t row, std::int64_t count) {
  if (!reading.model.info().predicts) return {};
  return expected(reading.model, reading.logits.view().select(0, row), reading.tokens, count);
}

void print_subject(const TextOutput& output, const ModelReading& reading) {
  output.stream << wrap(printable(description_of(reading)), output.width, 2) << '\n'
                << wrap("It reads: " + text_read(reading), output.width, 2) << '\n';
}

class TrainedModelPrinter {
 public:
  TrainedModelPrinter(const ModelReading& reading, const HeadChoice& choice)
      : reading_(reading), document_(document_of_text(reading.model, reading.tokens)) {
    chosen_ = heads_named(document_, choice.layer, choice.heads);
    fill_report(document_, {.map = {}, .full_weights_cells = kFullWeightsCells});
  }

  void print(const TextOutput& output) const {
    print_subject(output, reading_);
    print_heads(output, document_, told(), false);
    for (const std::int64_t head : drawn()) print_head_map(output, head);
    if (!reading_.model.info().causal || !reading_.model.info().predicts) return;
    output.stream << '\n' << wrap(said_of_the_end(), output.width, 2) << '\n';
  }

  [[nodiscard]] nlohmann::ordered_json json() const {
    nlohmann::ordered_json json = {{"model", reading_.name}, {"tokens", reading_.tokens.shown}};
    json["heads"] = nlohmann::ordered_json::array();
    for (const HeadSummary& head : told()) json["heads"].push_back(head_json(head));
    json["next"] = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < reading_.tokens.ids.size() && reading_.model.info().predicts; ++i) {
      const Expectation best = expected_at(reading_, static_cast<std::int64_t>(i), 1).front();
      json["next"].push_back({{"token", best.token}, {"probability", best.probability}});
    }
    return json;
  }

 private:
  // A symbol model only copies, so its prediction after a new symbol is meaningless.
  [[nodiscard]] std::string said_of_the_end() const {
    const std::vector<std::int64_t>& ids = reading_.tokens.ids;
    const auto last = std::ssize(ids) - 1;
    if (reading_.model.info().symbols && std::ranges::count(ids, ids.back()) == 1)
      return "At the end it predicts nothing: " + printable(reading_.tokens.shown.back()) +
             " is a new word, with nothing to copy yet.";
    return "At the end it predicts " + listed(expected_at(reading_, last, kExpectations)) + ".";
  }

  [[nodiscard]] const HeadSummary& summary(std::int64_t head) const {
    return document_.report.summaries[static_cast<std::size_t>(head)];
  }

  [[nodiscard]] std::vector<HeadSummary> told() const {
    if (chosen_.empty()) return document_.report.summaries;
    std::vector<HeadSummary> heads;
    for (const std::int64_t head : chosen_) heads.push_back(summary(head));
    return heads;
  }

  // The head in [begin, end) with the best score for the pattern, if it reaches the threshold.
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

  // A layer's head for the first pattern that any of its heads reaches; else its first head.
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
    const std::string name = summary(head).name();
    std::string title = name_of_head(document_.report, head) + ", " + name;
    title[0] = 'L';
    output.stream << '\n' << bold(title, output.color) << ": " << meaning_of(summary(head)) << '\n';
    const WeightTile& tile = document_.report.weights;
    const std::vector<std::string> labels = labels_of(reading_.tokens.shown);
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

  const ModelReading& reading_;
  Document document_;
  std::vector<std::int64_t> chosen_;  // empty: all
};

// "or [2] 97.1 % 0.3, be [5] 60.0 % 0.1".
std::string attended_text(const WalkedLayer& layer) {
  std::string text;
  for (const WatchedPair& pair : layer.attended) {
    if (!text.empty()) text += ", ";
    text += token_text(pair.token) + " [" + std::to_string(pair.place) + "] ";
    text += fixed(100 * pair.weight, 1) + " %" + " " + std::to_string(pair.head.layer) + ".";
    text += std::to_string(pair.head.head);
  }
  return text;
}

std::string number_text(double number) { return formatted("%.3g", number); }

void print_predicted(const TextOutput& output, const std::vector<Expectation>& predicted) {
  if (!predicted.empty())
    output.stream << wrap("    would predict " + listed(predicted), output.width, 6) << '\n';
}

nlohmann::ordered_json predicted_json(const std::vector<Expectation>& predicted) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Expectation& one : predicted)
    all.push_back({{"token", one.token}, {"probability", one.probability}});
  return all;
}

nlohmann::ordered_json layer_json(const WalkedLayer& layer) {
  nlohmann::ordered_json attended = nlohmann::ordered_json::array();
  for (const WatchedPair& pair : layer.attended)
    attended.push_back({{"place", pair.place},
                        {"token", pair.token},
                        {"weight", pair.weight},
                        {"head", std::to_string(pair.head.layer) + "." + std::to_string(pair.head.head)}});
  return {{"stream", layer.stream},
          {"attention", layer.attention},
          {"rest", layer.rest},
          {"attended", attended},
          {"predicted", predicted_json(layer.predicted)}};
}

}  // namespace

ModelReading read_with(const heed::Model& model, const std::string& name, ModelTokens tokens) {
  ModelReading reading{model, name, std::move(tokens), {}};
  const TensorView ids(reading.tokens.ids.data(), {std::ssize(reading.tokens.ids)});
  const Tensor hidden = model.hidden_states(ids);
  if (model.info().predicts) reading.logits = model.logits(hidden);
  return reading;
}

void explain_trained(const TextOutput& output, const ModelReading& reading, const HeadChoice& choice) {
  TrainedModelPrinter(reading, choice).print(output);
}

void explain_trained_json(std::ostream& out, const ModelReading& reading, const HeadChoice& choice) {
  out << TrainedModelPrinter(reading, choice).json().dump() << '\n';
}

void explain_walk(const TextOutput& output, const ModelReading& reading, std::int64_t row) {
  print_subject(output, reading);
  const heed::Walk found = heed::walk(reading.model, reading.tokens, row, kExpectations);
  const std::string token = token_text(reading.tokens.shown[static_cast<std::size_t>(row)]);
  output.stream << '\n'
                << bold(token + " [" + std::to_string(row) + "]", output.color)
                << wrap(
                       " through the layers: |x| is the length of its vector, to which heads and the rest "
                       "(the MLP) add; tokens that heads attend to most, with [place], weight and head",
                       output.width, 2)
                << "\n\n  embedding\n";
  print_predicted(output, found.embedded);
  for (std::size_t n = 0; n < found.layers.size(); ++n) {
    const WalkedLayer& layer = found.layers[n];
    output.stream << "  layer " << n << ": |x| " << number_text(layer.stream) << ", heads add "
                  << number_text(layer.attention) << ", the rest " << number_text(layer.rest) << '\n';
    if (!layer.attended.empty())
      output.stream << wrap("    attends to " + attended_text(layer), output.width, 6) << '\n';
    print_predicted(output, layer.predicted);
  }
  output.stream << "  after the last: |x| " << number_text(found.stream) << '\n';
}

void explain_walk_json(std::ostream& out, const ModelReading& reading, std::int64_t row) {
  const heed::Walk found = heed::walk(reading.model, reading.tokens, row, kExpectations);
  nlohmann::ordered_json json = {{"model", reading.name},
                                 {"tokens", reading.tokens.shown},
                                 {"row", row},
                                 {"embedded", predicted_json(found.embedded)},
                                 {"layers", nlohmann::ordered_json::array()},
                                 {"stream", found.stream}};
  for (const WalkedLayer& layer : found.layers) json["layers"].push_back(layer_json(layer));
  out << json.dump() << '\n';
}

}  // namespace heed::cli
