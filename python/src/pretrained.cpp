// heed.load_model for folders of transformers: the model, its cache, and the observation of its runs.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "calls.hpp"
#include "fail.hpp"
#include "heed/model/chat.hpp"
#include "heed/model/look.hpp"
#include "heed/model/model.hpp"
#include "report.hpp"
#include "saved.hpp"

namespace heed::python {
namespace {

nb::dict info_of(const Model& model) {
  const ModelInfo& info = model.info();
  nb::dict all;
  all["family"] = info.family;
  all["layers"] = info.layers;
  all["heads"] = info.heads;
  all["kv_heads"] = info.kv_heads;
  all["head_dim"] = info.head_dim;
  all["model_dim"] = info.model_dim;
  all["vocabulary"] = info.vocabulary;
  all["context"] = info.context;
  all["fixed_context"] = info.fixed_context;
  all["causal"] = info.causal;
  all["predicts"] = info.predicts;
  all["symbols"] = info.symbols;
  all["fast"] = info.fast;
  all["parameters"] = info.parameters;
  return all;
}

ModelCache make_cache(const Model& model, const std::string& format) {
  const auto known = cache_format_named(format);
  if (!known) fail("format is '", format, "'; f32, bf16, f16, int8, int4 or fp8 is expected");
  return ModelCache(model.info(), *known);
}

// A list with each layer's tensors.
nb::list cache_state(const ModelCache& cache) {
  nb::list layers;
  for (const KvCache& layer : cache.layers()) layers.append(saved(layer.tensors()));
  return layers;
}

ModelCache cache_from(nb::handle state) {
  check_state(nb::isinstance<nb::list>(state), state, "a list of layers");
  std::vector<KvCache> layers;
  for (const nb::handle layer : state) layers.push_back(KvCache::from_tensors(Restored(layer).tensors()));
  return ModelCache(std::move(layers));
}

nb::object hidden_states(const Model& model, nb::handle ids, ModelCache* cache, int threads) {
  const Borrowed tokens("ids", ids);
  Tensor found;
  {
    const nb::gil_scoped_release released;
    found = cache == nullptr ? model.hidden_states(tokens.view(), {}, threads)
                             : model.hidden_states(tokens.view(), *cache, {}, threads);
  }
  return to_python(std::move(found), Kind::numpy);
}

nb::object logits(const Model& model, nb::handle hidden, int threads) {
  const Borrowed rows("hidden", hidden);
  Tensor found;
  {
    const nb::gil_scoped_release released;
    found = model.logits(rows.view(), threads);
  }
  return to_python(std::move(found), Kind::numpy);
}

// [layers + 1, L, D]: the residual stream before each layer, and after the last.
nb::object streams(const Model& model, nb::handle ids, int threads) {
  const Borrowed tokens("ids", ids);
  const ModelInfo& info = model.info();
  Tensor all;
  ModelHooks hooks;
  hooks.stream = [&](std::int64_t layer, const TensorView& stream) {
    if (layer == 0)
      all = Tensor::uninitialized({info.layers + 1, stream.size(0), info.model_dim}, DType::f32);
    copy(stream, all.mutable_view().select(0, layer));
  };
  {
    const nb::gil_scoped_release released;
    (void)model.hidden_states(tokens.view(), hooks, threads);
  }
  return to_python(std::move(all), Kind::numpy);
}

// [layers, H, L, L], or [H, L, L] for one layer.
nb::object weights(const Model& model, nb::handle ids, std::optional<std::int64_t> only, int threads) {
  const Borrowed tokens("ids", ids);
  const ModelInfo& info = model.info();
  if (only && (*only < 0 || *only >= info.layers))
    fail("layer is ", *only, "; 0 to ", info.layers - 1, " is expected");
  Tensor all;
  ModelHooks hooks;
  hooks.attend = [&](const LayerCall& call) {
    const std::int64_t length = call.query.size(1);
    if (all.rank() != 4)
      all = Tensor::uninitialized({only ? 1 : info.layers, info.heads, length, length}, DType::f32);
    Tensor output = Tensor::uninitialized({info.heads, length, info.head_dim}, DType::f32);
    AttentionOutputs outputs;
    outputs.output = output.mutable_view();
    if (!only || *only == call.layer) outputs.weights = all.mutable_view().select(0, only ? 0 : call.layer);
    attention_into(call.query, call.key, call.value, call.options, outputs);
    return output;
  };
  {
    const nb::gil_scoped_release released;
    (void)model.hidden_states(tokens.view(), hooks, threads);
  }
  if (only) all = std::move(all).reshaped({info.heads, all.size(2), all.size(3)});
  return to_python(std::move(all), Kind::numpy);
}

std::vector<TokenSpan> spans_of_needle(const std::optional<std::string>& text, const ModelTokens& tokens,
                                       const std::string& needle) {
  if (!text) fail("needle is given together with ids; the text that contains it is expected");
  std::vector<TokenSpan> spans = spans_of(*text, tokens, needle);
  if (spans.empty())
    fail("needle is '", needle, "', which is not in the text; words of the text are expected");
  return spans;
}

// A report on all heads that can answer further questions. With many heads it stores fewer bins and cells.
ReportData kept_look(const Model& model, const ModelTokens& text, const TextCallOptions& options,
                     std::int64_t top_k, const std::vector<TokenSpan>& needle) {
  constexpr std::int64_t kMaxCells = 64'000'000, kMaxBins = 64'000'000;
  Document document = document_of_text(model, text, options);
  ReportOptions wanted{.top_k = top_k};
  const std::int64_t heads = document.query.size(1);
  wanted.full_weights_cells = std::min(kFullWeightsCells, kMaxCells / heads);
  while (wanted.map.rows > 64 && heads * wanted.map.rows * wanted.map.columns > kMaxBins)
    wanted.map = {wanted.map.rows / 2, wanted.map.columns / 2};
  fill_report(document, std::move(wanted));
  std::vector<Retrieval> found;
  if (!needle.empty()) found = retrieval_of(document, needle);
  ReportData data = report_data(std::move(document));
  data.retrieval = std::move(found);
  return data;
}

// A report computed while the model runs; it cannot answer further questions.
ReportData passing_look(const Model& model, const ModelTokens& text, const TextCallOptions& call,
                        std::int64_t top_k, std::vector<TokenSpan> needle) {
  TextLookOptions options;
  options.report.top_k = top_k;
  options.by = call.by;
  options.layer = call.layer;
  options.threads = call.threads;
  options.needle = std::move(needle);
  TextLook look = look_at_text(model, text, options);
  ReportData data;
  data.report = std::move(look.report);
  data.retrieval = std::move(look.retrieval);
  return data;
}

// Takes either a text or ids.
ReportData look_at(const Model& model, nb::handle ids, const std::optional<std::string>& text,
                   const std::optional<std::string>& needle, bool by_norm, std::optional<std::int64_t> layer,
                   std::int64_t top_k, bool keep, int threads) {
  std::optional<Borrowed> given;
  if (!text) given.emplace("ids", ids);
  const nb::gil_scoped_release released;
  const ModelTokens tokens = text ? model.tokenize(*text) : model.tokens_of(given->view());
  const TextCallOptions options = {
      .by = by_norm ? WeighedBy::norm : WeighedBy::attention, .layer = layer, .threads = threads};
  std::vector<TokenSpan> spans;
  if (needle) spans = spans_of_needle(text, tokens, *needle);
  return keep ? kept_look(model, tokens, options, top_k, spans)
              : passing_look(model, tokens, options, top_k, std::move(spans));
}

using Messages = std::vector<std::pair<std::string, std::string>>;  // role, content

std::vector<ChatMessage> messages_of(const Messages& given) {
  std::vector<ChatMessage> messages;
  for (const auto& [role, content] : given) messages.push_back({role, content});
  return messages;
}

}  // namespace

void define_pretrained(nb::module_& module) {
  nb::class_<ModelCache>(module, "ModelCache", "The keys and values of tokens that a model has read.")
      .def_prop_ro("length", &ModelCache::length)
      .def("clear", &ModelCache::clear)
      .def(copied([](const ModelCache& cache) { return cache.copy(); }))
      .def(pickled(cache_state, cache_from));
  nb::class_<Model>(module, "ModelData")
      .def(CopiedAsItself())
      .def(NotPickled("ModelData cannot be pickled; pickle the heed.Model that has it"))
      .def_prop_ro("info", info_of)
      .def_prop_ro("notes", [](const Model& model) { return model.info().notes; })
      .def("tokenizer", &Model::tokenizer, nb::rv_policy::reference_internal)
      .def("cache", make_cache, nb::arg("format"))
      .def(
          "token_ids", [](const Model& model, const std::string& text) { return model.tokenize(text).ids; },
          nb::arg("text"))
      .def(
          "tokens", [](const Model& model, const std::string& text) { return model.tokenize(text).shown; },
          nb::arg("text"))
      .def(
          "chat_text",
          [](const Model& model, const Messages& given, bool prompt) {
            return chat_text(model, messages_of(given), prompt);
          },
          nb::arg("messages"), nb::arg("add_generation_prompt"))
      .def(
          "chat_ids",
          [](const Model& model, const Messages& given, bool prompt) {
            return chat_tokens(model, messages_of(given), prompt).ids;
          },
          nb::arg("messages"), nb::arg("add_generation_prompt"))
      .def("hidden_states", hidden_states, nb::arg("ids"), nb::arg("cache").none(), nb::arg("threads"))
      .def("logits", logits, nb::arg("hidden"), nb::arg("threads"))
      .def("streams", streams, nb::arg("ids"), nb::arg("threads"))
      .def("weights", weights, nb::arg("ids"), nb::arg("layer").none(), nb::arg("threads"))
      .def("look", look_at, nb::arg("ids").none(), nb::arg("text").none(), nb::arg("needle").none(),
           nb::arg("by_norm"), nb::arg("layer").none(), nb::arg("top_k"), nb::arg("keep"),
           nb::arg("threads"));
  module.def("model_folder", model_folder, nb::arg("folder"));
  module.def(
      "load_pretrained", [](const std::string& folder, bool fast) { return load_model(folder, {fast}); },
      nb::arg("folder"), nb::arg("fast"), nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace heed::python
