// Causal questions about heed.Model's heads. Results are dicts, which python/heed/_cause.py converts to
// classes.
#include "heed/model/cause.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "calls.hpp"
#include "fail.hpp"
#include "heed/model/circuit.hpp"
#include "heed/model/composition.hpp"
#include "heed/model/examples.hpp"
#include "heed/model/look.hpp"
#include "heed/model/paths.hpp"
#include "heed/model/why.hpp"

namespace heed::python {
namespace {

using HeadPairs = std::vector<std::pair<std::int64_t, std::int64_t>>;
// row, token, top, threads
using Options = std::tuple<std::optional<std::int64_t>, std::optional<std::int64_t>, std::int64_t, int>;

CauseOptions options_of(const Options& options) {
  const auto& [row, token, top, threads] = options;
  return {row, token, top, threads};
}

std::vector<ModelHead> heads_of(const HeadPairs& pairs) {
  std::vector<ModelHead> heads;
  for (const auto& [layer, head] : pairs) heads.push_back({layer, head});
  return heads;
}

template <class Call>
auto released(Call call) {
  const nb::gil_scoped_release gil;
  return call();
}

nb::dict effect_of(const Effect& effect) {
  nb::dict all;
  all["moved"] = effect.moved;
  all["predicts"] = effect.predicts;
  all["row"] = effect.row;
  std::vector<std::tuple<std::int64_t, double, double>> tokens;
  for (const TokenShift& shift : effect.tokens) tokens.emplace_back(shift.token, shift.before, shift.after);
  all["tokens"] = tokens;
  all["divergence"] = effect.divergence;
  all["loss_before"] = effect.loss_before;
  all["loss_after"] = effect.loss_after;
  return all;
}

nb::dict ablate_of(const Model& model, nb::handle ids, const HeadPairs& heads, const std::string& to,
                   const Options& options) {
  if (to != "zero" && to != "mean") fail("to is '", to, "'; zero or mean is expected");
  const Ablation ablation = to == "zero" ? Ablation::zero : Ablation::mean;
  const Borrowed tokens("ids", ids);
  return effect_of(
      released([&] { return ablate(model, tokens.view(), heads_of(heads), ablation, options_of(options)); }));
}

nb::dict patch_of(const Model& model, nb::handle ids, nb::handle other, const HeadPairs& heads,
                  const Options& options) {
  const Borrowed tokens("ids", ids), others("other", other);
  return effect_of(released(
      [&] { return patch(model, tokens.view(), others.view(), heads_of(heads), options_of(options)); }));
}

nb::dict attribution_of(const Model& model, nb::handle ids, const Options& options) {
  const Borrowed tokens("ids", ids);
  Attribution made = released([&] { return attribute(model, tokens.view(), options_of(options)); });
  nb::dict all;
  all["row"] = made.row;
  all["token"] = made.token;
  all["logit"] = made.logit;
  all["heads"] = to_python(std::move(made.heads), Kind::numpy);
  all["biases"] = made.biases;
  all["mlps"] = made.mlps;
  all["embedding"] = made.embedding;
  all["constant"] = made.constant;
  return all;
}

// (row, token, for each layer its most likely tokens, the token's probability and its rank)
nb::tuple lens_of(const Model& model, nb::handle ids, const Options& options) {
  const Borrowed tokens("ids", ids);
  const Lens made = released([&] { return lens(model, tokens.view(), options_of(options)); });
  nb::list layers;
  for (const LensLayer& layer : made.layers) {
    std::vector<std::pair<std::int64_t, double>> top;
    for (const TokenChance& chance : layer.top) top.emplace_back(chance.token, chance.probability);
    layers.append(nb::make_tuple(top, layer.probability, layer.rank));
  }
  return nb::make_tuple(made.row, made.token, layers);
}

nb::object rollout_of(const Model& model, nb::handle ids, const std::vector<std::int64_t>& rows,
                      int threads) {
  const Borrowed tokens("ids", ids);
  return to_python(released([&] { return rollout(model, tokens.view(), rows, threads); }), Kind::numpy);
}

using PartTuple = std::tuple<std::string, double, std::int64_t, double>;  // name, share, key read, weight

std::vector<PartTuple> parts_of(const std::vector<StreamPart>& parts, const std::vector<double>& shares) {
  std::vector<PartTuple> all;
  for (std::size_t i = 0; i < parts.size(); ++i)
    all.emplace_back(to_string(parts[i]), shares[i], parts[i].from, parts[i].from_weight);
  return all;
}

nb::dict split_of(ScoreSplit made) {
  nb::dict all;
  all["head"] = nb::make_tuple(made.head.layer, made.head.head);
  all["row"] = made.row;
  all["key"] = made.key;
  all["score"] = made.score;
  all["biased"] = made.biased;
  all["weight"] = made.weight;
  all["query_parts"] = parts_of(made.query_parts, query_shares(made));
  all["key_parts"] = parts_of(made.key_parts, key_shares(made));
  all["table"] = to_python(std::move(made.table), Kind::numpy);
  return all;
}

nb::dict why_of(const Model& model, nb::handle ids, const std::vector<std::int64_t>& rows,
                const std::vector<std::int64_t>& keys,
                const std::optional<std::pair<std::int64_t, std::int64_t>>& head, int threads) {
  const Borrowed tokens("ids", ids);
  WhyQuestion question{rows, keys, {}, {}, threads};
  if (head) question.head = ModelHead{head->first, head->second};
  return split_of(released([&] { return why(model, tokens.view(), question); }).split);
}

// (writer's name, key read, its weight, place, into, reader or None, reader's row, share, patched)
nb::list edges_of(const std::vector<CircuitEdge>& edges) {
  nb::list all;
  for (const CircuitEdge& edge : edges) {
    nb::object reader = nb::none();
    if (edge.into != EdgeInto::logit) reader = nb::make_tuple(edge.reader.layer, edge.reader.head);
    all.append(nb::make_tuple(to_string(edge.writer), edge.writer.from, edge.writer.from_weight, edge.place,
                              std::string(name_of(edge.into)), reader, edge.reader_row, edge.share,
                              edge.patched));
  }
  return all;
}

// row, token, other token
using Target =
    std::tuple<std::optional<std::int64_t>, std::optional<std::int64_t>, std::optional<std::int64_t>>;

nb::dict circuit_of(const Model& model, nb::handle ids, const Target& target, std::int64_t edges, bool patch,
                    int threads) {
  const Borrowed tokens("ids", ids);
  const auto& [row, token, than] = target;
  const CircuitOptions options{row, token, than, edges, patch, threads};
  const Circuit made = released([&] { return find_circuit(model, tokens.view(), options); });
  nb::dict all;
  all["row"] = made.row;
  all["token"] = made.token;
  all["than"] = made.than;
  all["logit"] = made.logit;
  all["threshold"] = made.threshold;
  all["edges"] = edges_of(made.edges);
  all["denied"] = edges_of(made.denied);
  return all;
}

nb::dict paths_of(const Model& model, nb::handle ids, const std::pair<std::int64_t, std::int64_t>& head,
                  const Target& target, int threads) {
  const Borrowed tokens("ids", ids);
  const auto& [row, token, than] = target;
  const PathOptions options{row, token, than, threads};
  const HeadPaths made = released([&] {
    return paths_of_head(model, tokens.view(), {head.first, head.second}, options);
  });
  std::vector<std::tuple<std::int64_t, double, double>> keys;
  for (const HeadKeyShare& one : made.keys) keys.emplace_back(one.key, one.weight, one.share);
  nb::list later;
  for (const PathOfTwo& one : made.later)
    later.append(nb::make_tuple(nb::make_tuple(one.reader.layer, one.reader.head),
                                std::string(name_of(one.into)), one.share));
  nb::dict all;
  all["row"] = made.row;
  all["token"] = made.token;
  all["logit"] = made.logit;
  all["share"] = made.share;
  all["keys"] = keys;
  all["later"] = later;
  return all;
}

// query, key, value, and the score of random weights
nb::tuple composition_of(const Model& model, int threads) {
  Composition made = released([&] { return composition_scores(model, threads); });
  return nb::make_tuple(to_python(std::move(made.query), Kind::numpy),
                        to_python(std::move(made.key), Kind::numpy),
                        to_python(std::move(made.value), Kind::numpy), made.random);
}

using Habit = std::tuple<std::int64_t, std::int64_t, double, double>;

std::vector<Habit> habits_of(const std::vector<HeadHabit>& habits) {
  std::vector<Habit> all;
  for (const HeadHabit& one : habits) all.emplace_back(one.what, one.rows, one.moved, one.usual);
  return all;
}

nb::list examples_of(const Model& model, const std::vector<std::vector<std::int64_t>>& texts,
                     const std::optional<std::pair<std::int64_t, std::int64_t>>& head, std::int64_t best,
                     std::int64_t habits, int threads) {
  ExampleOptions options;
  if (head) options.head = ModelHead{head->first, head->second};
  options.best = best;
  options.habits = habits;
  options.threads = threads;
  const std::vector<HeadExamples> made = released([&] {
    std::vector<ModelTokens> tokens;
    for (const auto& ids : texts)
      tokens.push_back(model.tokens_of(TensorView(ids.data(), {static_cast<std::int64_t>(ids.size())})));
    return examples_of_heads(model, tokens, options);
  });
  nb::list all;
  for (const HeadExamples& one : made) {
    std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t, double, double>> examples;
    for (const HeadExample& best_one : one.best)
      examples.emplace_back(best_one.text, best_one.row, best_one.key, best_one.weight, best_one.moved);
    all.append(nb::make_tuple(nb::make_tuple(one.head.layer, one.head.head), one.summary.name(), examples,
                              one.mean, habits_of(one.rows), habits_of(one.keys), habits_of(one.distances)));
  }
  return all;
}

nb::object lost_of(const Model& model, nb::handle ids, std::int64_t first, std::int64_t last, int threads) {
  const Borrowed tokens("ids", ids);
  const EvictionPolicy policy{.kind = EvictionKind::streaming, .chosen = first, .recent = last};
  return to_python(released([&] { return lost_by_eviction(model, tokens.view(), policy, 0, threads); }),
                   Kind::numpy);
}

// Readable texts of tokens, in the context of a text; "#17" for a symbol without one.
std::vector<std::string> texts_of(const Model& model, const std::vector<std::int64_t>& ids,
                                  const std::optional<std::string>& text) {
  const ModelTokens beside = text ? model.tokenize(*text) : ModelTokens();
  std::vector<std::string> texts;
  for (const std::int64_t id : ids) texts.push_back(model.text_of(id, beside));
  return texts;
}

}  // namespace

void define_model_cause(nb::module_& module) {
  const nb::arg model("model"), options("options"), threads("threads"), head("head"), target("target");
  const auto ids = nb::arg("ids").none();
  module.def("ablate", ablate_of, model, ids, nb::arg("heads"), nb::arg("to"), options);
  module.def("patch", patch_of, model, ids, nb::arg("other").none(), nb::arg("heads"), options);
  module.def("attribute", attribution_of, model, ids, options);
  module.def("lens", lens_of, model, ids, options);
  module.def("rollout", rollout_of, model, ids, nb::arg("rows"), threads);
  module.def("why", why_of, nb::arg("model"), nb::arg("ids"), nb::arg("rows"), nb::arg("keys"),
             nb::arg("head").none(), nb::arg("threads"));
  module.def("circuit", circuit_of, model, ids, target, nb::arg("edges"), nb::arg("patch"), threads);
  module.def("paths", paths_of, model, ids, head, target, threads);
  module.def("composition", composition_of, model, threads);
  module.def("examples", examples_of, nb::arg("model"), nb::arg("texts"), nb::arg("head").none(),
             nb::arg("best"), nb::arg("habits"), nb::arg("threads"));
  module.def("lost", lost_of, model, ids, nb::arg("first"), nb::arg("last"), threads);
  module.def("texts_of", texts_of, nb::arg("model"), nb::arg("ids"), nb::arg("text").none());
}

}  // namespace heed::python
