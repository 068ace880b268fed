// One row of attention and of its gradient, in f64, as derived on paper: four passes each.
//
//   q [D]  k [n][D]  v [n][Dv]: query i, and the keys and values of its segment       g [Dv]: gradient of out
//
//   forward                                        backward
//   1  s_j = rules(scale <q, k_j>)       [n]       1  dP_j = m_j <g, v_j> + dWeights_j             [n]
//   2  p_j = exp(s_j - lse)              [n]       2  dS_j = p_j (dP_j - sum_l p_l dP_l + dLse)    [n]
//   3  m_j: what dropout multiplies by   [n]       3  dV_j += m_j p_j g                            [n][Dv]
//   4  out = sum_j m_j p_j v_j           [Dv]      4  dQ = scale sum_j dS_j s'_j k_j               [D]
//                                                     dK_j += scale dS_j s'_j q                    [n][D]
//
// s'_j is the slope of the softcap and the ScoreMod, 1 without either. A forbidden key has the score -inf,
// and every later pass checks for it. The value of such a key is never read, so a NaN or an infinity there
// cannot leak (0 * inf is NaN).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "attention/problem/dropout.hpp"
#include "attention/problem/elements.hpp"
#include "attention/problem/problem.hpp"
#include "attention/problem/score_rules.hpp"
#include "attention/reference/softmax.hpp"

namespace heed::detail {

/// Working memory of one row. Vectors [n] hold Lk numbers; only the numbers of the row's segment are used.
struct RowScratch {
  explicit RowScratch(const Problem& p)
      : query(at(p.head_dim)),
        key(at(p.head_dim)),
        value(at(p.value_dim)),
        output(at(p.value_dim)),
        visible(at(p.key_length)),
        bias(at(p.key_length)),
        products(at(p.key_length)),
        scores(at(p.key_length)),
        slopes(at(p.key_length), 1.0),
        weights(at(p.key_length)),
        kept(at(p.key_length)) {}

  static std::size_t at(std::int64_t j) { return static_cast<std::size_t>(j); }
  [[nodiscard]] bool attends(std::int64_t j) const { return scores[at(j)] != -kInfinity; }

  std::vector<double> query, key;     // [D]
  std::vector<double> value, output;  // [Dv]
  std::vector<std::uint8_t> visible;  // 0 if masks forbid the key
  std::vector<double> bias;           // set for visible keys
  std::vector<double> products;       // scale <q, k_j>
  std::vector<double> scores;         // s_j minus the row's alibi_offset
  std::vector<double> slopes;         // s'_j
  std::vector<double> weights;        // p_j
  std::vector<double> kept;           // m_j
  SoftmaxScratch softmax;
};

struct GradientScratch : RowScratch {
  explicit GradientScratch(const Problem& p)
      : RowScratch(p),
        grad_output(at(p.value_dim)),
        grad_query(at(p.head_dim)),
        grad_products(at(p.key_length)),
        grad_scores(at(p.key_length)) {}

  std::vector<double> grad_output;           // g
  std::vector<double> grad_query;            // dQ
  std::vector<double> grad_products;         // <g, v_j>
  std::vector<double> grad_scores;           // dP_j, then dS_j
  std::vector<double> grad_key, grad_value;  // dK [Lk][D] and dV [Lk][Dv], summed over rows
};

/// Computes the products of a row with some of the tensor's keys.
inline void multiply_keys(const Problem& p, const Row& row, const KeyRange& keys, RowScratch& x) {
  read_row(p.query, row.batch, row.head, row.i, x.query);
  for (std::int64_t j = keys.begin; j < keys.end; ++j) {
    read_row(p.key, row.batch, row.kv_head, j, x.key);
    double dot = 0;
    for (std::size_t d = 0; d < x.key.size(); ++d) dot += x.query[d] * x.key[d];
    x.products[x.at(j)] = p.scale * dot;
  }
}

/// Finds the keys that the row sees, by the rules of is_allowed(), and their biases.
inline void find_visible(const Problem& p, const Segment& segment, const Row& row, RowScratch& x) {
  const KeyRange seen = seen_keys(p, segment, row);
  const auto of_seen = [&](auto& all) {
    return std::span(all).subspan(x.at(seen.begin), x.at(seen.end - seen.begin));
  };
  const std::span<std::uint8_t> visible = of_seen(x.visible);
  std::fill_n(x.visible.begin() + segment.key_begin, segment.key_end - segment.key_begin, std::uint8_t{0});
  if (visible.empty()) return;
  if (p.mask)
    read_numbers(p.mask, row.batch, row.head, row.i, visible, seen.begin);
  else
    std::ranges::fill(visible, std::uint8_t{1});
  for (const MaskSource& mask : p.sparse_masks)
    mask.restrict_row(row.batch, row.head, row.i, seen.begin, seen.end, visible.data());
  if (!p.bias) return;
  const std::span<double> bias = of_seen(x.bias);
  read_numbers(p.bias, row.batch, row.head, row.i, bias, seen.begin);
  for (std::size_t j = 0; j < bias.size(); ++j)
    if (bias[j] == -kInfinity) visible[j] = 0;
}

/// Applies the ScoreMod to the scores of keys [begin, end), and to their slopes. A ScoreMod forbids a key by
/// -inf.
inline void apply_score_mod(const Problem& p, const Row& row, const KeyRange& keys, RowScratch& x) {
  std::vector<double> mod_slopes(x.at(keys.end - keys.begin));
  const PartPlace& place = p.score_mod.place;
  static_cast<const ScoreFunction*>(p.score_mod.part)
      ->apply({row.batch + place.batch_begin, row.head + place.head_begin, place.row(row.i), keys.begin,
               keys.end},
              x.scores.data() + keys.begin, mod_slopes.data());
  for (std::int64_t j = keys.begin; j < keys.end; ++j) {
    x.slopes[x.at(j)] *= mod_slopes[x.at(j - keys.begin)];
    if (x.scores[x.at(j)] == -kInfinity) x.visible[x.at(j)] = 0;
  }
}

// Forward pass 1, from the products.
inline void score_row(const Problem& p, const Segment& segment, const Row& row, RowScratch& x) {
  find_visible(p, segment, row, x);
  const KeyRange seen = seen_keys(p, segment, row);
  std::copy(x.products.begin() + seen.begin, x.products.begin() + seen.end, x.scores.begin() + seen.begin);
  if (p.score_mod) std::fill(x.slopes.begin() + seen.begin, x.slopes.begin() + seen.end, 1.0);
  for (std::int64_t j = seen.begin; p.softcap != 0 && j < seen.end; ++j) {
    const auto [score, slope] = capped(p, x.products[x.at(j)]);
    x.scores[x.at(j)] = score;
    x.slopes[x.at(j)] = slope;
  }
  if (p.score_mod && seen.begin < seen.end) apply_score_mod(p, row, seen, x);
  if (p.bias)
    for (std::int64_t j = seen.begin; j < seen.end; ++j)
      x.scores[x.at(j)] = biased<F64Math>(x.scores[x.at(j)], x.bias[x.at(j)], 1);
  if (p.alibi_slopes) {
    const double slope = read(p.alibi_slopes, row.batch, row.head);
    const std::int64_t nearest = nearest_position(segment, row);
    for (std::int64_t j = seen.begin; j < seen.end; ++j)
      x.scores[x.at(j)] = with_alibi<F64Math>(
          x.scores[x.at(j)], slope, static_cast<double>(nearest - segment.keys().of(j - segment.key_begin)));
  }
  for (std::int64_t j = seen.begin; p.decay && j < seen.end; ++j)
    x.scores[x.at(j)] += decay_between(p, segment, row, j);
  std::fill(x.scores.begin() + segment.key_begin, x.scores.begin() + seen.begin, -kInfinity);
  std::fill(x.scores.begin() + seen.end, x.scores.begin() + segment.key_end, -kInfinity);
  if (!p.mask && p.sparse_masks.empty() && !p.bias && !p.score_mod) return;
  for (std::int64_t j = seen.begin; j < seen.end; ++j)
    if (x.visible[x.at(j)] == 0) x.scores[x.at(j)] = -kInfinity;
}

// Forward pass 2. Returns lse and max minus the row's alibi_offset, which cancels in the weights.
inline Normaliser softmax_row(const Problem& p, const Segment& segment, const Row& row, RowScratch& x) {
  const double sink = p.sinks ? read(p.sinks, 0, row.head) : -kInfinity;
  const KeyRange seen = seen_keys(p, segment, row);
  const auto of_seen = [&](std::vector<double>& all) {
    return std::span(all).subspan(x.at(seen.begin), x.at(seen.end - seen.begin));
  };
  std::fill(x.weights.begin() + segment.key_begin, x.weights.begin() + seen.begin, 0.0);
  std::fill(x.weights.begin() + seen.end, x.weights.begin() + segment.key_end, 0.0);
  const Normaliser found =
      normalise(of_seen(x.scores), of_seen(x.weights), sink - alibi_offset(p, segment, row), x.softmax);
  for (std::int64_t& j : x.softmax.weighted) j += seen.begin;
  return found;
}

// Forward pass 3.
inline void drop_row(const Segment& segment, const Row& row, const HeadDropout& dropout, RowScratch& x) {
  for (std::int64_t j = segment.key_begin; j < segment.key_end; ++j)
    x.kept[x.at(j)] = x.attends(j) && !dropout.drops(row.i, j) ? dropout.keep_scale() : 0;
}

// Forward pass 4.
inline void sum_values(const Problem& p, const Segment& segment, const Row& row, RowScratch& x) {
  std::ranges::fill(x.output, 0.0);
  for (std::int64_t j = segment.key_begin; j < segment.key_end; ++j) {
    if (x.kept[x.at(j)] == 0) continue;
    const double weight = x.weights[x.at(j)] * x.kept[x.at(j)];
    read_row(p.value, row.batch, row.kv_head, j, x.value);
    for (std::size_t c = 0; c < x.value.size(); ++c) x.output[c] += weight * x.value[c];
  }
}

/// Computes the products of a row's output gradient with some of the tensor's values.
inline void multiply_values(const BackwardProblem& b, const Row& row, const KeyRange& keys,
                            GradientScratch& x) {
  read_row(b.grad_output, row.batch, row.head, row.i, x.grad_output);
  for (std::int64_t j = keys.begin; j < keys.end; ++j) {
    read_row(b.forward.value, row.batch, row.kv_head, j, x.value);
    double dot = 0;
    for (std::size_t c = 0; c < x.value.size(); ++c) dot += x.grad_output[c] * x.value[c];
    x.grad_products[x.at(j)] = dot;
  }
}

// Backward pass 1, from the products.
inline void differentiate_weights(const BackwardProblem& b, const Segment& segment, const Row& row,
                                  GradientScratch& x) {
  for (std::int64_t j = segment.key_begin; j < segment.key_end; ++j) {
    double grad = x.kept[x.at(j)] != 0 ? x.grad_products[x.at(j)] * x.kept[x.at(j)] : 0;
    if (b.grad_weights && x.attends(j)) grad += read(b.grad_weights, row.batch, row.head, row.i, j);
    x.grad_scores[x.at(j)] = grad;
  }
}

// Backward pass 2. Returns dLse - sum_j p_j dP_j; times its weight, it is the gradient of a sink's score.
inline double differentiate_scores(const BackwardProblem& b, const Segment& segment, const Row& row,
                                   GradientScratch& x) {
  double mean = 0;
  for (std::int64_t j = segment.key_begin; j < segment.key_end; ++j)
    if (x.attends(j)) mean += x.weights[x.at(j)] * x.grad_scores[x.at(j)];
  const double grad_lse = b.grad_lse ? read(b.grad_lse, row.batch, row.head, row.i) : 0;
  for (std::int64_t j = segment.key_begin; j < segment.key_end; ++j)
    if (x.attends(j))
      x.grad_scores[x.at(j)] = x.weights[x.at(j)] * (x.grad_scores[x.at(j)] - mean + grad_lse);
  return grad_lse - mean;
}

/// Runs the forward's passes and computes dS, from the row's products. Returns the gradient of the sink's
/// score.
inline double differentiate_row(const BackwardProblem& b, const Segment& segment, const Row& row,
                                const HeadDropout& dropout, GradientScratch& x) {
  score_row(b.forward, segment, row, x);
  const double sink_weight = softmax_row(b.forward, segment, row, x).sink_weight;
  drop_row(segment, row, dropout, x);
  differentiate_weights(b, segment, row, x);
  const double grad_sink = differentiate_scores(b, segment, row, x);
  return sink_weight == 0 ? 0 : sink_weight * grad_sink;
}

// Backward pass 3.
inline void add_value_gradients(const Problem& p, const Segment& segment, GradientScratch& x) {
  for (std::int64_t j = segment.key_begin; j < segment.key_end; ++j) {
    if (x.kept[x.at(j)] == 0) continue;
    const double weight = x.kept[x.at(j)] * x.weights[x.at(j)];
    double* grad = x.grad_value.data() + j * p.value_dim;
    for (double g : x.grad_output) *grad++ += weight * g;
  }
}

// Backward pass 4.
inline void add_query_and_key_gradients(const Problem& p, const Segment& segment, const Row& row,
                                        GradientScratch& x) {
  std::ranges::fill(x.grad_query, 0.0);
  for (std::int64_t j = segment.key_begin; j < segment.key_end; ++j) {
    if (!x.attends(j)) continue;
    const double grad = p.scale * x.grad_scores[x.at(j)] * x.slopes[x.at(j)];
    read_row(p.key, row.batch, row.kv_head, j, x.key);
    double* grad_key = x.grad_key.data() + j * p.head_dim;
    for (std::size_t d = 0; d < x.key.size(); ++d) {
      x.grad_query[d] += grad * x.key[d];
      grad_key[d] += grad * x.query[d];
    }
  }
}

}  // namespace heed::detail
