#include "heed/model/circuit.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "core/message.hpp"
#include "heed/attention/attention.hpp"
#include "model/cause/circuit_reads.hpp"
#include "model/cause/circuit_state.hpp"

namespace heed::detail {
namespace {

// The vector that an edge's writer wrote.
const std::vector<double>& written(CircuitState& state, const CircuitEdge& edge, std::int64_t layer) {
  const StreamParts& stream = state.parts_at(edge.place, layer);
  const auto at = std::ranges::find_if(stream.parts, [&](const StreamPart& part) {
    return part.kind == edge.writer.kind && part.layer == edge.writer.layer && part.head == edge.writer.head;
  });
  return stream.added[static_cast<std::size_t>(at - stream.parts.begin())];
}

void take_away(const std::vector<double>& part, const MutableTensorView& row) {
  float* to = row.data_as<float>();
  for (std::size_t i = 0; i < part.size(); ++i)
    to[i] = static_cast<float>(static_cast<double>(to[i]) - part[i]);
}

// Recomputes the reader's output at its row without the writer's part.
void attend_without(CircuitState& state, const CircuitEdge& edge, Tensor& output) {
  const std::int64_t layer = edge.reader.layer, head = edge.reader.head;
  const std::int64_t kv_head = head / (state.info().heads / state.info().kv_heads);
  const LayerState& own = state.layer(layer);
  Tensor stream = Tensor::copy_of(own.stream);
  take_away(written(state, edge, layer), stream.mutable_view().narrow(0, edge.place, 1));
  const Projected without = state.family().project(layer, stream, 0, state.threads());
  const auto row_or = [&](EdgeInto into, const TensorView& changed, const TensorView& unchanged) {
    return edge.into == into ? changed : unchanged;
  };
  const auto of_head = [](const TensorView& heads, std::int64_t h) { return heads.narrow(0, h, 1); };
  Tensor query = Tensor::copy_of(
      of_head(row_or(EdgeInto::query, without.query, own.made.query), head).narrow(1, edge.reader_row, 1));
  Tensor key = Tensor::copy_of(of_head(row_or(EdgeInto::key, without.key, own.made.key), kv_head));
  Tensor value = Tensor::copy_of(of_head(row_or(EdgeInto::value, without.value, own.made.value), kv_head));
  AttentionOptions options = own.made.options;
  options.query_offset = edge.reader_row;
  if (options.sinks) options.sinks = options.sinks->narrow(0, head, 1);
  copy(attention(query, key, value, options).output,
       output.mutable_view().narrow(0, head, 1).narrow(1, edge.reader_row, 1));
}

// The hidden state [1, D] at `row`, behind the last norm, if the edge's reader alone, at its row, computes
// without the writer's part.
Tensor hidden_without(CircuitState& state, const CircuitEdge& edge, std::int64_t row) {
  if (edge.into == EdgeInto::logit) {
    const std::int64_t layers = state.info().layers;
    Tensor stream = state.stream_at(edge.place, layers);
    take_away(written(state, edge, layers), stream);
    return state.family().last_norm(stream, state.threads());
  }
  ModelHooks hooks;
  hooks.attend = [&](const LayerCall& call) {
    Tensor output = attention(call.query, call.key, call.value, call.options).output;
    if (call.layer == edge.reader.layer) attend_without(state, edge, output);
    return output;
  };
  const Tensor hidden = state.model().hidden_states(state.tokens(), hooks, state.threads());
  return Tensor::copy_of(hidden.view().narrow(0, row, 1));
}

}  // namespace
}  // namespace heed::detail

namespace heed {
namespace {

using detail::CircuitNode;
using detail::CircuitRead;
using detail::Direction;

constexpr std::int64_t kMaxEdges = 1000;
constexpr double kFirstThreshold = 0.02;  // of the largest share in the logit
constexpr double kStep = 1.25;            // the threshold grows so until the edges are few enough

class Search {
 public:
  Search(const Model& model, const TensorView& tokens, const CircuitOptions& options)
      : options_(options),
        state_(model, tokens, options.threads),
        target_(detail::find_target(state_, {options.row, options.token, options.than})) {}

  Circuit run() {
    circuit_.row = target_.row;
    circuit_.token = target_.token;
    circuit_.than = options_.than;
    circuit_.logit = target_.logit;
    double largest = 0;
    for (const CircuitRead& one : into_logit()) largest = std::max(largest, std::abs(one.edge.share));
    if (!(largest > 0) || !std::isfinite(largest)) return std::move(circuit_);
    for (double threshold = kFirstThreshold * largest; !follow(threshold);) threshold *= kStep;
    for (auto* edges : {&circuit_.edges, &circuit_.denied})
      for (CircuitEdge& edge : *edges) complete(edge);
    return std::move(circuit_);
  }

 private:
  std::vector<CircuitRead> into_logit() {
    return detail::reads_of_logit(state_, circuit_.row, target_.direction.stream);
  }

  // All edges whose share reaches the threshold, from the logit backwards. Where patching finds less than
  // half of the threshold, the edge is denied and not followed. Returns whether the edges are few enough.
  bool follow(double threshold) {
    std::map<CircuitNode, Direction> open;
    circuit_.threshold = threshold;
    circuit_.edges.clear();
    circuit_.denied.clear();
    const auto take = [&](std::vector<CircuitRead> candidates) {
      std::erase_if(candidates,
                    [&](const CircuitRead& one) { return !(std::abs(one.edge.share) >= threshold); });
      std::ranges::stable_sort(candidates, [](const CircuitRead& a, const CircuitRead& b) {
        return std::abs(a.edge.share) > std::abs(b.edge.share);
      });
      for (CircuitRead& one : candidates) {
        one.edge.patched = patched(one.edge);
        const bool denied = std::abs(one.edge.patched) < threshold / 2;  // false for NaN
        (denied ? circuit_.denied : circuit_.edges).push_back(one.edge);
        if (std::ssize(circuit_.edges) > options_.edges) return false;
        if (denied || one.edge.writer.kind != StreamPart::Kind::head) continue;
        Direction& sum = open[{{one.edge.writer.layer, one.edge.writer.head}, one.edge.place}];
        sum.resize(one.direction.size());
        std::ranges::transform(sum, one.direction, sum.begin(), std::plus<>());
      }
      return true;
    };
    if (!take(into_logit())) return false;
    while (!open.empty()) {
      auto node = open.extract(open.begin());
      if (!take(detail::reads_of_head(state_, node.key(), node.mapped()))) return false;
    }
    return true;
  }

  double patched(const CircuitEdge& edge) {
    if (!options_.patch) return std::numeric_limits<double>::quiet_NaN();
    const auto key = std::tuple(edge.into, edge.place, edge.reader.layer, edge.reader.head, edge.reader_row,
                                edge.writer.kind, edge.writer.layer, edge.writer.head);
    const auto [at, is_new] = patched_.try_emplace(key);
    if (is_new)
      at->second = circuit_.logit - target_.logit_of(detail::hidden_without(state_, edge, circuit_.row));
    return at->second;
  }

  // Adds what the writer read most.
  void complete(CircuitEdge& edge) {
    if (edge.writer.kind != StreamPart::Kind::head) return;
    const detail::RowAttention look =
        detail::attend_row(state_.layer(edge.writer.layer).call(edge.writer.layer), edge.place, false);
    edge.writer.from = look.heaviest.at<std::int64_t>(edge.writer.head, 0, 0);
    if (edge.writer.from >= 0)
      edge.writer.from_weight = look.heaviest_weight.at<float>(edge.writer.head, 0, 0);
  }

  const CircuitOptions& options_;
  detail::CircuitState state_;
  detail::CircuitTarget target_;
  Circuit circuit_;
  std::map<std::tuple<EdgeInto, std::int64_t, std::int64_t, std::int64_t, std::int64_t, StreamPart::Kind,
                      std::int64_t, std::int64_t>,
           double>
      patched_;
};

void check(const CircuitOptions& options) { detail::check_range("edges", options.edges, 1, kMaxEdges); }

}  // namespace

std::string_view name_of(EdgeInto into) {
  constexpr std::string_view kNames[] = {"logit", "value", "key", "query"};
  detail::check_listed("into", into, EdgeInto::query);
  return kNames[static_cast<std::size_t>(into)];
}

Circuit find_circuit(const Model& model, const TensorView& tokens, const CircuitOptions& options) {
  check(options);
  detail::check_target(model, {options.row, options.token, options.than});
  return Search(model, tokens, options).run();
}

}  // namespace heed
