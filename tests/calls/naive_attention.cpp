#include "naive_attention.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace heed::test {

namespace {

Real naive_half(std::uint16_t bits, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits;
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  Real value = 0;
  if (exponent == (1 << exponent_bits) - 1)
    value = fraction == 0 ? std::numeric_limits<Real>::infinity() : std::numeric_limits<Real>::quiet_NaN();
  else if (exponent == 0)
    value = std::ldexp(static_cast<Real>(fraction), 1 - bias - fraction_bits);
  else
    value = std::ldexp(static_cast<Real>(fraction + (1 << fraction_bits)), exponent - bias - fraction_bits);
  return (bits >> 15) != 0 ? -value : value;
}

// Philox4x32-10, with 64-bit arithmetic written differently from src/.
std::array<std::uint64_t, 4> naive_philox(std::uint64_t c0, std::uint64_t c1, std::uint64_t c2,
                                          std::uint64_t c3, std::uint64_t k0, std::uint64_t k1) {
  constexpr std::uint64_t word = 0xffffffff;
  for (std::uint64_t round = 0; round < 10; ++round) {
    const std::uint64_t round_k0 = (k0 + round * 0x9E3779B9) & word;
    const std::uint64_t round_k1 = (k1 + round * 0xBB67AE85) & word;
    const std::uint64_t a = c0 * 0xD2511F53;
    const std::uint64_t b = c2 * 0xCD9E8D57;
    c0 = (b / 0x100000000) ^ c1 ^ round_k0;
    c1 = b & word;
    c2 = (a / 0x100000000) ^ c3 ^ round_k1;
    c3 = a & word;
  }
  return {c0, c1, c2, c3};
}

}  // namespace

Real naive_element(const TensorView& view, std::array<std::int64_t, 4> index) {
  std::int64_t at = 0;
  for (int axis = 0; axis < view.rank(); ++axis) {
    const std::int64_t where = index[static_cast<std::size_t>(4 - view.rank() + axis)];
    if (view.shape()[axis] != 1) at += where * view.strides()[axis];
  }
  switch (view.dtype()) {
    case DType::f64:
      return static_cast<const double*>(view.data())[at];
    case DType::f32:
      return static_cast<Real>(static_cast<const float*>(view.data())[at]);
    case DType::f16:
      return naive_half(static_cast<const std::uint16_t*>(view.data())[at], 5);
    case DType::bf16:
      return naive_half(static_cast<const std::uint16_t*>(view.data())[at], 8);
    case DType::i64:
      return static_cast<Real>(static_cast<const std::int64_t*>(view.data())[at]);
    case DType::i32:
      return static_cast<const std::int32_t*>(view.data())[at];
    default:
      return static_cast<const std::uint8_t*>(view.data())[at];
  }
}

Cube naive_elements(const TensorView& view) {
  std::array<std::int64_t, 4> size{1, 1, 1, 1};
  for (int axis = 0; axis < view.rank(); ++axis)
    size[static_cast<std::size_t>(4 - view.rank() + axis)] = view.shape()[axis];
  Cube cube(size[0], size[1], size[2], size[3]);
  for (std::int64_t a = 0; a < size[0]; ++a)
    for (std::int64_t b = 0; b < size[1]; ++b)
      for (std::int64_t c = 0; c < size[2]; ++c)
        for (std::int64_t d = 0; d < size[3]; ++d) cube(a, b, c, d) = naive_element(view, {a, b, c, d});
  return cube;
}

Real naive_larger(Real a, Real b) { return a >= b || std::isnan(a) ? a : b; }

namespace {

class NaiveAttention {
 public:
  NaiveAttention(const TensorView& query, const TensorView& key, const TensorView& value,
                 const AttentionOptions& options, const std::vector<std::int64_t>& positions)
      : query_(naive_elements(query)),
        key_(naive_elements(key)),
        value_(naive_elements(value)),
        options_(options),
        positions_(positions) {
    n_.batch = query.rank() == 4 ? query.shape()[0] : 1;
    n_.heads = query.rank() >= 3 ? query.size(-3) : 1;
    kv_heads_ = query.rank() >= 3 ? key.size(-3) : 1;
    n_.queries = query.size(-2);
    n_.keys = key.size(-2);
    n_.head_dim = query.size(-1);
    n_.value_dim = value.size(-1);
  }

  Naive compute() {
    find_segments();
    find_ends();
    fill_scores();
    fill_weights();
    fill_output();
    fill_summaries();
    return std::move(n_);
  }

 private:
  using Index = std::int64_t;

  // Calls visit(b, h, i, j) for every score.
  template <class Visit>
  void for_each_score(Visit visit) const {
    for (Index b = 0; b < n_.batch; ++b)
      for (Index h = 0; h < n_.heads; ++h)
        for (Index i = 0; i < n_.queries; ++i)
          for (Index j = 0; j < n_.keys; ++j) visit(b, h, i, j);
  }
  // Calls visit(b, h, i) for every row.
  template <class Visit>
  void for_each_row(Visit visit) const {
    for (Index b = 0; b < n_.batch; ++b)
      for (Index h = 0; h < n_.heads; ++h)
        for (Index i = 0; i < n_.queries; ++i) visit(b, h, i);
  }

  static std::vector<Index> numbers(const TensorView& view) {
    std::vector<Index> values;
    for (Index i = 0; i < view.shape()[0]; ++i)
      values.push_back(static_cast<Index>(naive_element(view, {0, 0, 0, i})));
    return values;
  }

  // Finds the segment of each row and key and its position there. Finds p_i and the number of rows after it
  // for each row.
  void find_segments() {
    const std::size_t rows = static_cast<std::size_t>(n_.batch * n_.queries);
    row_segment_.assign(rows, 0);
    row_place_.assign(rows, 0);
    rows_after_.assign(rows, 0);
    key_segment_.assign(static_cast<std::size_t>(n_.keys), 0);
    key_place_.assign(static_cast<std::size_t>(n_.keys), 0);
    for (Index j = 0; j < n_.keys; ++j) key_place_[at(j)] = positions_.empty() ? j : positions_[at(j)];
    std::vector<Index> lengths(static_cast<std::size_t>(n_.batch), n_.keys);
    if (options_.kv_lengths) lengths = numbers(*options_.kv_lengths);
    valid_keys_ = lengths;
    for (Index b = 0; b < n_.batch; ++b)
      for (Index i = 0; i < n_.queries; ++i)
        set_row(b, i, 0, i, n_.queries - 1 - i, lengths[at(b)] - n_.queries);
    if (!options_.query_segments) return;

    const std::vector<Index> q = numbers(*options_.query_segments);
    const std::vector<Index> k = numbers(*options_.key_segments);
    for (std::size_t s = 0; s + 1 < q.size(); ++s) {
      const Index here = static_cast<Index>(s);
      for (Index i = q[s]; i < q[s + 1]; ++i)
        set_row(0, i, here, i - q[s], q[s + 1] - 1 - i, (k[s + 1] - k[s]) - (q[s + 1] - q[s]));
      for (Index j = k[s]; j < k[s + 1]; ++j) {
        key_segment_[at(j)] = here;
        key_place_[at(j)] = j - k[s];
      }
    }
  }
  // Finds the first and the last key of each key's segment.
  void find_ends() {
    segment_first_ = segment_last_ = std::vector<Index>(static_cast<std::size_t>(n_.keys));
    const auto same = [&](Index j, Index k) { return key_segment_[at(k)] == key_segment_[at(j)]; };
    for (Index j = 0; j < n_.keys; ++j)
      segment_first_[at(j)] = j > 0 && same(j, j - 1) ? segment_first_[at(j - 1)] : j;
    for (Index j = n_.keys - 1; j >= 0; --j)
      segment_last_[at(j)] = j + 1 < n_.keys && same(j, j + 1) ? segment_last_[at(j + 1)] : j;
  }
  void set_row(Index b, Index i, Index segment, Index place, Index after, Index bottom_right) {
    const std::size_t row = at(b * n_.queries + i);
    Index offset = 0;
    if (options_.query_offset)
      offset = *options_.query_offset;
    else if (options_.align == Align::bottom_right)
      offset = bottom_right;
    row_segment_[row] = segment;
    row_place_[row] = place + offset;
    rows_after_[row] = after;
  }

  bool allowed(Index b, Index h, Index i, Index j) const {
    const std::size_t row = at(b * n_.queries + i);
    const Index p = row_place_[row];
    const Index k = key_place_[at(j)];
    bool yes = row_segment_[row] == key_segment_[at(j)] && j < valid_keys_[at(b)];
    if (options_.causal) yes = yes && k <= p;
    if (options_.window.left != -1) yes = yes && k >= p - options_.window.left;
    if (options_.window.right != -1) yes = yes && k <= p + options_.window.right;
    if (options_.mask) yes = yes && naive_element(*options_.mask, {b, h, i, j}) != 0;
    if (options_.bias) yes = yes && naive_element(*options_.bias, {b, h, i, j}) != kMinusInfinity;
    return yes;
  }

  Real gap(Index b, Index i, Index j) const {
    return std::abs(static_cast<Real>(row_place_[at(b * n_.queries + i)] - key_place_[at(j)]));
  }

  // The distance from a row to the nearest key in the segment of key j, whether that key is allowed or not.
  Real nearest_gap(Index b, Index i, Index j) const {
    const Index first = segment_first_[at(j)];
    const Index last = std::max(first, std::min(segment_last_[at(j)], valid_keys_[at(b)] - 1));
    const Index p = row_place_[at(b * n_.queries + i)];
    if (p < key_place_[at(first)]) return gap(b, i, first);
    return p > key_place_[at(last)] ? gap(b, i, last) : 0;
  }

  void fill_scores() {
    const Real scale =
        options_.scale ? static_cast<Real>(*options_.scale) : 1 / std::sqrt(static_cast<Real>(n_.head_dim));
    n_.scores = n_.final_scores = n_.score_magnitude = n_.slope =
        Cube(n_.batch, n_.heads, n_.queries, n_.keys);
    relative_magnitude_ = n_.scores;
    n_.gap = Cube(n_.batch, 1, n_.queries, n_.keys);
    for_each_score([&](Index b, Index, Index i, Index j) { n_.gap(b, 0, i, j) = gap(b, i, j); });
    // Before the bias stage, forbidden keys have scores too.
    const bool wants_all = has(options_.need, Need::scores) && options_.scores_stage != ScoresStage::bias;
    for_each_score([&](Index b, Index h, Index i, Index j) {
      const bool may = allowed(b, h, i, j);
      if (!may && !wants_all) {
        n_.scores(b, h, i, j) = n_.final_scores(b, h, i, j) = kMinusInfinity;
        return;
      }
      Real dot = 0;
      Real magnitude = 0;
      const Real* query = query_.row(b, h, i);
      const Real* key = key_.row(b, kv_head(h), j);
      for (Index d = 0; d < n_.head_dim; ++d) {
        const Real product = query[d] * key[d];
        dot += product;
        magnitude += std::abs(scale * product);
      }
      const Real raw = scale * dot;
      const Real softcap = options_.softcap;
      const Real soft = softcap > 0 ? softcap * std::tanh(raw / softcap) : raw;
      Real biased = soft;
      magnitude += softcap;
      const Real hyperbolic = softcap > 0 ? std::cosh(raw / softcap) : 1;
      n_.slope(b, h, i, j) = 1 / (hyperbolic * hyperbolic);
      if (options_.bias) {
        biased += naive_element(*options_.bias, {b, h, i, j});
        magnitude += std::abs(naive_element(*options_.bias, {b, h, i, j}));
      }
      relative_magnitude_(b, h, i, j) = magnitude;
      if (options_.alibi_slopes) {
        const Real slope = naive_element(*options_.alibi_slopes, {0, 0, b, h});
        biased -= slope * gap(b, i, j);
        magnitude += std::abs(slope) * gap(b, i, j);
        relative_magnitude_(b, h, i, j) += std::abs(slope) * (gap(b, i, j) - nearest_gap(b, i, j));
      }
      const Real last = may ? biased : kMinusInfinity;
      n_.final_scores(b, h, i, j) = last;
      n_.scores(b, h, i, j) = options_.scores_stage == ScoresStage::raw       ? raw
                              : options_.scores_stage == ScoresStage::softcap ? soft
                                                                              : last;
      if (!may && options_.scores_stage == ScoresStage::bias) magnitude = 0;
      n_.score_magnitude(b, h, i, j) = magnitude;
    });
  }

  bool seen(Index b, Index h, Index i, Index j) const {
    return n_.final_scores(b, h, i, j) != kMinusInfinity;
  }

  void fill_weights() {
    n_.weights = Cube(n_.batch, n_.heads, n_.queries, n_.keys);
    n_.row_magnitude = Cube(n_.batch, n_.heads, n_.queries, 1);
    n_.lse = n_.max_score = Cube(n_.batch, n_.heads, n_.queries, 1, kMinusInfinity);
    n_.sink_weight = Cube(n_.batch, n_.heads, n_.queries, 1);
    for_each_row([&](Index b, Index h, Index i) {
      Real largest = kMinusInfinity;
      for (Index j = 0; j < n_.keys; ++j) largest = naive_larger(largest, n_.final_scores(b, h, i, j));
      n_.max_score(b, h, i) = largest;
      const Real sink = options_.sinks ? naive_element(*options_.sinks, {0, 0, 0, h}) : kMinusInfinity;
      largest = naive_larger(largest, sink);
      if (largest == kMinusInfinity) return;
      Real total = std::exp(sink - largest);
      for (Index j = 0; j < n_.keys; ++j)
        if (seen(b, h, i, j)) total += std::exp(n_.final_scores(b, h, i, j) - largest);
      n_.lse(b, h, i) = largest + std::log(total);
      n_.sink_weight(b, h, i) = std::exp(sink - largest) / total;
      for (Index j = 0; j < n_.keys; ++j)
        if (seen(b, h, i, j)) {
          n_.weights(b, h, i, j) = std::exp(n_.final_scores(b, h, i, j) - largest) / total;
          // Beside a large sink, the largest score may have no weight.
          if (n_.weights(b, h, i, j) != 0 || n_.final_scores(b, h, i, j) == n_.max_score(b, h, i))
            n_.row_magnitude(b, h, i) = std::max(n_.row_magnitude(b, h, i), relative_magnitude_(b, h, i, j));
        }
    });
  }

  // 0 for a weight that dropout sets to 0, 1 / (1 - probability) for one that it keeps.
  Real dropout_factor(Index b, Index h, Index i, Index j) const {
    const Dropout& dropout = options_.dropout;
    if (dropout.probability == 0) return 1;
    const std::uint64_t word = 0xffffffff;
    const auto ub = static_cast<std::uint64_t>(b), uh = static_cast<std::uint64_t>(h);
    const auto ui = static_cast<std::uint64_t>(i), uj = static_cast<std::uint64_t>(j);
    const auto key = naive_philox(dropout.offset & word, dropout.offset >> 32, ub, uh, dropout.seed & word,
                                  dropout.seed >> 32);
    const auto block = naive_philox((uj / 4) & word, (uj / 4) >> 32, ui & word, ui >> 32, key[0], key[1]);
    const auto threshold = static_cast<std::uint64_t>(std::llround(dropout.probability * 0x1p32));
    return block[uj % 4] < threshold ? 0 : 1 / (1 - static_cast<Real>(dropout.probability));
  }

  void fill_output() {
    n_.output = n_.output_magnitude = Cube(n_.batch, n_.heads, n_.queries, n_.value_dim);
    n_.kept = Cube(n_.batch, n_.heads, n_.queries, n_.keys);
    for_each_score([&](Index b, Index h, Index i, Index j) {
      if (!seen(b, h, i, j)) return;
      const Real factor = n_.kept(b, h, i, j) = dropout_factor(b, h, i, j);
      if (factor == 0) return;
      const Real weight = n_.weights(b, h, i, j) * factor;
      const Real* value = value_.row(b, kv_head(h), j);
      Real* output = n_.output.row(b, h, i);
      Real* magnitude = n_.output_magnitude.row(b, h, i);
      for (Index c = 0; c < n_.value_dim; ++c) {
        const Real term = weight * value[c];
        output[c] += term;
        magnitude[c] += std::abs(term);
      }
    });
  }

  void fill_summaries() {
    n_.entropy = n_.distance = Cube(n_.batch, n_.heads, n_.queries, 1);
    n_.received = n_.received_last = Cube(n_.batch, n_.heads, n_.keys, 1);
    n_.map = Cube(n_.batch, n_.heads, options_.map.rows, options_.map.columns);
    for_each_score([&](Index b, Index h, Index i, Index j) {
      const Real p = n_.weights(b, h, i, j);
      if (p == 0) return;
      n_.entropy(b, h, i) -= p * std::log(p);
      n_.distance(b, h, i) += p * gap(b, i, j);
      n_.received(b, h, j) += p;
      if (rows_after_[at(b * n_.queries + i)] < options_.received_last) n_.received_last(b, h, j) += p;
      if (options_.map.rows > 0)
        n_.map(b, h, i * options_.map.rows / n_.queries, j * options_.map.columns / n_.keys) += p;
    });
  }

  static std::size_t at(Index index) { return static_cast<std::size_t>(index); }
  Index kv_head(Index h) const { return h / (n_.heads / kv_heads_); }

  Cube query_, key_, value_;
  Cube relative_magnitude_;  // [B, H, Lq, Lk]: see row_magnitude
  AttentionOptions options_;
  const std::vector<std::int64_t>& positions_;
  Naive n_;
  Index kv_heads_ = 1;
  std::vector<Index> row_segment_, row_place_, rows_after_;  // [B * Lq]
  std::vector<Index> key_segment_, key_place_;               // [Lk]
  std::vector<Index> segment_first_, segment_last_;          // [Lk]
  std::vector<Index> valid_keys_;                            // [B]
};

}  // namespace

Naive naive_attention(const TensorView& query, const TensorView& key, const TensorView& value,
                      const AttentionOptions& options, const std::vector<std::int64_t>& positions) {
  return NaiveAttention(query, key, value, options, positions).compute();
}

}  // namespace heed::test
