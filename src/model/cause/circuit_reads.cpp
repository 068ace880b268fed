#include "model/cause/circuit_reads.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "core/largest.hpp"
#include "heed/inspect/reports.hpp"

namespace heed::detail {
namespace {

constexpr std::size_t kPlaces = 8;  // keys whose values, and keys whose keys, are followed

Direction row_of_head(const TensorView& heads, std::int64_t head, std::int64_t row) {
  const Tensor copy = Tensor::copy_of(heads.select(0, head).narrow(0, row, 1));
  const auto values = copy.values<float>();
  return {values.begin(), values.end()};
}

// The indices of the largest sizes.
std::vector<std::int64_t> largest_places(const std::vector<double>& values) {
  std::vector<double> sizes(values.size());
  std::ranges::transform(values, sizes.begin(), [](double x) { return std::abs(x); });
  return largest_of(sizes, static_cast<std::int64_t>(std::min(kPlaces, sizes.size())));
}

// The weights of scores beside a sink's score (-inf: there is none). Weights that f32 rounds to 0 count here.
std::vector<double> softmax(const std::vector<double>& scores, double sink) {
  double most = sink;
  for (const double score : scores) most = std::max(most, score);
  std::vector<double> weights(scores.size());
  std::ranges::transform(scores, weights.begin(), [most](double score) { return std::exp(score - most); });
  const double sum = std::accumulate(weights.begin(), weights.end(), std::exp(sink - most));
  for (double& weight : weights) weight /= sum;
  return weights;
}

// Adds the edge of each part, by a direction of the stream.
void add_parts(CircuitState& state, CircuitEdge edge, std::int64_t layer, const Direction& direction,
               std::vector<CircuitRead>& found) {
  const StreamParts& stream = state.parts_at(edge.place, layer);
  for (std::size_t i = 0; i < stream.parts.size(); ++i) {
    edge.writer = stream.parts[i];
    edge.share = dot<double>(direction, stream.added[i]);
    found.push_back({edge, direction});
  }
}

class HeadReads {
 public:
  HeadReads(CircuitState& state, const CircuitNode& node, const Direction& direction)
      : state_(state), info_(state.info()), reader_(reader_at(node, direction)) {}

  std::vector<CircuitRead> all() {
    read_values();
    read_keys();
    read_query();
    return std::move(found_);
  }

  [[nodiscard]] std::vector<HeadKeyShare> of_keys() const {
    std::vector<HeadKeyShare> shares;
    for (std::size_t i = 0; i < reader_.keys.size(); ++i)
      shares.push_back({reader_.keys[i], reader_.weights[i], reader_.weights[i] * reader_.worths[i]});
    return shares;
  }

  [[nodiscard]] WriterShares of_writer(const std::vector<Direction>& written) const {
    WriterShares shares;
    const std::size_t count = reader_.keys.size();
    std::vector<double> by_key(count), by_query(count);
    const Direction query = part_of_query(written[static_cast<std::size_t>(reader_.node.row)]);
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t place = reader_.keys[i];
      const auto& part = written[static_cast<std::size_t>(place)];
      shares.value +=
          reader_.weights[i] * dot<double>(behind_input(InputKind::value, place, reader_.out), part);
      by_key[i] = dot<double>(direction_of_key(place), part);
      by_query[i] =
          reader_.scale * dot<double>(row_of_head(reader_.layer.made.key, reader_.kv_head, place), query);
    }
    shares.key = fall(by_key);
    shares.query = fall(by_query);
    return shares;
  }

 private:
  // A head at a row: its weights, and the worth of each key's value along a direction of its output.
  struct Reader {
    CircuitNode node;
    const LayerState& layer;
    Direction out;                   // of its output
    Direction query;                 // the row's
    std::vector<std::int64_t> keys;  // those that the row sees
    std::vector<double> weights, scores, worths;
    double sink = -HUGE_VAL;  // the score of a sink
    double scale = 1, cap = 0, mean = 0;
    std::int64_t kv_head = 0;
  };

  Reader reader_at(const CircuitNode& node, const Direction& direction) {
    const LayerState& layer = state_.layer(node.head.layer);
    const RowAttention attention = attend_row(layer.call(node.head.layer), node.row, true);
    const AttentionOptions& options = layer.made.options;
    Reader made{node,
                layer,
                behind_head(node, direction),
                row_of_head(layer.made.query, node.head.head, node.row),
                {},
                {},
                {},
                {}};
    made.scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(info_.head_dim)));
    made.cap = options.softcap;
    made.kv_head = node.head.head / (info_.heads / info_.kv_heads);
    if (options.sinks) made.sink = number_at(Tensor::copy_of(*options.sinks), {node.head.head});
    for (std::int64_t key = 0; key < state_.length(); ++key) {
      const double score = attention.scores.at<float>(node.head.head, 0, key);
      if (score == -HUGE_VAL) continue;
      made.keys.push_back(key);
      made.scores.push_back(score);
      made.worths.push_back(dot<double>(made.out, row_of_head(layer.made.value, made.kv_head, key)));
    }
    made.weights = softmax(made.scores, made.sink);
    made.mean = std::inner_product(made.weights.begin(), made.weights.end(), made.worths.begin(), 0.0);
    return made;
  }

  // The direction of a head's output, for a direction of the stream behind its layer.
  Direction behind_head(const CircuitNode& node, Direction direction) {
    const LinearWeights& output = state_.family().output_projection(node.head.layer);
    const Tensor added =
        linear(Tensor::copy_of(state_.trace(node.row).heads.view().narrow(0, node.head.layer, 1)), output,
               state_.threads());
    if (const auto norm = state_.family().norm_behind_attention(node.head.layer, added.values<float>()))
      direction = through(*norm, direction);
    const Direction all = through(output, direction);
    return {all.begin() + node.head.head * info_.head_dim,
            all.begin() + (node.head.head + 1) * info_.head_dim};
  }

  // How much less the head writes along its direction if scores (before a softcap) fall by `less`.
  [[nodiscard]] double fall(const std::vector<double>& less) const {
    std::vector<double> scores = reader_.scores;
    for (std::size_t i = 0; i < less.size(); ++i) {
      if (less[i] == 0) continue;
      const double cap = reader_.cap;
      const double before = cap > 0 ? cap * std::atanh(std::clamp(scores[i] / cap, -1.0, 1.0)) : scores[i];
      scores[i] = cap > 0 ? cap * std::tanh((before - less[i]) / cap) : before - less[i];
    }
    return reader_.mean - mean_by(scores);
  }
  // The head's output along its direction, if its scores were these.
  [[nodiscard]] double mean_by(const std::vector<double>& scores) const {
    const std::vector<double> weights = softmax(scores, reader_.sink);
    return std::inner_product(weights.begin(), weights.end(), reader_.worths.begin(), 0.0);
  }

  // How much less the head writes without a key. The other keys share its weight, whatever the f32 weights
  // say.
  [[nodiscard]] double fall_without(std::size_t key) const {
    const double weight = reader_.weights[key];
    if (weight < 0.5) return weight * (reader_.worths[key] - reader_.mean) / (1 - weight);
    if (reader_.keys.size() == 1 && reader_.sink == -HUGE_VAL) return 0;  // no other takes it
    std::vector<double> scores = reader_.scores;
    scores[key] = -HUGE_VAL;
    return reader_.mean - mean_by(scores);
  }

  [[nodiscard]] HeadInput input_of(InputKind kind, std::int64_t place) const {
    const std::int64_t head = kind == InputKind::query ? reader_.node.head.head : reader_.kv_head;
    const std::int64_t layer = reader_.node.head.layer;
    return state_.family().head_input(layer, kind, head, state_.stream_at(place, layer));
  }

  // The direction of the stream at a position, for a direction of one of the reader's inputs.
  [[nodiscard]] Direction behind_input(InputKind kind, std::int64_t place, const Direction& of_input) const {
    return through(input_of(kind, place), of_input, place, state_.length());
  }

  [[nodiscard]] CircuitEdge edge_into(EdgeInto into, std::int64_t place) const {
    return {{}, place, into, reader_.node.head, reader_.node.row};
  }

  void read_values() {
    std::vector<double> shares(reader_.keys.size());
    for (std::size_t i = 0; i < shares.size(); ++i) shares[i] = reader_.weights[i] * reader_.worths[i];
    for (const std::int64_t i : largest_places(shares)) {
      const auto at = static_cast<std::size_t>(i);
      Direction value = reader_.out;
      for (double& one : value) one *= reader_.weights[at];
      add_parts(state_, edge_into(EdgeInto::value, reader_.keys[at]), reader_.node.head.layer,
                behind_input(InputKind::value, reader_.keys[at], value), found_);
    }
  }

  // The direction of the stream at a key's position along which the row's score grows.
  [[nodiscard]] Direction direction_of_key(std::int64_t place) const {
    Direction of_key = reader_.query;
    for (double& one : of_key) one *= reader_.scale;
    return behind_input(InputKind::key, place, of_key);
  }

  // The share of a part of the stream at the row in the query.
  [[nodiscard]] Direction part_of_query(const Direction& part) const {
    const StreamParts alone{{{}, {}}, {part, Direction(part.size())}};  // the last part has the biases
    const std::int64_t row = reader_.node.row;
    const Tensor made = project_parts(alone, input_of(InputKind::query, row), info_.head_dim, row,
                                      state_.length(), state_.threads());
    const auto values = made.values<double>();
    return {values.begin(), values.begin() + info_.head_dim};
  }

  // The keys whose loss would move the head most.
  void read_keys() {
    const std::size_t count = reader_.keys.size();
    std::vector<double> effects(count);
    for (std::size_t i = 0; i < count; ++i) effects[i] = fall_without(i);
    const auto layer = reader_.node.head.layer;
    for (const std::int64_t i : largest_places(effects)) {
      const auto at = static_cast<std::size_t>(i);
      const std::int64_t place = reader_.keys[at];
      const Direction direction = direction_of_key(place);
      std::vector<double> less(count);
      add_scored(edge_into(EdgeInto::key, place), layer, direction, [&](std::size_t part) {
        less[at] = dot<double>(direction, state_.parts_at(place, layer).added[part]);
        return std::pair(less[at], fall(less));
      });
    }
  }

  void read_query() {
    const std::size_t count = reader_.keys.size();
    const std::int64_t row = reader_.node.row, layer = reader_.node.head.layer;
    Direction of_query(reader_.query.size());  // the derivative
    std::vector<Direction> keys;
    for (std::size_t i = 0; i < count; ++i) {
      keys.push_back(row_of_head(reader_.layer.made.key, reader_.kv_head, reader_.keys[i]));
      const double bend = reader_.cap > 0 ? 1 - std::pow(reader_.scores[i] / reader_.cap, 2) : 1;
      const double slope = reader_.scale * bend * reader_.weights[i] * (reader_.worths[i] - reader_.mean);
      for (std::size_t d = 0; d < of_query.size(); ++d) of_query[d] += slope * keys.back()[d];
    }
    const Direction direction = behind_input(InputKind::query, row, of_query);
    const StreamParts& stream = state_.parts_at(row, layer);
    const Tensor parts = project_parts(stream, input_of(InputKind::query, row), info_.head_dim, row,
                                       state_.length(), state_.threads());
    const auto queries = parts.values<double>();
    std::vector<double> less(count);
    add_scored(edge_into(EdgeInto::query, row), layer, direction, [&](std::size_t part) {
      for (std::size_t i = 0; i < count; ++i)
        less[i] =
            reader_.scale * dot<double>(keys[i], queries.subspan(part * keys[i].size(), keys[i].size()));
      return std::pair(dot<double>(direction, stream.added[part]), fall(less));
    });
  }

  // Adds the parts of a query or key. of_part(index) returns the share along the direction, and the share:
  // what the head loses without the part. The direction is scaled so that it gives the latter.
  void add_scored(CircuitEdge edge, std::int64_t layer, const Direction& direction,
                  const std::function<std::pair<double, double>(std::size_t)>& of_part) {
    const StreamParts& stream = state_.parts_at(edge.place, layer);
    for (std::size_t i = 0; i < stream.parts.size(); ++i) {
      const auto [along, share] = of_part(i);
      edge.writer = stream.parts[i];
      edge.share = share;
      Direction scaled = direction;
      for (double& one : scaled) one *= along == 0 ? 0 : share / along;
      found_.push_back({edge, std::move(scaled)});
    }
  }

  CircuitState& state_;
  const ModelInfo& info_;
  Reader reader_;
  std::vector<CircuitRead> found_;
};

}  // namespace

std::vector<CircuitRead> reads_of_logit(CircuitState& state, std::int64_t row, const Direction& direction) {
  std::vector<CircuitRead> found;
  add_parts(state, {{}, row, EdgeInto::logit, {}, row}, state.info().layers, direction, found);
  return found;
}

std::vector<CircuitRead> reads_of_head(CircuitState& state, const CircuitNode& node,
                                       const Direction& direction) {
  return HeadReads(state, node, direction).all();
}

WriterShares shares_of_writer(CircuitState& state, const CircuitNode& node, const Direction& direction,
                              const std::vector<Direction>& written) {
  return HeadReads(state, node, direction).of_writer(written);
}

std::vector<HeadKeyShare> shares_of_keys(CircuitState& state, const CircuitNode& node,
                                         const Direction& direction) {
  return HeadReads(state, node, direction).of_keys();
}

}  // namespace heed::detail
