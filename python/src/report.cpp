// heed.look: the library's reports with NumPy arrays, and the page.
#include "report.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>
#include <utility>

#include "calls.hpp"
#include "fail.hpp"
#include "heed/inspect/grid.hpp"
#include "heed/inspect/moved.hpp"
#include "heed/inspect/page.hpp"
#include "saved.hpp"

namespace heed::python {
namespace {

// Texts of rows and keys, and their ids.
using Tokens = std::tuple<std::vector<std::string>, std::vector<std::string>, std::vector<std::int64_t>,
                          std::vector<std::int64_t>>;
using Range = std::pair<std::int64_t, std::int64_t>;

// Limits of a report: it stores all weights if a head has at most `cells` cells, and a map of at most `bins`
// bins per side.
ReportOptions wanted_of(Tokens tokens, std::int64_t top_k, std::int64_t cells, std::int64_t bins) {
  ReportOptions wanted;
  wanted.top_k = top_k;
  std::tie(wanted.query_tokens, wanted.key_tokens, wanted.query_token_ids, wanted.key_token_ids) =
      std::move(tokens);
  wanted.full_weights_cells = cells;
  wanted.map = {bins, bins};
  return wanted;
}

ReportData report_of_call(nb::handle q, nb::handle k, nb::handle v, Tokens tokens, std::int64_t top_k,
                          bool cost, std::int64_t cells, std::int64_t bins, const nb::dict& options) {
  ReportData data;
  const auto call = std::make_shared<Call>();
  call->inputs.emplace_back("q", q);
  call->inputs.emplace_back("k", k);
  const Borrowed value("v", v);
  call->arguments.emplace(read_arguments("look", nb::borrow<nb::kwargs>(options)));
  ReportOptions wanted = wanted_of(std::move(tokens), top_k, cells, bins);
  wanted.cost = cost;
  {
    const nb::gil_scoped_release released;
    Document& document = call->document;
    document.query = call->inputs[0].view();
    document.key = call->inputs[1].view();
    document.value = value.view();
    document.options = call->arguments->options;
    data.report = make_report(document.query, document.key, document.value, document.options, wanted);
    for (TensorView* view : {&document.query, &document.key})
      while (view->rank() < 4) *view = view->unsqueeze(0);
    document.value = document.key;
    document.has_value = false;
    call->lse = data.report.lse;
  }
  data.calls.push_back(call);
  return data;
}

ReportData report_of_weights(nb::handle weights, nb::handle allowed, Tokens tokens,
                             const std::vector<std::pair<std::string, std::int64_t>>& layers,
                             std::int64_t top_k, std::int64_t cells, std::int64_t bins) {
  const Borrowed given("weights", weights);
  std::optional<Borrowed> mask;
  if (!allowed.is_none()) mask.emplace("allowed", allowed);
  const nb::gil_scoped_release released;
  Document document = document_of_weights(given.view(), mask ? std::optional(mask->view()) : std::nullopt,
                                          wanted_of(std::move(tokens), top_k, cells, bins));
  for (const auto& [name, heads] : layers) document.report.layers.push_back({name, heads});
  return report_data(std::move(document));
}

ReportData report_of_file(const std::string& path) {
  const nb::gil_scoped_release released;
  Document document = open_document(path);
  AttentionReport& report = document.report;
  if (!document.has_report)
    fill_report(document, {.full_weights_cells = kFullWeightsCells});
  else if (report.keys > 0 && report.queries <= kFullWeightsCells / report.keys)
    report.weights = attention_tile(document, {0, report.queries, 0, report.keys});
  return report_data(std::move(document));
}

ReportData report_of_layers(const std::vector<std::pair<std::string, const ReportData*>>& layers) {
  ReportData data;
  std::vector<std::pair<std::string, AttentionReport>> reports;
  for (const auto& [name, layer] : layers) {
    reports.emplace_back(name, layer->report);
    data.calls.insert(data.calls.end(), layer->calls.begin(), layer->calls.end());
  }
  const nb::gil_scoped_release released;
  data.report = join_layers(std::move(reports));
  return data;
}

// A tile of every call: its weights, and which keys its rows may see, each as an array [B, H, rows, keys].
nb::list tiles(const ReportData& data, Range rows, Range keys) {
  std::vector<WeightTile> found;
  {
    const nb::gil_scoped_release released;
    for (const auto& call : data.calls)
      found.push_back(attention_tile(call->document.query, call->document.key, call->document.options,
                                     call->lse, {rows.first, rows.second, keys.first, keys.second}));
  }
  nb::list all;
  for (WeightTile& tile : found)
    all.append(nb::make_tuple(to_python(std::move(tile.weights), Kind::numpy),
                              to_python(std::move(tile.allowed), Kind::numpy)));
  return all;
}

// Whether document_of_weights() derives this mask by itself: all keys, or those up to the diagonal.
bool is_told(const Tensor& allowed) {
  const std::int64_t rows = allowed.size(2);
  const std::int64_t keys = allowed.size(3);
  bool all = true;
  bool causal = rows <= keys && rows > 1;
  const auto open = allowed.values<bool>();
  for (std::size_t at = 0; at < open.size(); ++at) {
    const auto place = static_cast<std::int64_t>(at);
    const bool below = place % keys <= place / keys % rows + keys - rows;
    all = all && open[at];
    causal = causal && open[at] == below;
  }
  return all || causal;
}

// A file has one call. Several layers are saved as one call whose bias is the logarithm of their weights.
void save(const ReportData& data, const std::string& path) {
  const nb::gil_scoped_release released;
  const AttentionReport& report = data.report;
  Document document;
  if (data.calls.size() == 1) {
    const Call& call = *data.calls.front();
    document.query = call.document.query;
    document.key = call.document.key;
    document.options = call.document.options;
    document.report = report;
    document.has_report = true;
  } else {
    const Tensor& allowed = report.weights.allowed;
    document = document_of_weights(
        report.weights.weights, is_told(allowed) ? std::nullopt : std::optional<TensorView>(allowed),
        wanted_of({report.query_tokens, report.key_tokens, report.query_token_ids, report.key_token_ids},
                  report.top_k_index.rank() == 4 ? report.top_k_index.size(3) : 0, 0,
                  report.map.empty() ? 0 : report.map.front().size(2)));
    document.report.layers = report.layers;
  }
  save_document(path, document);
}

// Every array of the report by name, in the report's own memory; None if absent.
nb::dict arrays(nb::handle self) {
  AttentionReport& report = nb::cast<ReportData&>(self).report;
  nb::dict all;
  const auto add = [&](const char* name, Tensor& tensor) {
    all[name] = numpy_view(tensor.mutable_view(), self);
  };
  add("position", report.position);
  add("key_begin", report.key_begin);
  add("key_end", report.key_end);
  add("lse", report.lse);
  add("max_score", report.max_score);
  add("entropy", report.entropy);
  add("distance", report.distance);
  add("max_weight", report.max_weight);
  add("first", report.first);
  add("self", report.self);
  add("previous", report.previous);
  add("next", report.next);
  add("top_k_index", report.top_k_index);
  add("top_k_weight", report.top_k_weight);
  const auto add_where = [&](const char* name, Tensor& tensor) {
    if (tensor.rank() == 4 || tensor.rank() == 3)
      add(name, tensor);
    else
      all[name] = nb::none();
  };
  add_where("output", report.output);
  add_where("received", report.received);
  add_where("induction", report.induction);
  add_where("weights", report.weights.weights);
  nb::list levels;
  for (Tensor& level : report.map) levels.append(numpy_view(level.mutable_view(), self));
  all["map"] = levels;
  return all;
}

nb::dict name_of_python(const HeadName& name) {
  nb::dict one;
  one["name"] = name_of(name);
  one["score"] = name.score;
  one["of_rest"] = name.of_rest;
  return one;
}

void add_names(const HeadSummary& head, nb::dict& one) {
  nb::list names;
  for (const HeadName& name : head.names()) names.append(name_of_python(name));
  one["names"] = names;
  const auto runner_up = head.runner_up();
  one["runner_up"] = runner_up ? nb::object(name_of_python(*runner_up)) : nb::object(nb::none());
  nb::dict scores, rest_scores, score_rows;
  for (const PatternScore& pattern : head.patterns) {
    const nb::str name(name_of(pattern.pattern).data(), name_of(pattern.pattern).size());
    scores[name] = pattern.score;
    rest_scores[name] = pattern.rest_score;
    score_rows[name] = pattern.rows;
  }
  one["scores"] = scores;
  one["rest_scores"] = rest_scores;
  one["score_rows"] = score_rows;
}

nb::list list_of(const AttentionReport& report, const std::vector<HeadSummary>& heads) {
  nb::list all;
  for (const HeadSummary& head : heads) {
    nb::dict one;
    one["batch"] = head.batch;
    one["head"] = head.head;
    one["place"] = name_of_head(report, head.head);
    one["name"] = head.name();
    one["rows"] = head.rows;
    one["nan_rows"] = head.nan_rows;
    one["entropy"] = head.entropy;
    one["max_weight"] = head.max_weight;
    one["distance"] = head.distance;
    one["first"] = head.first;
    one["self"] = head.self;
    one["previous"] = head.previous;
    one["next"] = head.next;
    one["induction"] = head.induction;
    one["choices"] = head.choices;
    add_names(head, one);
    one["most_received"] = head.most_received;
    one["most_received_weight"] = head.most_received_weight;
    all.append(one);
  }
  return all;
}

nb::list summaries(const ReportData& data) { return list_of(data.report, data.report.summaries); }

// Merges several texts, with the head names of the first.
nb::list merged_summaries(const nb::list& reports) {
  std::vector<std::vector<HeadSummary>> texts;
  const AttentionReport* first = nullptr;
  for (const nb::handle one : reports) {
    const AttentionReport& report = nb::cast<const ReportData&>(one).report;
    if (first == nullptr) first = &report;
    texts.push_back(report.summaries);
  }
  const std::vector<HeadSummary> merged = merge_summaries(texts);
  return list_of(*first, merged);
}

nb::list cost(const ReportData& data) {
  nb::list all;
  for (const CostLine& line : data.report.cost) {
    nb::dict one;
    one["what"] = line.what;
    one["seconds"] = line.seconds;
    one["times"] = line.times;
    one["bytes"] = line.bytes;
    one["estimated"] = line.estimated;
    one["made"] = line.made;
    all.append(one);
  }
  return all;
}

nb::object retrieval(const ReportData& data) {
  if (data.retrieval.empty()) return nb::none();
  nb::list list;
  for (const Retrieval& head : data.retrieval) {
    nb::dict one;
    one["last"] = head.last;
    one["mean"] = head.mean;
    one["rows"] = head.rows;
    list.append(one);
  }
  return list;
}

nb::list layers(const ReportData& data) {
  nb::list all;
  for (const LayerHeads& layer : data.report.layers) all.append(nb::make_tuple(layer.name, layer.heads));
  return all;
}

std::string write_page(const ReportData& data, const std::string& path, const std::string& title,
                       const std::string& about, std::int64_t most_bytes, nb::handle patches) {
  const AttentionReport& report = data.report;
  HtmlPage page;
  page.title = title;
  page.about = about;
  page.query_tokens = report.query_tokens;
  page.key_tokens = report.key_tokens;
  page.cross = page.query_tokens != page.key_tokens;
  page.heads = report.batch * report.heads;
  page.report = &report;
  page.most_bytes = most_bytes;
  if (!patches.is_none()) {
    const auto bytes = nb::cast<nb::bytes>(patches[0]);
    page.picture = PagePicture{{bytes.c_str(), bytes.size()},
                               nb::cast<std::int64_t>(patches[1]),
                               nb::cast<std::int64_t>(patches[2]),
                               nb::cast<std::int64_t>(patches[3])};
  }
  const nb::gil_scoped_release released;
  return write_html(path, page);
}

nb::object tile_of_python(nb::handle q, nb::handle k, nb::handle lse,
                          std::pair<std::int64_t, std::int64_t> rows,
                          std::pair<std::int64_t, std::int64_t> keys, std::int64_t batch, std::int64_t head,
                          const nb::dict& options) {
  const Borrowed query("q", q);
  const Borrowed key("k", k);
  const Borrowed sums("lse", lse);
  const Arguments arguments = read_arguments("attention_tile", nb::borrow<nb::kwargs>(options));
  WeightTile tile;
  {
    const nb::gil_scoped_release released;
    tile = attention_tile(query.view(), key.view(), arguments.options, sums.view(),
                          {rows.first, rows.second, keys.first, keys.second, batch, head});
  }
  return to_python(std::move(tile.weights), array_type(q).kind);
}

using GridCall = Tensor (*)(const TensorView&, const TensorView&, const TokenGrid&,
                            const std::vector<std::int64_t>& cells, const AttentionOptions&);

nb::object on_grid(const char* name, GridCall call, nb::handle q, nb::handle k, const TokenGrid& grid,
                   const std::vector<std::int64_t>& cells, const nb::kwargs& options) {
  const Borrowed query("q", q);
  const Borrowed key("k", k);
  const Arguments arguments = read_arguments(name, options);
  Tensor made;
  {
    const nb::gil_scoped_release released;
    made = call(query.view(), key.view(), grid, cells, arguments.options);
  }
  return to_python(std::move(made), array_type(q).kind);
}

nb::object distance_on_grid(nb::handle q, nb::handle k, std::vector<std::int64_t> grid, std::int64_t first,
                            const nb::kwargs& options) {
  const GridCall call = [](const TensorView& query, const TensorView& key, const TokenGrid& on,
                           const std::vector<std::int64_t>&,
                           const AttentionOptions& with) { return grid_distance(query, key, on, with); };
  return on_grid("grid_distance", call, q, k, {std::move(grid), first}, {}, options);
}

nb::object map_on_grid(nb::handle q, nb::handle k, std::vector<std::int64_t> grid,
                       const std::vector<std::int64_t>& cells, std::int64_t first,
                       const nb::kwargs& options) {
  const GridCall call = [](const TensorView& query, const TensorView& key, const TokenGrid& on,
                           const std::vector<std::int64_t>& into,
                           const AttentionOptions& with) { return grid_map(query, key, on, into, with); };
  return on_grid("grid_map", call, q, k, {std::move(grid), first}, cells, options);
}

nb::object norms_of_moved(nb::handle v, nb::handle projection, nb::handle gate, nb::handle threads) {
  const Borrowed value("v", v), matrix("projection", projection);
  std::optional<Borrowed> by;
  if (!gate.is_none()) by.emplace("gate", gate);
  const int limit = threads.is_none() ? 0 : threads_of(threads);
  Tensor norms;
  {
    const nb::gil_scoped_release released;
    norms = moved_norms(value.view(), matrix.view(), by ? std::optional(by->view()) : std::nullopt, limit);
  }
  return to_python(std::move(norms), array_type(v).kind);
}

}  // namespace

ReportData report_data(Document document) {
  ReportData data;
  const auto call = std::make_shared<Call>();
  data.report = std::move(document.report);
  document.report = {};
  call->lse = data.report.lse;
  call->document = std::move(document);
  data.calls.push_back(call);
  return data;
}

void define_report(nb::module_& module) {
  const auto number = [](std::int64_t AttentionReport::*member) {
    return [member](const ReportData& data) { return data.report.*member; };
  };
  nb::class_<ReportData>(module, "ReportData")
      .def(copied([](const ReportData& data) { return data; }))
      .def(NotPickled("heed.Report cannot be pickled because it reads the arrays of its call again; "
                      "save it with report.save('name.safetensors') and read it with heed.open"))
      .def_prop_ro("batch", number(&AttentionReport::batch))
      .def_prop_ro("heads", number(&AttentionReport::heads))
      .def_prop_ro("kv_heads", number(&AttentionReport::kv_heads))
      .def_prop_ro("queries", number(&AttentionReport::queries))
      .def_prop_ro("keys", number(&AttentionReport::keys))
      .def_prop_ro("head_dim", number(&AttentionReport::head_dim))
      .def_prop_ro("value_dim", number(&AttentionReport::value_dim))
      .def_prop_ro("dtype", [](const ReportData& data) { return std::string(name_of(data.report.dtype)); })
      .def_prop_ro("kernel", [](const ReportData& data) { return data.report.kernel; })
      .def_prop_ro("isa", [](const ReportData& data) { return data.report.isa; })
      .def_prop_ro("query_tokens", [](const ReportData& data) { return data.report.query_tokens; })
      .def_prop_ro("key_tokens", [](const ReportData& data) { return data.report.key_tokens; })
      .def_prop_ro("query_token_ids", [](const ReportData& data) { return data.report.query_token_ids; })
      .def_prop_ro("key_token_ids", [](const ReportData& data) { return data.report.key_token_ids; })
      .def_prop_ro("options", [](const ReportData& data) { return data.report.options; })
      .def_prop_ro("layers", layers)
      .def_prop_ro("calls", [](const ReportData& data) { return data.calls.size(); })
      .def_prop_ro("arrays", arrays)
      .def_prop_ro("summaries", summaries)
      .def_prop_ro("cost", cost)
      .def_prop_ro("retrieval", retrieval)
      .def("tiles", tiles, nb::arg("rows"), nb::arg("keys"))
      .def("save", save, nb::arg("path"))
      .def("write_html", write_page, nb::arg("path"), nb::arg("title"), nb::arg("about"),
           nb::arg("most_bytes"), nb::arg("patches").none());
  module.def("make_report", report_of_call, nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(),
             nb::arg("tokens"), nb::arg("top_k"), nb::arg("cost"), nb::arg("cells"), nb::arg("bins"),
             nb::arg("options"));
  module.def("report_of_weights", report_of_weights, nb::arg("weights"), nb::arg("allowed").none(),
             nb::arg("tokens"), nb::arg("layers"), nb::arg("top_k"), nb::arg("cells"), nb::arg("bins"));
  module.def("join_reports", report_of_layers, nb::arg("layers"));
  module.def("merge_summaries", merged_summaries, nb::arg("reports"));
  module.def("open_report", report_of_file, nb::arg("path"));
  module.def("attention_tile", tile_of_python, nb::arg("q").none(), nb::arg("k").none(),
             nb::arg("lse").none(), nb::arg("rows"), nb::arg("keys"), nb::arg("batch"), nb::arg("head"),
             nb::arg("options"));
  module.def(
      "grid_distance", distance_on_grid, nb::arg("q").none(), nb::arg("k").none(), nb::arg("grid"),
      nb::arg("first") = 0, nb::arg("options"),
      nb::sig("def grid_distance(q, k, grid: collections.abc.Sequence[int], first: int = 0, **options)"),
      "For tokens on a grid, the mean distance to the keys along each axis, under the weights: "
      "[B, H, tokens, axes]. Keys first, first + 1, … lie on the grid; others are left out. Options are "
      "those of attention().");
  module.def(
      "grid_map", map_on_grid, nb::arg("q").none(), nb::arg("k").none(), nb::arg("grid"), nb::arg("cells"),
      nb::arg("first") = 0, nb::arg("options"),
      nb::sig("def grid_map(q, k, grid: collections.abc.Sequence[int], cells: collections.abc.Sequence[int], "
              "first: int = 0, **options)"),
      "The weights between cells of a grid of tokens, summed: [B, H, cells, cells], where `cells` says "
      "how many there are along each axis.");
  module.def(
      "moved_norms", norms_of_moved, nb::arg("v").none(), nb::arg("projection").none(),
      nb::arg("gate").none() = nb::none(), nb::kw_only(), nb::arg("threads").none() = nb::none(),
      "What a weight of 1 moves: n_ij = |(g_i * v_j) W_O|, float32 [B, H, Lq, Lk], or [B, H, 1, Lk] without "
      "a gate. v [B, Hkv, Lk, Dv], projection [H, Dv, M], gate [B, H, Lq, Dv] or [B, H, Lq, 1]. With "
      "bias=log(n), a row's weights are its shares of what it moves.");
}

}  // namespace heed::python
