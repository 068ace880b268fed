// Text generation and next-token predictions.
#include "heed/model/generate.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "calls.hpp"
#include "fail.hpp"

namespace heed::python {
namespace {

CacheFormat format_named(const std::string& name) {
  const auto known = cache_format_named(name);
  if (!known) fail("cache is '", name, "'; f32, bf16, f16, int8, int4 or fp8 is expected");
  return *known;
}

nb::dict written_of(const GeneratedToken& token) {
  nb::dict all;
  all["id"] = token.id;
  all["text"] = token.text;
  all["probability"] = token.probability;
  nb::list attended;
  for (const WatchedPair& pair : token.watched)
    attended.append(
        nb::make_tuple(pair.place, pair.token, pair.weight, nb::make_tuple(pair.head.layer, pair.head.head)));
  all["attended"] = attended;
  return all;
}

// The list of generated tokens, for a prompt given as text or ids.
nb::list write_on(const Model& model, const std::optional<std::string>& text,
                  const std::vector<std::int64_t>& ids, std::int64_t tokens, double temperature,
                  std::int64_t top_k, double top_p, std::uint64_t seed, const std::string& cache,
                  std::int64_t watch, std::optional<std::pair<std::int64_t, std::int64_t>> head,
                  const nb::object& add) {
  GenerateOptions options{tokens, temperature, top_k, top_p, seed, format_named(cache), watch};
  if (head) options.head = ModelHead{head->first, head->second};
  const auto call = [&](const GeneratedToken& token) {
    const nb::gil_scoped_acquire held;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (!add.is_none()) add(token.text);
  };
  std::vector<GeneratedToken> written;
  {
    const nb::gil_scoped_release released;
    ModelTokens prompt;
    if (text) prompt = tokens_of_prompt(model, *text);
    if (!text) prompt.ids = ids;
    written = generate(model, prompt, options, call);
  }
  nb::list all;
  for (const GeneratedToken& token : written) all.append(written_of(token));
  return all;
}

std::vector<std::pair<std::string, double>> expected_after(const Model& model, const std::string& text,
                                                           std::int64_t count) {
  const nb::gil_scoped_release released;
  const ModelTokens tokens = model.tokenize(text);
  const auto length = static_cast<std::int64_t>(tokens.ids.size());
  const Tensor hidden = model.hidden_states(TensorView(tokens.ids.data(), {length}));
  const Tensor logits = model.logits(hidden.view().narrow(0, length - 1, 1));
  std::vector<std::pair<std::string, double>> all;
  for (const Expectation& one : expected(model, logits.view().select(0, 0), tokens, count))
    all.emplace_back(one.token, one.probability);
  return all;
}

}  // namespace

void define_model_generate(nb::module_& module) {
  module.def("write_on", write_on, nb::arg("model"), nb::arg("text").none(), nb::arg("ids"),
             nb::arg("tokens"), nb::arg("temperature"), nb::arg("top_k"), nb::arg("top_p"), nb::arg("seed"),
             nb::arg("cache"), nb::arg("watch"), nb::arg("head").none(), nb::arg("add").none());
  module.def("expected_after", expected_after, nb::arg("model"), nb::arg("text"), nb::arg("count"));
}

}  // namespace heed::python
