// Summaries of heads, and the plain rules that name them (docs/heads.md).
#include "inspect/heads.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "attention/call/elements.hpp"
#include "attention/rules/score_rules.hpp"
#include "inspect/rows.hpp"

namespace heed {

std::string_view name_of(HeadPattern pattern) noexcept {
  switch (pattern) {
    case HeadPattern::previous_token:
      return "previous-token";
    case HeadPattern::induction:
      return "induction";
    case HeadPattern::first_token_sink:
      return "first-token sink";
    case HeadPattern::local:
      return "local";
    default:
      return "uniform";
  }
}

double threshold_of(HeadPattern pattern) noexcept {
  return pattern == HeadPattern::local || pattern == HeadPattern::uniform ? 0.75 : 0.5;
}

std::string_view HeadSummary::name() const noexcept {
  for (const PatternScore& score : patterns)
    if (score.named) return name_of(score.pattern);
  return "mixed";
}

namespace detail {
namespace {

// Less of the softmax than this goes to keys (the rest to a sink logit): what remains says nothing.
constexpr double kLeastMass = 1e-6;

class Mean {
 public:
  void add(double value) {
    sum_ += value;
    ++count_;
  }
  [[nodiscard]] double value() const {
    return count_ > 0 ? sum_ / static_cast<double>(count_) : std::numeric_limits<double>::quiet_NaN();
  }

 private:
  double sum_ = 0;
  std::int64_t count_ = 0;
};

class RowReader {
 public:
  RowReader(const Tensor& tensor, std::int64_t batch, std::int64_t head) {
    const TensorView view = tensor.view();
    from_ = {view.data(), view.dtype(), {view.strides()[0], view.strides()[1], view.strides()[2], 0}};
    batch_ = batch;
    head_ = head;
  }
  double operator()(std::int64_t i) const { return read(from_, batch_, head_, i); }

 private:
  Operand from_;
  std::int64_t batch_, head_;
};

class Summary {
 public:
  Summary(const Problem& p, const AttentionReport& report, std::int64_t batch, std::int64_t head)
      : p_(p), report_(report) {
    summary_.batch = batch;
    summary_.head = head;
  }

  HeadSummary make() {
    const std::vector<AllowedKeys> allowed = allowed_keys_of(p_, summary_.batch, summary_.head);
    const RowReader lse = reader(report_.lse);
    for (std::int64_t i = 0; i < report_.queries; ++i) {
      const AllowedKeys& row = allowed[static_cast<std::size_t>(i)];
      if (row.keys == 0) continue;
      if (std::isnan(lse(i))) {
        ++summary_.nan_rows;
        continue;
      }
      ++summary_.rows;
      rows_.push_back(i);
      allowed_.push_back(row);
    }
    summary_.entropy = mean(report_.entropy);
    summary_.max_weight = mean(report_.max_weight);
    summary_.distance = mean(report_.distance);
    summary_.first = mean(report_.first);
    summary_.self = mean(report_.self);
    summary_.previous = mean(report_.previous);
    summary_.next = mean(report_.next);
    summary_.induction = mean_of_numbers(report_.induction);
    score_patterns();
    return std::move(summary_);
  }

 private:
  [[nodiscard]] RowReader reader(const Tensor& tensor) const {
    return {tensor, summary_.batch, summary_.head};
  }

  [[nodiscard]] double mean(const Tensor& tensor) const {
    const RowReader value = reader(tensor);
    Mean mean;
    for (std::int64_t i : rows_) mean.add(value(i));
    return mean.value();
  }

  // Over rows that have a number there.
  [[nodiscard]] double mean_of_numbers(const Tensor& tensor) const {
    Mean mean;
    if (tensor.rank() == 3) {
      const RowReader value = reader(tensor);
      for (std::int64_t i : rows_)
        if (!std::isnan(value(i))) mean.add(value(i));
    }
    return mean.value();
  }

  // What of the softmax goes to keys: all but what a sink logit takes.
  [[nodiscard]] double mass(double lse) const {
    return p_.sinks ? 1 - std::exp(read(p_.sinks, 0, summary_.head) - lse) : 1;
  }

  // The rules count rows that have a choice: two allowed keys or more.
  void score_patterns() {
    const RowReader lse = reader(report_.lse);
    const RowReader previous = reader(report_.previous);
    const RowReader first = reader(report_.first);
    const RowReader entropy = reader(report_.entropy);
    const RowReader distance = reader(report_.distance);
    Mean on_previous, on_first, evenness, distances, even_distances;
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      const std::int64_t i = rows_[r];
      if (allowed_[r].keys < 2) continue;
      on_previous.add(previous(i));
      on_first.add(first(i));
      const double share = mass(lse(i));
      if (!(share > kLeastMass)) continue;
      evenness.add(std::exp(entropy(i) / share + std::log(share)) / allowed_[r].keys);
      distances.add(distance(i) / share);
      even_distances.add(allowed_[r].distance);
    }
    const double nearness = 1 - distances.value() / even_distances.value();
    add(HeadPattern::previous_token, on_previous.value());
    add(HeadPattern::induction, summary_.induction);
    add(HeadPattern::first_token_sink, on_first.value());
    add(HeadPattern::local, nearness);
    add(HeadPattern::uniform, evenness.value());
  }

  void add(HeadPattern pattern, double score) {
    const double within = std::isnan(score) ? score : std::clamp(score, 0.0, 1.0);
    summary_.patterns.push_back({pattern, within, within >= threshold_of(pattern)});
  }

  const Problem& p_;
  const AttentionReport& report_;
  HeadSummary summary_;
  std::vector<std::int64_t> rows_;    // that see a key and hold numbers
  std::vector<AllowedKeys> allowed_;  // theirs
};

// Equal sums by the lower index; NaN last.
void find_most_received(const Tensor& received, std::int64_t count, HeadSummary& summary) {
  const RowReader value(received, summary.batch, summary.head);
  std::vector<double> sums(static_cast<std::size_t>(received.size(2)));
  for (std::size_t j = 0; j < sums.size(); ++j) {
    const double sum = value(static_cast<std::int64_t>(j));
    sums[j] = std::isnan(sum) ? -kInfinity : sum;
  }
  std::vector<std::int64_t> order(sums.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto found = std::min(count, static_cast<std::int64_t>(order.size()));
  const auto sum_of = [&](std::int64_t j) { return sums[static_cast<std::size_t>(j)]; };
  std::partial_sort(order.begin(), order.begin() + found, order.end(), [&](std::int64_t a, std::int64_t b) {
    return sum_of(a) > sum_of(b) || (sum_of(a) == sum_of(b) && a < b);
  });
  for (std::int64_t k = 0; k < found; ++k) {
    summary.most_received.push_back(order[static_cast<std::size_t>(k)]);
    summary.most_received_weight.push_back(value(summary.most_received.back()));
  }
}

}  // namespace

void fill_summaries(const Problem& problem, std::int64_t most_received, AttentionReport& report) {
  for (std::int64_t batch = 0; batch < report.batch; ++batch)
    for (std::int64_t head = 0; head < report.heads; ++head) {
      HeadSummary summary = Summary(problem, report, batch, head).make();
      if (report.received.rank() == 3) find_most_received(report.received, most_received, summary);
      report.summaries.push_back(std::move(summary));
    }
}

}  // namespace detail
}  // namespace heed
