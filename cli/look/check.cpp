#include "look/check.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace heed::cli {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class Checker {
 public:
  Checker(const Subject& subject, const LookArguments& arguments)
      : subject_(subject), arguments_(arguments) {}

  std::vector<CheckLine> run() {
    const AttentionReport& report = subject_.report;
    for (std::int64_t b = 0; b < report.batch; ++b)
      for (std::int64_t h = 0; h < report.heads; ++h) {
        if (b != arguments_.batch.value_or(b) || h != arguments_.head.value_or(h)) continue;
        find_longest_key(b, h);
        const std::int64_t count = std::min(*arguments_.check, report.queries);
        for (std::int64_t r = 0; r < count; ++r)
          check_row(b, h, count == 1 ? 0 : r * (report.queries - 1) / (count - 1));
        check_sums(b, h);
      }
    return lines_;
  }

 private:
  double unit() const { return subject_.report.dtype == DType::f64 ? 0x1p-53 : 0x1p-24; }

  static double length_of(const Tensor& row) {
    double sum = 0;
    for (const double x : row.values<double>()) sum += x * x;
    return std::sqrt(sum);
  }
  TensorView row_of(const TensorView& view, std::int64_t b, std::int64_t h, std::int64_t i) const {
    return view.select(0, b).select(0, h).select(0, i);
  }
  std::int64_t kv_head(std::int64_t h) const {
    return h / (subject_.report.heads / subject_.report.kv_heads);
  }

  void find_longest_key(std::int64_t b, std::int64_t h) {
    longest_key_ = 0;
    for (std::int64_t j = 0; j < subject_.report.keys; ++j) {
      const double length =
          length_of(Tensor::copy_of(row_of(subject_.call.key, b, kv_head(h), j), DType::f64));
      if (length > longest_key_) longest_key_ = length;  // NaN of a forbidden key stays out
    }
  }

  // Relative error of a weight of a row: the scores', at most u (D + 3) |scale| |q| |k| each (Cauchy and
  // Schwarz), twice with the lse's, and 1e-5 for all sums. The kernel's bias and ALiBi round with the lse.
  double tolerance(std::int64_t b, std::int64_t h, std::int64_t i, double lse) const {
    const AttentionReport& report = subject_.report;
    const double dim = static_cast<double>(report.head_dim);
    const double scale = std::abs(subject_.call.options.scale.value_or(1 / std::sqrt(dim)));
    const double query = length_of(Tensor::copy_of(row_of(subject_.call.query, b, h, i), DType::f64));
    const double score = scale * query * longest_key_ + std::abs(std::isfinite(lse) ? lse : 0);
    const double sums = report.dtype == DType::f64 ? 1e-11 : 1e-5;
    return sums + 4 * unit() * (dim + 3) * score;
  }

  // Deviation relative to the larger of the expected number and `least`; equal NaNs agree.
  void compare(const char* what, double got, double expected, double allowed, double least) {
    const bool both_nan = std::isnan(got) && std::isnan(expected);
    const double size = std::max(std::abs(expected), least);
    note(what, both_nan || got == expected ? 0 : std::abs(got - expected) / size, allowed);
  }

  void note(const char* what, double deviation, double allowed) {
    auto line =
        std::find_if(lines_.begin(), lines_.end(), [&](const CheckLine& l) { return l.what == what; });
    if (line == lines_.end()) line = lines_.insert(line, CheckLine{what, 0, allowed});
    const bool worse = std::isnan(deviation) || deviation * line->allowed > line->deviation * allowed;
    if (!std::isnan(line->deviation) && worse) *line = {what, deviation, allowed};
  }

  // The softmax of the row from its weights, whose sum, with the sink's share, must be 1.
  void check_row(std::int64_t b, std::int64_t h, std::int64_t i) {
    const AttentionReport& report = subject_.report;
    const double lse = number_at(report.lse, {b, h, i});
    const WeightTile tile = attention_tile(subject_.call.query, subject_.call.key, subject_.call.options,
                                           report.lse, {i, i + 1, 0, report.keys, b, h});
    weights_.clear();
    double sum = 0;
    bool any = false;
    for (std::int64_t j = 0; j < report.keys; ++j) {
      weights_.push_back(number_at(tile.weights, {0, 0, 0, j}));
      sum += weights_.back();
      any = any || tile.allowed.at<bool>(0, 0, 0, j);
    }
    if (!any || std::isnan(lse)) return;
    const double allowed = tolerance(b, h, i, lse);
    const double mass = 1 - sink_share(h, lse);
    compare("weights of a row sum to 1", sum, mass, allowed, 1);
    for (double& weight : weights_) weight *= sum > 0 ? mass / sum : 1;
    check_figures(b, h, i, allowed);
    if (subject_.has_value && subject_.call.options.dropout.probability == 0) check_output(b, h, i, allowed);
  }

  double sink_share(std::int64_t h, double lse) const {
    const auto& sinks = subject_.call.options.sinks;
    if (!sinks) return 0;
    const Tensor logits = Tensor::copy_of(*sinks, DType::f64);
    return std::exp(logits.values<double>()[logits.count() == 1 ? 0 : static_cast<std::size_t>(h)] - lse);
  }

  double weight(std::int64_t j) const {
    return j >= 0 && j < subject_.report.keys ? weights_[static_cast<std::size_t>(j)] : 0;
  }

  // Where the row's segment begins among the keys.
  std::int64_t segment_begin(std::int64_t i) const {
    const AttentionOptions& options = subject_.call.options;
    if (!options.query_segments) return 0;
    const Tensor queries = Tensor::copy_of(*options.query_segments, DType::i64);
    const Tensor keys = Tensor::copy_of(*options.key_segments, DType::i64);
    std::int64_t s = 0;
    while (queries.at<std::int64_t>(s + 1) <= i) ++s;
    return keys.at<std::int64_t>(s);
  }

  void check_figures(std::int64_t b, std::int64_t h, std::int64_t i, double allowed) {
    const AttentionReport& report = subject_.report;
    const std::int64_t begin = segment_begin(i);
    const std::int64_t position = report.position.at<std::int64_t>(b, i);
    double entropy = 0, distance = 0, largest = 0;
    for (std::int64_t j = 0; j < report.keys; ++j) {
      const double p = weight(j);
      if (p > 0) entropy -= p * std::log(p);
      distance += p * std::abs(static_cast<double>(position - (j - begin)));
      largest = std::max(largest, p);
    }
    const auto check = [&](const char* what, const Tensor& tensor, double expected, double least) {
      compare(what, number_at(tensor, {b, h, i}), expected, allowed, least);
    };
    // A weight is compared beside the largest of its row: below a thousandth of that it is too small to see.
    const double least = 1e-3 * largest;
    check("entropy", report.entropy, entropy, 1);
    check("distance", report.distance, distance, 1);
    check("max weight", report.max_weight, largest, least);
    check("first", report.first, weight(begin), least);
    check("self", report.self, weight(begin + position), least);
    check("previous", report.previous, weight(begin + position - 1), least);
    check("next", report.next, weight(begin + position + 1), least);
    for (std::int64_t k = 0; report.top_k_index.rank() == 4 && k < report.top_k_index.size(3); ++k) {
      const std::int64_t j = report.top_k_index.at<std::int64_t>(b, h, i, k);
      if (j >= 0) compare("top-k", number_at(report.top_k_weight, {b, h, i, k}), weight(j), allowed, least);
    }
  }

  // sum_j p_ij v_j, its deviation beside sum_j p_ij |v_j|.
  void check_output(std::int64_t b, std::int64_t h, std::int64_t i, double allowed) {
    const AttentionReport& report = subject_.report;
    std::vector<double> sums(static_cast<std::size_t>(report.value_dim), 0);
    std::vector<double> sizes = sums;
    for (std::int64_t j = 0; j < report.keys; ++j) {
      if (weight(j) == 0) continue;
      const Tensor value = Tensor::copy_of(row_of(subject_.call.value, b, kv_head(h), j), DType::f64);
      for (std::size_t c = 0; c < sums.size(); ++c) {
        sums[c] += weight(j) * value.values<double>()[c];
        sizes[c] += weight(j) * std::abs(value.values<double>()[c]);
      }
    }
    const Tensor output = Tensor::copy_of(row_of(report.output, b, h, i), DType::f64);
    // The output is rounded to its own dtype.
    const double stored = report.dtype == DType::f16 ? 0x1p-11 : report.dtype == DType::bf16 ? 0x1p-8 : 0;
    for (std::size_t c = 0; c < sums.size(); ++c)
      compare("weights times values rebuild the output", output.values<double>()[c], sums[c],
              (allowed + stored) * std::max(sizes[c], 1e-30) / std::max({std::abs(sums[c]), sizes[c], 1e-30}),
              std::max(sizes[c], 1e-30));
  }

  // What all rows of the head give to keys, from the report's own row figures: 1 for each row with a key.
  void check_sums(std::int64_t b, std::int64_t h) {
    const AttentionReport& report = subject_.report;
    double rows = 0;
    for (std::int64_t i = 0; i < report.queries; ++i) {
      const double lse = number_at(report.lse, {b, h, i});
      const double score = number_at(report.max_score, {b, h, i});
      if (std::isnan(lse)) return;  // NaN rows make every sum NaN
      if (score != -std::numeric_limits<double>::infinity()) rows += 1 - sink_share(h, lse);
    }
    const double allowed = report.dtype == DType::f64 ? 1e-9 : 1e-4;
    double received = report.received.rank() == 3 ? 0 : kNaN;
    if (report.received.rank() == 3) {
      for (std::int64_t j = 0; j < report.keys; ++j) received += number_at(report.received, {b, h, j});
      compare("received sums to the rows", received, rows, allowed, 1);
    }
    if (report.map.empty()) return;
    compare("the map sums to the rows", number_at(report.map.back(), {b, h, 0, 0}), rows, allowed, 1);
  }

  const Subject& subject_;
  const LookArguments& arguments_;
  double longest_key_ = 0;
  std::vector<double> weights_;
  std::vector<CheckLine> lines_;
};

}  // namespace

std::vector<CheckLine> check_report(const Subject& subject, const LookArguments& arguments) {
  return Checker(subject, arguments).run();
}

}  // namespace heed::cli
