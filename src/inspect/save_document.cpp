#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "attention/masks/saved_mask.hpp"
#include "heed/io/tensors.hpp"
#include "inspect/document_format.hpp"

namespace heed {
namespace detail {
namespace {

using Json = nlohmann::ordered_json;

// Bytes of a list in one metadata text. Even escaped, it stays below the header's limit.
constexpr std::size_t kPiece = std::size_t{1} << 18;

Json call_json(const AttentionOptions& options, const AttentionReport& report) {
  Json call = {{"causal", options.causal},
               {"align", options.align == Align::bottom_right ? "bottom-right" : "top-left"},
               {"window", {options.window.left, options.window.right}},
               {"softcap", options.softcap},
               {"kernel", report.kernel},
               {"isa", report.isa},
               {"value_dim", report.value_dim},
               {"options", report.options}};
  if (!options.score_mod.is_empty()) {
    const std::string text(options.score_mod.part()->text());
    if (text.empty())
      refuse("score_mod is a compiled function, which cannot be saved; an expression is expected");
    call["score_mod"] = text;
  }
  if (options.scale) call["scale"] = *options.scale;
  if (options.query_offset) call["query_offset"] = *options.query_offset;
  return call;
}

void put_list(std::map<std::string, std::string>& metadata, const std::string& name, const Json& list) {
  std::size_t piece = 1;
  std::string* text = &(metadata[name] = "[");
  for (const Json& one : list) {
    const std::string item = one.dump(-1, ' ', true);  // escaped to ASCII
    if (text->size() > 1 && text->size() + item.size() > kPiece) {
      *text += ']';
      text = &(metadata[piece_name(name, ++piece)] = "[");
    }
    if (text->size() > 1) *text += ',';
    *text += item;
  }
  *text += ']';
}

// JSON has no NaN; null replaces it.
Json summary_json(const HeadSummary& summary) {
  Json json = {{"rows", summary.rows}, {"nan_rows", summary.nan_rows}, {"choices", summary.choices}};
  for (const SummaryField& field : kSummaryFields) json[field.name] = summary.*field.value;
  json["patterns"] = Json::array();
  for (const PatternScore& score : summary.patterns)
    json["patterns"].push_back(
        {score.rows, score.all.part, score.all.whole, score.rest.part, score.rest.whole, score.offset});
  json["most_received"] = summary.most_received;
  json["most_received_weight"] = summary.most_received_weight;
  return json;
}

Json layers_json(const AttentionReport& report) {
  Json layers = Json::array();
  for (const LayerHeads& layer : report.layers) layers.push_back({layer.name, layer.heads});
  return layers;
}

// The page of a longer call draws the map. The page of a shorter call has every weight, and its map only
// saves --map a pass. At least 16 weights per bin keep that map much smaller than the matrix.
Tensor saved_map(const AttentionReport& report) {
  constexpr std::int64_t kLeastWeights = 16;
  const Tensor& map = report.map.front();
  MapSize size{map.size(2), map.size(3)};
  if (report.queries <= kFullWeightsCells / report.keys)
    for (std::int64_t bins = 1024;
         bins > 1 && size.rows * size.columns > report.queries * report.keys / kLeastWeights; bins /= 2)
      size = {std::min(size.rows, bins / 2), std::min(size.columns, bins / 2)};
  return Tensor::copy_of(map_in_bins(map, size), report.lse.dtype());
}

}  // namespace
}  // namespace detail

void save_document(const std::string& path, const Document& document) {
  using namespace detail;
  require_report(document);
  const AttentionReport& report = document.report;
  std::vector<std::pair<std::string, TensorView>> tensors = {{"query", document.query},
                                                             {"key", document.key}};
  for (const OptionTensor& option : kOptionTensors)
    if (const auto& view = document.options.*option.view) tensors.emplace_back(option.name, *view);
  SavedMask mask;
  if (!document.options.sparse_mask.is_empty()) {
    mask = saved_mask(document.options.sparse_mask);
    tensors.emplace_back(kMaskFirst, mask.first);
    tensors.emplace_back(kMaskKeys, mask.keys);
  }
  std::vector<std::pair<std::string, Tensor>> arrays;
  if (!document.options.score_mod.is_empty()) arrays = document.options.score_mod.part()->arrays();
  for (const auto& [name, array] : arrays) tensors.emplace_back(kScoreArray + name, array);
  for (const SavedTensor& saved : kSavedTensors)
    if ((report.*saved.tensor).rank() > 1) tensors.emplace_back(saved.name, report.*saved.tensor);
  tensors.emplace_back("top_k_index", report.top_k_index);
  tensors.emplace_back("top_k_weight", report.top_k_weight);
  const auto put_ids = [&](const char* name, const std::vector<std::int64_t>& ids) {
    if (!ids.empty()) tensors.emplace_back(name, TensorView(ids.data(), {std::ssize(ids)}));
  };
  put_ids(kTokenIds, report.query_token_ids);
  put_ids(kKeyTokenIds, report.key_token_ids);
  Tensor map;
  if (!report.map.empty()) tensors.emplace_back("map", map = saved_map(report));

  Json summaries = Json::array();
  for (const HeadSummary& summary : report.summaries) summaries.push_back(summary_json(summary));
  std::map<std::string, std::string> metadata = {
      {"format", kLookFormat}, {"call", call_json(document.options, report).dump(-1, ' ', true)}};
  put_list(metadata, "tokens", report.query_tokens);
  put_list(metadata, "key_tokens", report.key_tokens);
  put_list(metadata, "summaries", summaries);
  if (!report.layers.empty()) put_list(metadata, "layers", layers_json(report));
  io::write_safetensors(path, tensors, metadata);
}

}  // namespace heed
