#include "look/subject.hpp"

#include <algorithm>
#include <utility>

#include "command.hpp"
#include "core/tensor/concatenate.hpp"
#include "options.hpp"
#include "progress.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr std::size_t kMaxNamesTold = 12;
constexpr std::int64_t kSavedMap = 1024;  // bins per side
constexpr double kMaxMapBytes = 512e6;    // upper bound for the maps of all heads; bins are reduced to fit

template <class... Parts>
[[noreturn]] void refuse_head(const std::string& text, const Parts&... why) {
  refuse_usage("--head is '", text, "'", why...);
}

// "0 to 5" if layers are numbered consecutively, else their names.
std::string names_of(const std::vector<LayerHeads>& layers) {
  if (layers.size() == 1) return layers[0].name + " alone";
  std::string names;
  bool numbered = true;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    numbered = numbered && layers[i].name == std::to_string(i);
    if (i < kMaxNamesTold) names += (i > 0 ? ", " : "") + layers[i].name;
  }
  if (numbered) return "0 to " + std::to_string(layers.size() - 1);
  return names + (layers.size() > kMaxNamesTold ? ", …" : "");
}

std::optional<HeadSpan> find_layer(const std::vector<LayerHeads>& layers, const std::string& name) {
  std::int64_t begin = 0;
  for (const LayerHeads& layer : layers) {
    if (layer.name == name) return HeadSpan{begin, begin + layer.heads};
    begin += layer.heads;
  }
  return std::nullopt;
}

// Parses "1.3". `point` is the last point, because layer names may contain points.
std::int64_t head_in_layer(const std::string& text, std::size_t point, const Document& document) {
  const std::vector<LayerHeads>& layers = document.report.layers;
  const std::string name = text.substr(0, point);
  const std::optional<HeadSpan> span = find_layer(layers, name);
  if (layers.empty())
    refuse_head(text, ", but this call has no layers; a number, counted from 0, is expected");
  if (!span) refuse_head(text, "; the layers are ", names_of(layers));
  const std::int64_t number = whole_number(text.substr(point + 1)).value_or(-1);
  if (number < 0 || number >= span->end - span->begin)
    refuse_head(text, "; layer ", name, " has the heads 0 to ", span->end - span->begin - 1);
  return span->begin + number;
}

std::int64_t head_named(const std::string& text, const Document& document, const HeadSpan& layer) {
  const std::size_t point = text.rfind('.');
  if (point != std::string::npos) {
    const std::int64_t head = head_in_layer(text, point, document);
    if (head < layer.begin || head >= layer.end) refuse_head(text, ", which is not in the layer of --layer");
    return head;
  }
  const std::int64_t number = whole_number(text).value_or(-1);
  if (number < 0)
    refuse_head(text,
                "; a head (3, or 1.3 for layer 1, head 3), or several separated by commas, is expected");
  if (number >= layer.end - layer.begin)
    refuse_usage("--head is ", text, "; ", there_are(layer.end - layer.begin, "head"), ", counted from 0");
  return layer.begin + number;
}

}  // namespace

void add_choice_options(CLI::App& app, SharedOptions& shared) {
  add_text_option(
      app, "--head", "HEADS", [&](const std::string& text) { shared.head_names = split(text, ','); },
      "show only these heads: 3, 1.3 (layer 1, head 3), or several separated by commas; a single number "
      "counts through all layers, or within --layer");
  add_integer(app, "--batch", {0}, shared.batch, "show only this batch entry, counted from 0");
  add_integer(app, "--top-k", {1, 1024}, shared.top_k, "list K keys, or K rows with --evict (default 5)")
      ->type_name("K");
}

void add_result_options(CLI::App& app, SharedOptions& shared) {
  add_flag(app, "--json", shared.json, "print one JSON object instead");
  add_text(app, "--csv", "FILE", shared.csv, "also write the answer as a table");
  add_text(app, "--npy", "FILE.npy", shared.npy, "also write the weights of --tile or --row");
  add_text(app, "--save", "DOC.safetensors", shared.save,
           "save query, key, lse, the summaries and tokens: later questions need only this file");
}

void check_file_names(const SharedOptions& shared) {
  require_ending("--npy", shared.npy, ".npy");
  require_ending("--save", shared.save, ".safetensors");
}

std::int64_t axis_size(const Document& document, int from_behind) {
  const AttentionReport& report = document.report;
  if (document.has_report)
    return from_behind == 2 ? report.queries : from_behind == 3 ? report.heads : report.batch;
  return document.query.rank() < from_behind ? 1 : document.query.size(-from_behind);
}

std::int64_t key_count(const Document& document) {
  return document.has_report ? document.report.keys : document.key.size(-2);
}

HeadSpan heads_of_layer(const std::vector<LayerHeads>& layers, const std::string& name) {
  const std::optional<HeadSpan> span = find_layer(layers, name);
  if (layers.empty()) refuse_usage("--layer is ", name, ", but this call has no layers");
  if (!span) refuse_usage("--layer is ", name, "; the layers are ", names_of(layers));
  return *span;
}

std::vector<std::int64_t> heads_named(const Document& document, const std::optional<std::string>& layer,
                                      const std::vector<std::string>& names) {
  HeadSpan span{0, axis_size(document, 3)};
  if (layer) span = heads_of_layer(document.report.layers, *layer);
  std::vector<std::int64_t> heads;
  for (const std::string& name : names) heads.push_back(head_named(name, document, span));
  if (layer && heads.empty())
    for (std::int64_t head = span.begin; head < span.end; ++head) heads.push_back(head);
  std::ranges::sort(heads);
  heads.erase(std::unique(heads.begin(), heads.end()), heads.end());
  return heads;
}

void check_index(const char* option, std::int64_t index, std::int64_t count, const char* of,
                 const char* many) {
  if (index >= count)
    refuse_usage(option, " is ", index, "; ", there_are(count, of, many), ", counted from 0");
}

MapSize saved_map(const Document& document) {
  const auto maps = static_cast<double>(axis_size(document, 4) * axis_size(document, 3));
  std::int64_t side = kSavedMap;
  while (side > 64 && maps * static_cast<double>(side * side) * 8 > kMaxMapBytes) side /= 2;
  return {side, side};
}

Subject::Subject(Document call, const LookSource& from, const SharedOptions& options)
    : document(std::move(call)),
      source(from),
      shared(options),
      heads(heads_named(document, source.layer, shared.head_names)) {
  if (!shared.received && document.has_report && !source.document.empty())
    refuse_usage("--no-received is given together with DOC, whose summary is already computed");
  if (shared.batch)
    check_index("--batch", *shared.batch, axis_size(document, 4), "batch entry", "batch entries");
}

void Subject::complete(ReportOptions wanted) {
  const bool saved = !shared.save.empty();
  if (!document.has_report) {
    ProgressBar bar;
    wanted.top_k = shared.keys();
    wanted.received = shared.received && (wanted.received || saved);
    if (saved) {
      wanted.map = saved_map(document);
      wanted.rows.clear();
    }
    if (wanted.rows.empty()) wanted.attend = source.attend;  // rows alone are computed here
    wanted.progress = [&](std::string_view what, double share) { bar.show(what, share); };
    fill_report(document, std::move(wanted));
  }
  if (saved) save_document(shared.save, document);
}

bool Subject::includes(std::int64_t batch, std::int64_t head) const {
  return batch == shared.batch.value_or(batch) && (heads.empty() || std::ranges::binary_search(heads, head));
}

WeightTile Subject::tile(TileRange range) const {
  range.batch = shared.batch.value_or(-1);
  range.head = only_head();
  if (heads.size() < 2) return attention_tile(document, range);
  std::vector<Tensor> weights, allowed;
  for (const std::int64_t head : heads) {
    TileRange one = range;
    one.head = head;
    WeightTile tile = attention_tile(document, one);
    weights.push_back(std::move(tile.weights));
    allowed.push_back(std::move(tile.allowed));
  }
  return {range, detail::concatenated(weights, 1), detail::concatenated(allowed, 1)};
}

ReportOptions report_of_rows(const Document& document, std::vector<std::int64_t> rows) {
  constexpr std::int64_t kShare = 16;
  if (std::ssize(rows) > axis_size(document, 2) / kShare) rows.clear();
  return {.received = false, .map = {}, .rows = std::move(rows)};
}

}  // namespace heed::cli
