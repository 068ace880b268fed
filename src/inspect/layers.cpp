// Reports of several layers joined along the head axis, and names of their heads.
#include <algorithm>
#include <array>
#include <vector>

#include "core/message.hpp"
#include "core/tensor/concatenate.hpp"
#include "heed/inspect/reports.hpp"

namespace heed {
namespace {

using Layers = std::vector<std::pair<std::string, AttentionReport>>;

constexpr std::array<Tensor AttentionReport::*, 13> kOfHeads = {
    &AttentionReport::lse,         &AttentionReport::max_score,  &AttentionReport::entropy,
    &AttentionReport::distance,    &AttentionReport::max_weight, &AttentionReport::first,
    &AttentionReport::self,        &AttentionReport::previous,   &AttentionReport::next,
    &AttentionReport::induction,   &AttentionReport::received,   &AttentionReport::top_k_index,
    &AttentionReport::top_k_weight};

void check_alike(const Layers& layers) {
  if (layers.empty()) detail::refuse("layers is empty; at least one report is expected");
  const AttentionReport& first = layers.front().second;
  for (const auto& layer : layers) {
    const std::string& name = layer.first;
    const AttentionReport& report = layer.second;
    const auto same = [&](const char* what, std::int64_t found, std::int64_t expected) {
      if (found != expected)
        detail::refuse("layer '", name, "' has ", found, " ", what, "; ", expected,
                       " are expected, as layer '", layers.front().first, "' has");
    };
    same("batch entries", report.batch, first.batch);
    same("queries", report.queries, first.queries);
    same("keys", report.keys, first.keys);
    if (report.heads < 1) detail::refuse("layer '", name, "' has no heads");
    if (report.query_tokens != first.query_tokens || report.key_tokens != first.key_tokens ||
        report.query_token_ids != first.query_token_ids || report.key_token_ids != first.key_token_ids)
      detail::refuse("layer '", name, "' has other tokens than layer '", layers.front().first, "'");
  }
}

// Concatenates along the head axis; empty if a layer lacks the tensor, or if dtypes or other axes differ.
template <class Part>
Tensor joined(const Layers& layers, Part part) {
  const Tensor& first = part(layers.front().second);
  std::vector<TensorView> parts;
  for (const auto& [name, report] : layers) {
    const Tensor& one = part(report);
    if (one.rank() < 3 || one.dtype() != first.dtype() || one.rank() != first.rank()) return {};
    for (int axis = 2; axis < one.rank(); ++axis)
      if (one.size(axis) != first.size(axis)) return {};
    parts.push_back(one);
  }
  return detail::concatenated(parts, 1);
}

void join_places(const Layers& layers, AttentionReport& whole) {
  whole.position = layers.front().second.position;
  whole.key_begin = layers.front().second.key_begin;
  whole.key_end = layers.front().second.key_end;
  const auto begin = whole.key_begin.values<std::int64_t>();
  const auto end = whole.key_end.values<std::int64_t>();
  for (const auto& [name, report] : layers)
    for (std::size_t i = 0; i < begin.size(); ++i) {
      begin[i] = std::min(begin[i], report.key_begin.values<std::int64_t>()[i]);
      end[i] = std::max(end[i], report.key_end.values<std::int64_t>()[i]);
    }
}

void join_options(const Layers& layers, AttentionReport& whole) {
  for (const auto& [name, report] : layers)
    for (const auto& option : report.options) {
      const auto has = [&](const AttentionReport& other) {
        return std::ranges::find(other.options, option) != other.options.end();
      };
      const bool shared = std::ranges::all_of(layers, [&](const auto& layer) { return has(layer.second); });
      const auto said =
          std::ranges::find_if(whole.options, [&](const auto& one) { return one.first == option.first; });
      if (said == whole.options.end())
        whole.options.emplace_back(option.first, shared ? option.second : "differs by layer");
    }
}

void join_maps(const Layers& layers, AttentionReport& whole) {
  std::size_t levels = layers.front().second.map.size();
  for (const auto& [name, report] : layers) levels = std::min(levels, report.map.size());
  for (std::size_t level = 0; level < levels; ++level) {
    Tensor map =
        joined(layers, [&](const AttentionReport& report) -> const Tensor& { return report.map[level]; });
    if (map.rank() == 4) whole.map.push_back(std::move(map));
  }
}

void join_weights(const Layers& layers, AttentionReport& whole) {
  whole.weights.range = layers.front().second.weights.range;
  whole.weights.weights =
      joined(layers, [](const AttentionReport& report) -> const Tensor& { return report.weights.weights; });
  whole.weights.allowed =
      joined(layers, [](const AttentionReport& report) -> const Tensor& { return report.weights.allowed; });
}

// Orders summaries by batch entry, then head.
void join_summaries(const Layers& layers, AttentionReport& whole) {
  for (std::int64_t batch = 0; batch < whole.batch; ++batch) {
    std::int64_t before = 0;
    for (const auto& [name, report] : layers) {
      for (HeadSummary summary : report.summaries) {
        if (summary.batch != batch) continue;
        summary.head += before;
        whole.summaries.push_back(std::move(summary));
      }
      before += report.heads;
    }
  }
}

}  // namespace

HeadPlace place_of(const AttentionReport& report, std::int64_t head) noexcept {
  for (std::size_t layer = 0; layer < report.layers.size(); ++layer) {
    if (head < report.layers[layer].heads) return {static_cast<std::int64_t>(layer), head};
    head -= report.layers[layer].heads;
  }
  return {-1, head};
}

std::string name_of_head(const AttentionReport& report, std::int64_t head) {
  const HeadPlace place = place_of(report, head);
  const std::string text = "head " + std::to_string(place.head);
  if (place.layer < 0) return text;
  const std::string& name = report.layers[static_cast<std::size_t>(place.layer)].name;
  const bool is_number = name.find_first_not_of("0123456789") == std::string::npos;
  return (is_number ? "layer " : "") + name + ", " + text;
}

AttentionReport join_layers(Layers layers) {
  check_alike(layers);
  const AttentionReport& first = layers.front().second;
  AttentionReport whole;
  whole.batch = first.batch;
  whole.queries = first.queries;
  whole.keys = first.keys;
  whole.head_dim = first.head_dim;
  whole.value_dim = first.value_dim;
  whole.dtype = first.dtype;
  whole.kernel = first.kernel;
  whole.isa = first.isa;
  whole.query_tokens = first.query_tokens;
  whole.key_tokens = first.key_tokens;
  whole.query_token_ids = first.query_token_ids;
  whole.key_token_ids = first.key_token_ids;
  for (const auto& [name, report] : layers) {
    whole.layers.push_back({name, report.heads});
    whole.heads += report.heads;
    whole.kv_heads += report.kv_heads;
  }
  for (const auto member : kOfHeads)
    whole.*member =
        joined(layers, [&](const AttentionReport& report) -> const Tensor& { return report.*member; });
  join_places(layers, whole);
  join_options(layers, whole);
  join_maps(layers, whole);
  join_weights(layers, whole);
  join_summaries(layers, whole);
  return whole;
}

}  // namespace heed
