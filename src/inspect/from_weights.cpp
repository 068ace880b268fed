// document_of_weights(): a document from weights that were computed elsewhere.
#include <algorithm>
#include <cmath>
#include <vector>

#include "attention/check/checks.hpp"
#include "attention/problem/operands.hpp"
#include "core/largest.hpp"
#include "core/message.hpp"
#include "heed/inspect/document.hpp"
#include "inspect/describe.hpp"
#include "inspect/each_row.hpp"
#include "inspect/heads.hpp"
#include "inspect/rows.hpp"
#include "inspect/tile.hpp"
#include "inspect/token_sets.hpp"

namespace heed {
namespace detail {
namespace {

// The score of an allowed key of weight 0. It is finite, because -inf would forbid the key; its exp() is 0.
constexpr double kScoreOfZero = -1e4;
// Rows may sum to slightly more than 1, like weights in bf16.
constexpr double kMaxSum = 1.02;

// Numbers of one row over its allowed keys.
struct Found {
  double sum = 0, largest = 0, entropy = 0, distance = 0;
};

class WeightsReader {
 public:
  WeightsReader(const TensorView& weights, const std::optional<TensorView>& allowed, ReportOptions wanted)
      : wanted_(std::move(wanted)) {
    if (weights.rank() < 2 || weights.rank() > 4 || !is_floating(weights.dtype()))
      refuse("weights has dtype ", weights.dtype(), " and shape ", weights.shape(),
             "; floats [B, H, Lq, Lk], or without the first axes, are expected");
    check_memory("weights", weights);
    const DType dtype = weights.dtype() == DType::f64 ? DType::f64 : DType::f32;
    weights_ = Tensor::copy_of(lifted(weights), dtype);
    check_tokens(wanted_, weights_.size(2), "the rows of weights", weights_.size(3),
                 "the columns of weights");
    check_numbers();
    make_call(allowed);
  }

  Document document() {
    describe();
    add_rows();
    fill_shares(problem_, report());
    const TokenSets sets = fill_token_sets(problem_, report());
    fill_summaries(problem_, wanted_.most_received, sets, report());
    const std::int64_t cells = weights_.size(2) * weights_.size(3);
    if (cells > 0 && cells <= wanted_.full_weights_cells)
      report().weights = {
          {0, weights_.size(2), 0, weights_.size(3)}, std::move(weights_), allowed_of(problem_)};
    return std::move(document_);
  }

 private:
  AttentionReport& report() { return document_.report; }

  void check_numbers() const {
    const Dims& shape = weights_.shape();
    for (std::int64_t b = 0; b < shape[0]; ++b)
      for (std::int64_t h = 0; h < shape[1]; ++h)
        for (std::int64_t i = 0; i < shape[2]; ++i) {
          double sum = 0;
          for (std::int64_t j = 0; j < shape[3]; ++j) {
            const double weight = number_at(weights_, {b, h, i, j});
            if (weight < 0 || weight > kMaxSum)
              refuse("weights is ", weight, " at ", Dims{b, h, i, j},
                     "; 0 to 1, as after a softmax, is expected");
            sum += weight;
          }
          if (sum > kMaxSum)
            refuse("weights sums to ", sum, " in row ", Dims{b, h, i},
                   "; at most 1, as after a softmax and before dropout, is expected");
        }
  }

  // Whether all weights above the diagonal that ends in the last key are exactly 0.
  [[nodiscard]] bool is_causal() const {
    const Dims& shape = weights_.shape();
    const std::int64_t offset = shape[3] - shape[2];
    if (offset < 0 || shape[2] < 2) return false;
    for (std::int64_t b = 0; b < shape[0]; ++b)
      for (std::int64_t h = 0; h < shape[1]; ++h)
        for (std::int64_t i = 0; i < shape[2]; ++i)
          for (std::int64_t j = i + offset + 1; j < shape[3]; ++j)
            if (number_at(weights_, {b, h, i, j}) != 0) return false;
    return true;
  }

  // Makes a call whose scores are the logarithms of the weights; with lse 0 its weights are the given ones.
  void make_call(const std::optional<TensorView>& allowed) {
    const Dims& shape = weights_.shape();
    document_.tensors.reserve(4);
    Tensor scores = Tensor::copy_of(weights_, DType::f64);
    for (double& score : scores.values<double>())
      score = score == 0 ? kScoreOfZero : std::max(std::log(score), kScoreOfZero);
    document_.tensors.push_back(Tensor::copy_of(scores, weights_.dtype()));
    document_.options.bias = document_.tensors.back().view();
    document_.options.scale = 1;
    document_.tensors.emplace_back(Dims{shape[0], shape[1], shape[2], 1}, weights_.dtype());
    document_.query = document_.tensors.back().view();
    document_.tensors.emplace_back(Dims{shape[0], 1, shape[3], 1}, weights_.dtype());
    document_.key = document_.value = document_.tensors.back().view();
    document_.has_value = false;
    if (allowed) {
      document_.tensors.push_back(Tensor::copy_of(*allowed));
      document_.options.mask = document_.tensors.back().view();
    } else if (is_causal()) {
      document_.options.causal = true;
      document_.options.align = Align::bottom_right;
    }
    problem_ = check_call(document_.query, document_.key, document_.value, document_.options);
    if (allowed) check_forbidden();
  }

  void check_forbidden() const {
    const Tensor open = allowed_of(problem_);
    const auto values = open.values<bool>();
    const Tensor numbers = Tensor::copy_of(weights_, DType::f64);
    for (std::size_t at = 0; at < values.size(); ++at)
      if (!values[at] && numbers.values<double>()[at] != 0)
        refuse("allowed forbids a key that weighs ", numbers.values<double>()[at],
               "; 0 is expected where it is false");
  }

  void describe() {
    AttentionReport& made = report();
    made.kernel = "given weights";
    made.isa = "none";
    AttentionOptions said = document_.options;
    said.bias.reset();
    said.scale.reset();
    describe_call(problem_, said, wanted_, made);
    document_.has_report = true;
  }

  void add_rows() {
    AttentionReport& made = report();
    for (Tensor* tensor : {&made.lse, &made.max_score, &made.entropy, &made.distance, &made.max_weight})
      *tensor = row_tensor(problem_);
    const std::int64_t top_k = std::min(wanted_.top_k, made.keys);
    made.top_k_index = Tensor({made.batch, made.heads, made.queries, top_k}, DType::i64);
    made.top_k_weight = Tensor({made.batch, made.heads, made.queries, top_k}, made.lse.dtype());
    if (wanted_.received) made.received = Tensor({made.batch, made.heads, made.keys}, made.lse.dtype());
    const MapSize size{std::min(wanted_.map.rows, made.queries), std::min(wanted_.map.columns, made.keys)};
    const bool has_map = size.rows > 0 && size.columns > 0;
    Tensor map({made.batch, made.heads, has_map ? size.rows : 0, has_map ? size.columns : 0}, DType::f64);
    parallel_for(made.batch * made.heads, problem_.threads,
                 [&](std::int64_t n, int) { add_head(n / made.heads, n % made.heads, map); });
    if (has_map) made.map = pool_map(map);
  }

  void add_head(std::int64_t b, std::int64_t h, Tensor& map) {
    AttentionReport& made = report();
    std::vector<double> received(static_cast<std::size_t>(made.keys));
    for (std::int64_t i = 0; i < made.queries; ++i) {
      const std::vector<std::int64_t> keys = allowed_in(b, h, i);
      add_row(b, h, i, keys);
      for (const std::int64_t j : keys) {
        const double weight = number_at(weights_, {b, h, i, j});
        received[static_cast<std::size_t>(j)] += weight;
        if (map.count() > 0)
          map.at<double>(b, h, i * map.size(2) / made.queries, j * map.size(3) / made.keys) += weight;
      }
    }
    if (!wanted_.received) return;
    for (std::int64_t j = 0; j < made.keys; ++j)
      put(made.received, {b, h, j}, received[static_cast<std::size_t>(j)]);
  }

  [[nodiscard]] std::vector<std::int64_t> allowed_in(std::int64_t b, std::int64_t h, std::int64_t i) const {
    const Segment& segment = problem_.segments[static_cast<std::size_t>(b)];
    const Row row{b, h, 0, i, i + segment.offset};
    std::vector<std::int64_t> keys;
    for (std::int64_t j = 0; j < problem_.key_length; ++j)
      if (is_allowed(problem_, segment, row, j)) keys.push_back(j);
    return keys;
  }

  void add_row(std::int64_t b, std::int64_t h, std::int64_t i, std::vector<std::int64_t> keys) {
    AttentionReport& made = report();
    const auto weight = [&](std::int64_t j) { return number_at(weights_, {b, h, i, j}); };
    const double position = static_cast<double>(made.position.at<std::int64_t>(b, i));
    Found found;
    for (const std::int64_t j : keys) {
      const double p = weight(j);
      found.sum += p;
      found.largest = std::max(found.largest, p);
      if (p > 0) found.entropy -= p * std::log(p);
      found.distance += p * std::abs(position - static_cast<double>(j));
    }
    const bool numbers = !std::isnan(found.sum);
    const auto number = [&](double value) { return numbers ? value : std::nan(""); };
    put(made.lse, {b, h, i}, keys.empty() ? -kInfinity : number(0));
    put(made.max_score, {b, h, i}, keys.empty() ? -kInfinity : number(std::log(found.largest)));
    put(made.entropy, {b, h, i}, number(found.entropy));
    put(made.distance, {b, h, i}, number(found.distance));
    put(made.max_weight, {b, h, i}, number(found.largest));

    std::erase_if(keys, [&](std::int64_t j) { return std::isnan(weight(j)); });
    const std::int64_t top_k = made.top_k_index.size(3);
    keep_largest(keys, top_k, weight);
    const auto ranked = std::ssize(keys);
    for (std::int64_t k = 0; k < top_k; ++k) {
      made.top_k_index.at<std::int64_t>(b, h, i, k) = k < ranked ? keys[static_cast<std::size_t>(k)] : -1;
      put(made.top_k_weight, {b, h, i, k}, k < ranked ? weight(keys[static_cast<std::size_t>(k)]) : 0);
    }
  }

  static void put(Tensor& tensor, std::initializer_list<std::int64_t> index, double value) {
    std::int64_t at = 0;
    int axis = 0;
    for (const std::int64_t i : index) at = at * tensor.size(axis++) + i;
    if (tensor.dtype() == DType::f64)
      tensor.values<double>()[static_cast<std::size_t>(at)] = value;
    else
      tensor.values<float>()[static_cast<std::size_t>(at)] = static_cast<float>(value);
  }

  ReportOptions wanted_;
  Tensor weights_;  // [B, H, Lq, Lk], f32 or f64
  Document document_;
  Problem problem_;
};

}  // namespace
}  // namespace detail

Document document_of_weights(const TensorView& weights, const std::optional<TensorView>& allowed,
                             const ReportOptions& wanted) {
  return detail::WeightsReader(weights, allowed, wanted).document();
}

}  // namespace heed
