// heed.look: a report of the library, its numbers as arrays; and the page.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "calls.hpp"
#include "fail.hpp"
#include "heed/document.hpp"
#include "heed/page.hpp"

namespace heed::python {
namespace {

using Words = std::vector<std::string>;

AttentionReport report_of_python(nb::handle q, nb::handle k, nb::handle v, Words query_tokens,
                                 Words key_tokens, std::int64_t top_k, bool cost, const nb::dict& options) {
  const Borrowed query("q", q);
  const Borrowed key("k", k);
  const Borrowed value("v", v);
  const Arguments arguments = read_arguments("look", nb::borrow<nb::kwargs>(options));
  ReportOptions wanted;
  wanted.top_k = top_k;
  wanted.query_tokens = std::move(query_tokens);
  wanted.key_tokens = std::move(key_tokens);
  wanted.cost = cost;
  wanted.full_weights_cells = kFullWeightsCells;
  const nb::gil_scoped_release released;
  return make_report(query.view(), key.view(), value.view(), arguments.options, wanted);
}

AttentionReport report_of_file(const std::string& path) {
  const nb::gil_scoped_release released;
  Document document = open_document(path);
  AttentionReport& report = document.report;
  if (!document.has_report)
    fill_report(document, {.full_weights_cells = kFullWeightsCells});
  else if (report.keys > 0 && report.queries <= kFullWeightsCells / report.keys)
    report.weights = attention_tile(document, {0, report.queries, 0, report.keys});
  return std::move(report);
}

// Every array of the report under its name, in the report's own memory; None for what it does not have.
nb::dict arrays(nb::handle self) {
  auto& report = nb::cast<AttentionReport&>(self);
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

nb::list summaries(const AttentionReport& report) {
  nb::list all;
  for (const HeadSummary& head : report.summaries) {
    nb::dict one;
    one["batch"] = head.batch;
    one["head"] = head.head;
    one["name"] = std::string(head.name());
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
    nb::dict scores;
    for (const PatternScore& pattern : head.patterns)
      scores[nb::str(name_of(pattern.pattern).data(), name_of(pattern.pattern).size())] = pattern.score;
    one["scores"] = scores;
    one["most_received"] = head.most_received;
    one["most_received_weight"] = head.most_received_weight;
    all.append(one);
  }
  return all;
}

nb::list cost(const AttentionReport& report) {
  nb::list all;
  for (const CostLine& line : report.cost) {
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

std::string write_page(const AttentionReport& report, const std::string& path, const std::string& title,
                       const std::string& about, std::int64_t most_bytes) {
  HtmlPage page;
  page.title = title;
  page.about = about;
  page.query_tokens = report.query_tokens;
  page.key_tokens = report.key_tokens;
  page.cross = page.query_tokens != page.key_tokens;
  page.heads = report.batch * report.heads;
  page.report = &report;
  page.most_bytes = most_bytes;
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

}  // namespace

void define_report(nb::module_& module) {
  nb::class_<AttentionReport>(module, "ReportData")
      .def_ro("batch", &AttentionReport::batch)
      .def_ro("heads", &AttentionReport::heads)
      .def_ro("kv_heads", &AttentionReport::kv_heads)
      .def_ro("queries", &AttentionReport::queries)
      .def_ro("keys", &AttentionReport::keys)
      .def_ro("head_dim", &AttentionReport::head_dim)
      .def_ro("value_dim", &AttentionReport::value_dim)
      .def_prop_ro("dtype", [](const AttentionReport& report) { return std::string(name_of(report.dtype)); })
      .def_ro("kernel", &AttentionReport::kernel)
      .def_ro("isa", &AttentionReport::isa)
      .def_ro("query_tokens", &AttentionReport::query_tokens)
      .def_ro("key_tokens", &AttentionReport::key_tokens)
      .def_ro("options", &AttentionReport::options)
      .def_prop_ro("arrays", arrays)
      .def_prop_ro("summaries", summaries)
      .def_prop_ro("cost", cost)
      .def("write_html", write_page);
  module.def("make_report", report_of_python);
  module.def("open_report", report_of_file);
  module.def("attention_tile", tile_of_python);
}

}  // namespace heed::python
