#include "heed/model/circuit.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/message.hpp"
#include "heed/parallel.hpp"
#include "model/cause/directions.hpp"
#include "model/cause/stream_parts.hpp"
#include "model/parts.hpp"
#include "model/predictions.hpp"

namespace heed {
namespace {

using detail::Direction;
using detail::InputKind;
using detail::RowAttention;
using detail::RowTrace;
using detail::StreamParts;

constexpr std::int64_t kMostBytes = std::int64_t{2} << 30;  // of the streams and heads at all positions
constexpr std::int64_t kMaxEdges = 1000;
constexpr std::size_t kPlaces = 8;        // keys whose values, and keys whose keys, are followed
constexpr double kFirstThreshold = 0.02;  // of the largest share in the logit
constexpr double kStep = 1.25;            // the threshold grows so until the edges are few enough

// A head at a row; later layers come first in a map.
struct Node {
  ModelHead head{};
  std::int64_t row = 0;
  friend bool operator<(const Node& a, const Node& b) {
    return std::tuple(-a.head.layer, a.head.head, a.row) < std::tuple(-b.head.layer, b.head.head, b.row);
  }
};

// An edge and the direction of the stream where its writer wrote.
struct Candidate {
  CircuitEdge edge;
  Direction direction;
};

// A layer's projections of all rows.
struct LayerState {
  detail::Projected made;
  Tensor stream;  // [L, D]
  [[nodiscard]] LayerCall call(std::int64_t layer) const {
    return {layer, made.query, made.key, made.value, made.options, nullptr};
  }
};

Direction row_of_head(const TensorView& heads, std::int64_t head, std::int64_t row) {
  const Tensor copy = Tensor::copy_of(heads.select(0, head).narrow(0, row, 1));
  const auto values = copy.values<float>();
  return {values.begin(), values.end()};
}

// The indices of the largest sizes.
std::vector<std::int64_t> largest_places(const std::vector<double>& values) {
  std::vector<double> sizes(values.size());
  std::transform(values.begin(), values.end(), sizes.begin(), [](double x) { return std::abs(x); });
  return detail::largest_of(sizes, static_cast<std::int64_t>(std::min(kPlaces, sizes.size())));
}

class Search {
 public:
  Search(const Model& model, const TensorView& tokens, const CircuitOptions& options)
      : model_(model),
        family_(*model.parts().family),
        info_(model.info()),
        options_(options),
        tokens_(tokens),
        ids_(detail::ids_of(tokens)),
        length_(static_cast<std::int64_t>(ids_.size())),
        threads_(options.threads == 0 ? default_threads() : options.threads) {}

  Circuit run() {
    trace();
    find_target();
    double largest = 0;
    for (const Candidate& one : into_logit()) largest = std::max(largest, std::abs(one.edge.share));
    for (double threshold = kFirstThreshold * largest; !follow(threshold);) threshold *= kStep;
    for (auto* edges : {&circuit_.edges, &circuit_.denied})
      for (CircuitEdge& edge : *edges) complete(edge);
    return std::move(circuit_);
  }

 private:
  void trace() {
    const std::int64_t numbers =
        (info_.layers + 1) * info_.model_dim + info_.layers * info_.heads * info_.head_dim;
    const std::int64_t most = kMostBytes / (4 * numbers);
    if (length_ > most)
      detail::refuse("tokens has length ", length_, "; at most ", most,
                     ", whose streams take 2 GiB, is expected");
    std::vector<std::int64_t> rows(ids_.size());
    std::iota(rows.begin(), rows.end(), std::int64_t{0});
    traces_ = detail::trace_rows(model_, tokens_, rows, {}, threads_);
  }

  void find_target() {
    CauseOptions cause;
    cause.row = options_.row;
    cause.token = options_.token;
    cause.threads = threads_;
    circuit_.row = detail::checked_row(cause, tokens_);
    const RowTrace& last = traces_[static_cast<std::size_t>(circuit_.row)];
    circuit_.token =
        options_.token ? *options_.token : detail::likeliest_token(model_, last.hidden, threads_);
    circuit_.than = options_.than;
    const auto row = row_at(last.streams, info_.layers);
    target_ = detail::logit_direction(model_, row.values<float>(), circuit_.token);
    if (options_.than) {
      const detail::LogitDirection less =
          detail::logit_direction(model_, row.values<float>(), *options_.than);
      for (std::size_t i = 0; i < target_.stream.size(); ++i) {
        target_.stream[i] -= less.stream[i];
        target_.hidden[i] -= less.hidden[i];
      }
      target_.bias -= less.bias;
    }
    circuit_.logit = logit_of(last.hidden);
  }

  [[nodiscard]] double logit_of(const Tensor& hidden) const {
    return detail::dot<float>(target_.hidden, hidden.values<float>()) + target_.bias;
  }

  static Tensor row_at(const Tensor& matrix, std::int64_t row) {
    return Tensor::copy_of(matrix.view().narrow(0, row, 1));
  }

  // The parts of the stream at a position before a layer.
  const StreamParts& parts_at(std::int64_t place, std::int64_t layer) {
    const auto [at, is_new] = parts_.try_emplace({place, layer});
    if (is_new)
      at->second = detail::parts_of_stream(model_, traces_[static_cast<std::size_t>(place)], ids_, place,
                                           layer, threads_);
    return at->second;
  }

  const LayerState& layer_state(std::int64_t layer) {
    const auto [at, is_new] = layers_.try_emplace(layer);
    if (!is_new) return at->second;
    Tensor stream = Tensor::uninitialized({length_, info_.model_dim}, DType::f32);
    for (std::int64_t i = 0; i < length_; ++i)
      copy(traces_[static_cast<std::size_t>(i)].streams.view().select(0, layer),
           stream.mutable_view().select(0, i));
    at->second = {family_.project(layer, stream, 0, threads_), std::move(stream)};
    at->second.made.options.threads = threads_;
    return at->second;
  }

  // Adds the edge of each part that reads at least `threshold`.
  void add_candidates(CircuitEdge edge, std::int64_t layer, const Direction& direction,
                      std::vector<Candidate>& found) {
    const StreamParts& stream = parts_at(edge.place, layer);
    for (std::size_t i = 0; i < stream.parts.size(); ++i) {
      edge.writer = stream.parts[i];
      edge.share = detail::dot<double>(direction, stream.added[i]);
      found.push_back({edge, direction});
    }
  }

  std::vector<Candidate> into_logit() {
    std::vector<Candidate> found;
    add_candidates({{}, circuit_.row, EdgeInto::logit, {}, circuit_.row}, info_.layers, target_.stream,
                   found);
    return found;
  }

  // The direction of a head's output, for a direction of the stream behind its layer.
  Direction behind_head(const Node& node, Direction direction) {
    const RowTrace& trace = traces_[static_cast<std::size_t>(node.row)];
    const detail::LinearWeights& output = family_.output_projection(node.head.layer);
    const Tensor added = linear(row_at(trace.heads, node.head.layer), output, threads_);
    if (const auto norm = family_.norm_behind_attention(node.head.layer, added.values<float>()))
      direction = detail::through(*norm, direction);
    const Direction all = detail::through(output, direction);
    return {all.begin() + node.head.head * info_.head_dim,
            all.begin() + (node.head.head + 1) * info_.head_dim};
  }

  // A head at a row: its weights, and the worth of each key's value along a direction of its output.
  struct Reader {
    Node node;
    const LayerState& state;
    Direction out;                   // of its output
    Direction query;                 // the row's
    std::vector<std::int64_t> keys;  // with weights above 0
    std::vector<double> weights, scores, worths;
    double scale = 1, cap = 0, mean = 0;
    std::int64_t kv_head = 0;
  };

  Reader reader_at(const Node& node, const Direction& direction) {
    const LayerState& state = layer_state(node.head.layer);
    const RowAttention attention = detail::attend_row(state.call(node.head.layer), node.row, true);
    const AttentionOptions& options = state.made.options;
    Reader made{node,
                state,
                behind_head(node, direction),
                row_of_head(state.made.query, node.head.head, node.row),
                {},
                {},
                {},
                {}};
    made.scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(info_.head_dim)));
    made.cap = options.softcap;
    made.kv_head = node.head.head / (info_.heads / info_.kv_heads);
    for (std::int64_t key = 0; key < length_; ++key) {
      const double weight = attention.weights.at<float>(node.head.head, 0, key);
      if (weight == 0) continue;
      made.keys.push_back(key);
      made.weights.push_back(weight);
      made.scores.push_back(attention.scores.at<float>(node.head.head, 0, key));
      made.worths.push_back(detail::dot<double>(made.out, row_of_head(state.made.value, made.kv_head, key)));
      made.mean += weight * made.worths.back();
    }
    return made;
  }

  // How much less the head writes along its direction if scores (before a softcap) fall by `less`.
  static double fall(const Reader& reader, const std::vector<double>& less) {
    double sum = 1, mean = reader.mean;  // with the weights as they are, and what a sink takes
    for (std::size_t i = 0; i < less.size(); ++i) {
      if (less[i] == 0) continue;
      const double cap = reader.cap, score = reader.scores[i];
      const double before = cap > 0 ? cap * std::atanh(score / cap) : score;
      const double after = cap > 0 ? cap * std::tanh((before - less[i]) / cap) : before - less[i];
      const double growth = reader.weights[i] * std::expm1(std::min(after - score, 500.0));
      sum += growth;
      mean += growth * reader.worths[i];
    }
    return reader.mean - mean / sum;
  }

  // The direction of the stream at a position, for a direction of one of the reader's inputs.
  Direction behind_input(const Reader& reader, InputKind kind, std::int64_t place,
                         const Direction& of_input) {
    const std::int64_t head = kind == InputKind::query ? reader.node.head.head : reader.kv_head;
    const std::int64_t layer = reader.node.head.layer;
    const Tensor row = row_at(traces_[static_cast<std::size_t>(place)].streams, layer);
    return detail::through(family_.head_input(layer, kind, head, row), of_input, place, length_);
  }

  static CircuitEdge edge_into(const Reader& reader, EdgeInto into, std::int64_t place) {
    return {{}, place, into, reader.node.head, reader.node.row};
  }

  // The values of the keys that are worth most.
  void read_values(const Reader& reader, std::vector<Candidate>& found) {
    std::vector<double> shares(reader.keys.size());
    for (std::size_t i = 0; i < shares.size(); ++i) shares[i] = reader.weights[i] * reader.worths[i];
    for (const std::int64_t i : largest_places(shares)) {
      const auto at = static_cast<std::size_t>(i);
      Direction value = reader.out;
      for (double& one : value) one *= reader.weights[at];
      add_candidates(edge_into(reader, EdgeInto::value, reader.keys[at]), reader.node.head.layer,
                     behind_input(reader, InputKind::value, reader.keys[at], value), found);
    }
  }

  // The keys whose loss would move the head most.
  void read_keys(const Reader& reader, std::vector<Candidate>& found) {
    const std::size_t count = reader.keys.size();
    std::vector<double> effects(count);
    for (std::size_t i = 0; i < count; ++i)
      effects[i] = reader.weights[i] * (reader.worths[i] - reader.mean) / (1 - reader.weights[i] + 1e-9);
    const auto layer = reader.node.head.layer;
    for (const std::int64_t i : largest_places(effects)) {
      const auto at = static_cast<std::size_t>(i);
      const std::int64_t place = reader.keys[at];
      Direction of_key = reader.query;
      for (double& one : of_key) one *= reader.scale;
      const Direction direction = behind_input(reader, InputKind::key, place, of_key);
      std::vector<double> less(count);
      add_scored(edge_into(reader, EdgeInto::key, place), layer, direction, found, [&](std::size_t part) {
        less[at] = detail::dot<double>(direction, parts_at(place, layer).added[part]);
        return std::pair(less[at], fall(reader, less));
      });
    }
  }

  void read_query(const Reader& reader, std::vector<Candidate>& found) {
    const std::size_t count = reader.keys.size();
    const std::int64_t row = reader.node.row, layer = reader.node.head.layer;
    Direction of_query(reader.query.size());  // the derivative
    std::vector<Direction> keys;
    for (std::size_t i = 0; i < count; ++i) {
      keys.push_back(row_of_head(reader.state.made.key, reader.kv_head, reader.keys[i]));
      const double bend = reader.cap > 0 ? 1 - std::pow(reader.scores[i] / reader.cap, 2) : 1;
      const double slope = reader.scale * bend * reader.weights[i] * (reader.worths[i] - reader.mean);
      for (std::size_t d = 0; d < of_query.size(); ++d) of_query[d] += slope * keys.back()[d];
    }
    const Direction direction = behind_input(reader, InputKind::query, row, of_query);
    const StreamParts& stream = parts_at(row, layer);
    const Tensor parts = detail::project_parts(model_, stream, traces_[static_cast<std::size_t>(row)],
                                               reader.node.head, InputKind::query, row, length_, threads_);
    const auto queries = parts.values<double>();
    std::vector<double> less(count);
    add_scored(edge_into(reader, EdgeInto::query, row), layer, direction, found, [&](std::size_t part) {
      for (std::size_t i = 0; i < count; ++i)
        less[i] = reader.scale *
                  detail::dot<double>(keys[i], queries.subspan(part * keys[i].size(), keys[i].size()));
      return std::pair(detail::dot<double>(direction, stream.added[part]), fall(reader, less));
    });
  }

  // Adds the parts of a query or key. of_part(index) returns the share along the direction, and the share:
  // what the head loses without the part. The direction is scaled so that it gives the latter.
  void add_scored(CircuitEdge edge, std::int64_t layer, const Direction& direction,
                  std::vector<Candidate>& found,
                  const std::function<std::pair<double, double>(std::size_t)>& of_part) {
    const StreamParts& stream = parts_at(edge.place, layer);
    for (std::size_t i = 0; i < stream.parts.size(); ++i) {
      const auto [along, share] = of_part(i);
      edge.writer = stream.parts[i];
      edge.share = share;
      Direction scaled = direction;
      for (double& one : scaled) one *= along == 0 ? 0 : share / along;
      found.push_back({edge, std::move(scaled)});
    }
  }

  std::vector<Candidate> reads_of(const Node& node, const Direction& direction) {
    const Reader reader = reader_at(node, direction);
    std::vector<Candidate> found;
    read_values(reader, found);
    read_keys(reader, found);
    read_query(reader, found);
    return found;
  }

  // All edges whose share reaches the threshold, from the logit backwards. Where patching finds less than
  // half of the threshold, the edge is denied and not followed. Returns whether the edges are few enough.
  bool follow(double threshold) {
    std::map<Node, Direction> open;
    circuit_.edges.clear();
    circuit_.denied.clear();
    const auto take = [&](std::vector<Candidate> candidates) {
      std::erase_if(candidates,
                    [&](const Candidate& one) { return !(std::abs(one.edge.share) >= threshold); });
      std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
        return std::abs(a.edge.share) > std::abs(b.edge.share);
      });
      for (Candidate& one : candidates) {
        one.edge.patched = patched(one.edge);
        const bool denied = std::abs(one.edge.patched) < threshold / 2;  // false for NaN
        (denied ? circuit_.denied : circuit_.edges).push_back(one.edge);
        if (std::ssize(circuit_.edges) > options_.edges) return false;
        if (denied || one.edge.writer.kind != StreamPart::Kind::head) continue;
        Direction& sum = open[{{one.edge.writer.layer, one.edge.writer.head}, one.edge.place}];
        sum.resize(one.direction.size());
        std::transform(sum.begin(), sum.end(), one.direction.begin(), sum.begin(), std::plus<>());
      }
      return true;
    };
    if (!take(into_logit())) return false;
    while (!open.empty()) {
      auto node = open.extract(open.begin());
      if (!take(reads_of(node.key(), node.mapped()))) return false;
    }
    return true;
  }

  double patched(const CircuitEdge& edge) {
    if (!options_.patch) return std::numeric_limits<double>::quiet_NaN();
    const auto key = std::tuple(edge.into, edge.place, edge.reader.layer, edge.reader.head, edge.reader_row,
                                edge.writer.kind, edge.writer.layer, edge.writer.head);
    const auto [at, is_new] = patched_.try_emplace(key);
    if (is_new) at->second = circuit_.logit - logit_without(edge);
    return at->second;
  }

  // Adds what the writer read most.
  void complete(CircuitEdge& edge) {
    if (edge.writer.kind != StreamPart::Kind::head) return;
    const RowAttention look =
        detail::attend_row(layer_state(edge.writer.layer).call(edge.writer.layer), edge.place, false);
    edge.writer.from = look.heaviest.at<std::int64_t>(edge.writer.head, 0, 0);
    if (edge.writer.from >= 0)
      edge.writer.from_weight = look.heaviest_weight.at<float>(edge.writer.head, 0, 0);
  }

  // The vector that an edge's writer wrote.
  const Direction& written(const CircuitEdge& edge, std::int64_t layer) {
    const StreamParts& stream = parts_at(edge.place, layer);
    const auto at = std::find_if(stream.parts.begin(), stream.parts.end(), [&](const StreamPart& part) {
      return part.kind == edge.writer.kind && part.layer == edge.writer.layer &&
             part.head == edge.writer.head;
    });
    return stream.added[static_cast<std::size_t>(at - stream.parts.begin())];
  }

  static void take_away(const Direction& part, const MutableTensorView& row) {
    float* to = row.data_as<float>();
    for (std::size_t i = 0; i < part.size(); ++i)
      to[i] = static_cast<float>(static_cast<double>(to[i]) - part[i]);
  }

  double logit_without(const CircuitEdge& edge) {
    if (edge.into == EdgeInto::logit) {
      Tensor row = row_at(traces_[static_cast<std::size_t>(edge.place)].streams, info_.layers);
      take_away(written(edge, info_.layers), row);
      return logit_of(family_.last_norm(row, threads_));
    }
    ModelHooks hooks;
    hooks.attend = [&](const LayerCall& call) {
      Tensor output = attention(call.query, call.key, call.value, call.options).output;
      if (call.layer == edge.reader.layer) attend_without(edge, output);
      return output;
    };
    const Tensor hidden = model_.hidden_states(tokens_, hooks, threads_);
    return logit_of(row_at(hidden, circuit_.row));
  }

  // Replaces the reader's output at its row by what it computes without the writer's part.
  void attend_without(const CircuitEdge& edge, Tensor& output) {
    const std::int64_t layer = edge.reader.layer, head = edge.reader.head;
    const std::int64_t kv_head = head / (info_.heads / info_.kv_heads);
    const LayerState& state = layer_state(layer);
    Tensor stream = Tensor::copy_of(state.stream);
    take_away(written(edge, layer), stream.mutable_view().narrow(0, edge.place, 1));
    const detail::Projected without = family_.project(layer, stream, 0, threads_);
    const auto row_or = [&](EdgeInto into, const TensorView& changed, const TensorView& own) {
      return edge.into == into ? changed : own;
    };
    const auto of_head = [](const TensorView& heads, std::int64_t h) { return heads.narrow(0, h, 1); };
    Tensor query = Tensor::copy_of(of_head(row_or(EdgeInto::query, without.query, state.made.query), head)
                                       .narrow(1, edge.reader_row, 1));
    Tensor key = Tensor::copy_of(of_head(row_or(EdgeInto::key, without.key, state.made.key), kv_head));
    Tensor value =
        Tensor::copy_of(of_head(row_or(EdgeInto::value, without.value, state.made.value), kv_head));
    AttentionOptions options = state.made.options;
    options.query_offset = edge.reader_row;
    if (options.sinks) options.sinks = options.sinks->narrow(0, head, 1);
    copy(attention(query, key, value, options).output,
         output.mutable_view().narrow(0, head, 1).narrow(1, edge.reader_row, 1));
  }

  const Model& model_;
  const detail::Family& family_;
  const ModelInfo& info_;
  const CircuitOptions& options_;
  const TensorView& tokens_;
  std::vector<std::int64_t> ids_;
  std::int64_t length_;
  int threads_;
  std::vector<RowTrace> traces_;  // of all positions
  detail::LogitDirection target_;
  Circuit circuit_;
  std::map<std::pair<std::int64_t, std::int64_t>, StreamParts> parts_;  // by position and layer
  std::map<std::int64_t, LayerState> layers_;
  std::map<std::tuple<EdgeInto, std::int64_t, std::int64_t, std::int64_t, std::int64_t, StreamPart::Kind,
                      std::int64_t, std::int64_t>,
           double>
      patched_;
};

void check(const CircuitOptions& options, const ModelInfo& info) {
  if (options.edges < 1 || options.edges > kMaxEdges)
    detail::refuse("edges is ", options.edges, "; 1 to ", kMaxEdges, " is expected");
  for (const auto& [name, token] : {std::pair("token", options.token), std::pair("than", options.than)})
    if (token && (*token < 0 || *token >= info.vocabulary))
      detail::refuse(name, " is ", *token, "; 0 to ", info.vocabulary - 1, " is expected");
}

}  // namespace

std::string_view name_of(EdgeInto into) {
  constexpr std::string_view kNames[] = {"logit", "value", "key", "query"};
  return kNames[static_cast<std::size_t>(into)];
}

Circuit find_circuit(const Model& model, const TensorView& tokens, const CircuitOptions& options) {
  detail::check_has_shares(model);
  check(options, model.info());
  return Search(model, tokens, options).run();
}

}  // namespace heed
