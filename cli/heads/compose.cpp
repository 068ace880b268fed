#include <algorithm>
#include <iostream>
#include <vector>

#include "draw/lettering.hpp"
#include "draw/palette.hpp"
#include "heads/questions.hpp"
#include "heed/model/composition.hpp"
#include "heed/model/why.hpp"
#include "json.hpp"
#include "terminal.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

struct ComposedPair {
  ModelHead writer, reader;
  double score = 0;
};

// The pairs with the largest scores, best first.
std::vector<ComposedPair> best_pairs(const Tensor& scores, std::int64_t count) {
  const std::int64_t layers = scores.size(0), heads = scores.size(1);
  std::vector<ComposedPair> pairs;
  for (std::int64_t layer = 1; layer < layers; ++layer)
    for (std::int64_t head = 0; head < heads; ++head)
      for (std::int64_t from = 0; from < layer; ++from)
        for (std::int64_t writer = 0; writer < heads; ++writer)
          pairs.push_back({{from, writer}, {layer, head}, scores.at<float>(layer, head, from, writer)});
  std::ranges::stable_sort(pairs, std::ranges::greater(), &ComposedPair::score);
  pairs.resize(std::min(pairs.size(), static_cast<std::size_t>(count)));
  return pairs;
}

}  // namespace

void answer_composition(const heed::Model& model, const HeadsArguments& arguments) {
  const Composition made = composition_scores(model);
  const std::pair<const char*, const Tensor*> kinds[] = {
      {"query", &made.query}, {"key", &made.key}, {"value", &made.value}};
  if (arguments.json) {
    Json json = {{"random", made.random}};
    for (const auto& [kind, scores] : kinds) {
      json[kind] = Json::array();
      for (const ComposedPair& pair : best_pairs(*scores, arguments.top))
        json[kind].push_back(
            {{"writer", to_string(pair.writer)}, {"reader", to_string(pair.reader)}, {"score", pair.score}});
    }
    std::cout << json.dump() << '\n';
    return;
  }
  const TextOutput output = standard_output();
  if (model.info().layers == 1) {
    output.stream << "The model has one layer, so no head reads what another one wrote.\n";
    return;
  }
  output.stream << "How well the output of one head fits the input of a later one, by the weights alone.\n"
                << "Independent random weights score " << fixed(made.random, 3) << ".\n";
  for (const auto& [kind, scores] : kinds) {
    output.stream << '\n' << bold("into the " + std::string(kind), output.color) << '\n';
    for (const ComposedPair& pair : best_pairs(*scores, arguments.top))
      output.stream << "  " << fixed(pair.score, 3) << "  " << right_aligned(to_string(pair.writer), 6)
                    << " → " << to_string(pair.reader) << '\n';
  }
}

}  // namespace heed::cli
