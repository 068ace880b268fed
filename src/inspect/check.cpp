// check_document(): recomputes rows, keys and bins of the map in a simple way (inspect/plain_head.hpp).
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "core/index.hpp"
#include "inspect/document_format.hpp"
#include "inspect/plain_head.hpp"

namespace heed {
namespace detail {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kCellsOfBins = 64;  // budget of cells in recomputed bins, per row or key
constexpr double kLost = 0.5;              // a weight with a larger relative error counts as lost

// `count` evenly spaced numbers of 0 … all - 1, including the first and the last.
std::vector<std::int64_t> spread(std::int64_t count, std::int64_t all) {
  std::vector<std::int64_t> places;
  count = std::min(count, all);
  for (std::int64_t n = 0; n < count; ++n) places.push_back(count == 1 ? 0 : n * (all - 1) / (count - 1));
  return places;
}

class HeadCheck {
 public:
  HeadCheck(const Document& document, std::int64_t batch, std::int64_t head, std::int64_t count,
            DocumentCheck& check)
      : document_(document),
        report_(document.report),
        b_(batch),
        h_(head),
        count_(count),
        check_(check),
        plain_(document, batch, head),
        lse_(numbers_of(report_.lse)) {}

  void run() {
    const std::int64_t before = check_.rows;
    for (const std::int64_t i : spread(count_, report_.queries)) check_row(i);
    if (check_.rows == before) check_.bare_heads.emplace_back(b_, h_);
    check_means();
    if (report_.received.rank() == 3) check_received();
    if (!report_.map.empty()) check_map();
  }

 private:
  double unit() const { return report_.dtype == DType::f64 ? 0x1p-53 : 0x1p-24; }

  std::vector<double> numbers_of(const Tensor& tensor) const {
    std::vector<double> all;
    if (tensor.rank() != 3) return all;
    const Tensor copy = Tensor::copy_of(tensor.view().select(0, b_).select(0, h_), DType::f64);
    all.assign(copy.values<double>().begin(), copy.values<double>().end());
    return all;
  }

  // Relative error of a row's weight. Each score has an error of at most u (D + 3) |scale| |q| |k| (Cauchy
  // and Schwarz); the lse adds the same again, and all sums 1e-5. The kernel's bias and ALiBi round like the
  // lse.
  double tolerance(double size) const {
    const double sums = report_.dtype == DType::f64 ? 1e-11 : 1e-5;
    return sums + 4 * unit() * (static_cast<double>(report_.head_dim) + 3) * size;
  }

  // Deviation relative to the larger of the expected number and `least`; equal NaNs and infinities agree.
  void compare(const char* what, double got, double expected, double allowed, double least) {
    const bool both_nan = std::isnan(got) && std::isnan(expected);
    const double size = std::max(std::abs(expected), least);
    note(what, both_nan || got == expected ? 0 : std::abs(got - expected) / size, allowed);
  }

  void note(const char* what, double deviation, double allowed) {
    auto& lines = check_.lines;
    auto line = std::ranges::find(lines, what, &CheckLine::what);
    if (line == lines.end()) line = lines.insert(line, CheckLine{what, 0, allowed});
    const auto excess = [](double by, double most) { return most > 0 ? by / most : by > 0 ? kInfinity : 0; };
    const bool worse =
        std::isnan(deviation) || excess(deviation, allowed) > excess(line->deviation, line->allowed);
    if (!std::isnan(line->deviation) && worse) *line = {what, deviation, allowed};
  }

  void check_row(std::int64_t i) {
    const PlainRow row = plain_.row(i);
    check_place(i, row.place);
    if (std::isnan(row.lse)) {
      ++check_.nan_rows;
      for (const Tensor* tensor : {&report_.lse, &report_.entropy, &report_.distance, &report_.max_weight})
        note("rows of NaN", std::isnan(number_at(*tensor, {b_, h_, i})) ? 0 : kInfinity, 0);
      return;
    }
    const double allowed = tolerance(row.size);
    if (!(allowed < kLost)) {
      ++check_.lost_rows;
      return;
    }
    ++check_.rows;
    const double largest = row.weights.empty() ? 0 : *std::ranges::max_element(row.weights);
    // A weight is compared relative to the row's largest weight; below a thousandth of that it is negligible.
    const double least = 1e-3 * largest;
    compare("lse", number_at(report_.lse, {b_, h_, i}), row.lse, allowed, 1);
    compare("max score", number_at(report_.max_score, {b_, h_, i}), row.max_score, allowed, 1);
    check_weights(i, row, allowed, least);
    check_numbers(i, row, largest, allowed, least);
    check_top_k(i, row, allowed, least);
    const bool output = document_.has_value && document_.options.dropout.probability == 0;
    if (output) check_output(i, row, allowed);
    check_.output = check_.output && output;
  }

  void check_place(std::int64_t i, const PlainPlace& place) {
    const auto whole = [&](const Tensor& tensor) { return tensor.at<std::int64_t>(b_, i); };
    const bool same_keys =
        whole(report_.key_begin) == place.seen.begin && whole(report_.key_end) == place.seen.end;
    const bool no_keys =
        whole(report_.key_begin) == whole(report_.key_end) && place.seen.begin == place.seen.end;
    note("position and keys", whole(report_.position) == place.position && (same_keys || no_keys) ? 0 : 1, 0);
  }

  // Single weights, as --row and --tile show them.
  void check_weights(std::int64_t i, const PlainRow& row, double allowed, double least) {
    const WeightTile tile = attention_tile(document_, {i, i + 1, 0, report_.keys, b_, h_});
    for (std::int64_t j = 0; j < report_.keys; ++j)
      compare("weights", number_at(tile.weights, {0, 0, 0, j}), weight(row, j), allowed, least);
  }

  static double weight(const PlainRow& row, std::int64_t j) {
    return j >= 0 && j < std::ssize(row.weights) ? row.weights[static_cast<std::size_t>(j)] : 0;
  }

  void check_numbers(std::int64_t i, const PlainRow& row, double largest, double allowed, double least) {
    const PlainPlace& place = row.place;
    double entropy = 0, distance = 0;
    for (std::int64_t j = place.seen.begin; j < place.seen.end; ++j) {
      const double p = weight(row, j);
      if (p > 0) entropy -= p * std::log(p);
      distance += p * std::abs(static_cast<double>(place.position - (j - place.segment.begin)));
    }
    const auto check = [&](const char* what, const Tensor& tensor, double expected, double least_size) {
      compare(what, number_at(tensor, {b_, h_, i}), expected, allowed, least_size);
    };
    const std::int64_t here = place.segment.begin + place.position;
    check("entropy", report_.entropy, entropy, 1);
    check("distance", report_.distance, distance, 1);
    check("max weight", report_.max_weight, largest, least);
    check("first", report_.first, weight(row, place.segment.begin), least);
    check("self", report_.self, weight(row, here), least);
    check("previous", report_.previous, weight(row, here - 1), least);
    check("next", report_.next, weight(row, here + 1), least);
    if (report_.induction.rank() == 3) check("induction", report_.induction, induction(i, row), least);
  }

  // Compares ids if rows and keys have them.
  bool holds_token_of(std::int64_t i, std::int64_t j) const {
    const auto row = static_cast<std::size_t>(i), key = static_cast<std::size_t>(j);
    if (report_.query_token_ids.empty() || report_.key_token_ids.empty())
      return report_.query_tokens[row] == report_.key_tokens[key];
    return report_.query_token_ids[row] == report_.key_token_ids[key];
  }

  // Weight on the keys before the row that follow an earlier copy of its token; NaN if there are none.
  double induction(std::int64_t i, const PlainRow& row) const {
    const Range& keys = row.place.segment;
    double sum = 0;
    bool any = false;
    for (std::int64_t j = keys.begin; j + 1 < keys.end; ++j) {
      if (j + 1 - keys.begin >= row.place.position) break;
      if (!holds_token_of(i, j)) continue;
      sum += weight(row, j + 1);
      any = true;
    }
    return any ? sum : std::nan("");
  }

  // Checks that each of the K keys has the reported weight, that none is repeated, and that no other key is
  // heavier.
  void check_top_k(std::int64_t i, const PlainRow& row, double allowed, double least) {
    if (report_.top_k_index.rank() != 4) return;
    std::vector<double> heaviest;
    for (std::size_t j = 0; j < row.weights.size(); ++j)
      if (row.scores[j] != -kInfinity) heaviest.push_back(row.weights[j]);
    std::ranges::sort(heaviest, std::greater<>());
    std::vector<std::int64_t> seen;
    for (std::int64_t k = 0; k < report_.top_k_index.size(3); ++k) {
      const std::int64_t j = report_.top_k_index.at<std::int64_t>(b_, h_, i, k);
      const bool expected = k < std::ssize(heaviest);
      const bool twice = std::ranges::find(seen, j) != seen.end();
      if ((j >= 0) != expected || (j >= 0 && twice)) note("top-k", kInfinity, allowed);
      if (j < 0 || !expected) continue;
      seen.push_back(j);
      compare("top-k", number_at(report_.top_k_weight, {b_, h_, i, k}), weight(row, j), allowed, least);
      compare("top-k", weight(row, j), heaviest[static_cast<std::size_t>(k)], allowed, least);
    }
  }

  // Checks sum_j p_ij v_j; the deviation is relative to sum_j p_ij |v_j|.
  void check_output(std::int64_t i, const PlainRow& row, double allowed) {
    std::vector<double> sums, sizes;
    plain_.output(row, sums, sizes);
    const Tensor output =
        Tensor::copy_of(report_.output.view().select(0, b_).select(0, h_).select(0, i), DType::f64);
    // The output is rounded to its dtype; bf16 weights are also rounded before they multiply the values.
    const double stored = report_.dtype == DType::f16 ? 0x1p-11 : report_.dtype == DType::bf16 ? 0x1p-7 : 0;
    constexpr double kMaxF16 = 65504;
    for (std::size_t c = 0; c < sums.size(); ++c) {
      const bool overflows = report_.dtype == DType::f16 && std::abs(sums[c]) > kMaxF16 * (1 - allowed);
      const double got = output.values<double>()[c];
      if (overflows && std::isinf(got) && std::signbit(got) == std::signbit(sums[c])) continue;
      const double size = std::max(sizes[c], 1e-30);
      compare("weights times values rebuild the output", got, sums[c],
              (allowed + stored) * size / std::max(std::abs(sums[c]), size), size);
    }
  }

  // Checks the means of the summary over rows that see a key and have no NaN weights.
  void check_means() {
    const auto summary = std::ranges::find_if(
        report_.summaries, [&](const HeadSummary& s) { return s.batch == b_ && s.head == h_; });
    if (summary == report_.summaries.end()) return;
    const std::vector<double> scores = numbers_of(report_.max_score);
    std::vector<std::size_t> rows;
    std::int64_t nan_rows = 0;
    for (std::size_t i = 0; i < lse_.size(); ++i) {
      if (scores[i] == -kInfinity) continue;
      if (std::isnan(lse_[i]))
        ++nan_rows;
      else
        rows.push_back(i);
    }
    note("rows that hold numbers", std::ssize(rows) == summary->rows && nan_rows == summary->nan_rows ? 0 : 1,
         0);
    for (const SummaryField& field : kSummaryFields) {
      const std::vector<double> all = numbers_of(report_.*field.rows);
      double sum = 0, count = 0;
      for (std::size_t k = 0; k < rows.size() && !all.empty(); ++k)
        if (!std::isnan(all[rows[k]])) sum += all[rows[k]], ++count;
      compare("means of the rows", (*summary).*field.value, count > 0 ? sum / count : std::nan(""), 1e-9, 1);
    }
    check_most_received(*summary);
  }

  void check_most_received(const HeadSummary& summary) {
    const std::vector<double> received = numbers_of(report_.received);
    std::vector<double> heaviest;
    for (const double sum : received)
      if (!std::isnan(sum)) heaviest.push_back(sum);
    std::ranges::sort(heaviest, std::greater<>());
    for (std::size_t k = 0; k < std::min(summary.most_received.size(), heaviest.size()); ++k) {
      const auto key = static_cast<std::size_t>(summary.most_received[k]);
      compare("attended to most", summary.most_received_weight[k], heaviest[k], 1e-9, 1);
      compare("attended to most", received[key], heaviest[k], 1e-9, 1);
    }
  }

  // Tolerance of sums over rows: the error of the weights, plus 1e-4 for f32 sums of any length.
  double tolerance_of_sums() const {
    double size = 0;
    for (const double lse : lse_)
      if (std::isfinite(lse)) size = std::max(size, std::abs(lse));
    return tolerance(size + plain_.size()) + (report_.dtype == DType::f64 ? 1e-9 : 1e-4);
  }

  // Compares each key relative to the mean received weight; a thousandth of that is negligible.
  void check_received() {
    const double allowed = tolerance_of_sums();
    const double least = 1e-3 * static_cast<double>(report_.queries) /
                         static_cast<double>(std::max<std::int64_t>(1, report_.keys));
    for (const std::int64_t j : spread(count_, report_.keys)) {
      ++check_.keys;
      compare("received", number_at(report_.received, {b_, h_, j}),
              plain_.sum({0, report_.queries}, {j, j + 1}, lse_), allowed, least);
    }
    double sum = 0;
    for (const double received : numbers_of(report_.received)) sum += received;
    compare("received sums to the rows", sum, rows_given(), allowed, 1);
  }

  // The total weight that the head's rows give to keys: 1 per row with a key, less the sink's share.
  double rows_given() {
    const std::vector<double> scores = numbers_of(report_.max_score);
    double rows = 0;
    for (std::size_t i = 0; i < lse_.size(); ++i)
      if (!(scores[i] == -kInfinity)) rows += std::isnan(lse_[i]) ? lse_[i] : 1 - plain_.sink_share(lse_[i]);
    return rows;
  }

  // All bins, or alternately bins on the diagonal and bins below it that a causal mask allows.
  std::vector<std::pair<std::int64_t, std::int64_t>> some_bins(std::int64_t rows,
                                                               std::int64_t columns) const {
    std::vector<std::pair<std::int64_t, std::int64_t>> bins;
    if (rows <= count_ / columns) {
      for (std::int64_t n = 0; n < rows * columns; ++n) bins.emplace_back(n / columns, n % columns);
      return bins;
    }
    for (const std::int64_t r : spread(count_, rows))
      bins.emplace_back(r, r * columns / rows / (bins.size() % 2 == 0 ? 1 : 2));
    return bins;
  }

  // Recomputes some bins within the budget kCellsOfBins, and always checks the total.
  void check_map() {
    const Tensor& map = report_.map[0];
    const std::int64_t rows = map.size(2), columns = map.size(3);
    const double allowed = tolerance_of_sums();
    std::int64_t left = kCellsOfBins * std::max(report_.queries, report_.keys);
    for (const auto& [r, c] : some_bins(rows, columns)) {
      const Range row{begin_of_bin(r, rows, report_.queries), begin_of_bin(r + 1, rows, report_.queries)};
      const Range key{begin_of_bin(c, columns, report_.keys), begin_of_bin(c + 1, columns, report_.keys)};
      const std::int64_t cells = (row.end - row.begin) * (key.end - key.begin);
      if (cells > left) break;
      left -= cells;
      ++check_.bins;
      const double least = 1e-3 * static_cast<double>(cells) / static_cast<double>(report_.keys);
      compare("map", number_at(map, {b_, h_, r, c}), plain_.sum(row, key, lse_), allowed, least);
    }
    compare("the map sums to the rows", number_at(report_.map.back(), {b_, h_, 0, 0}), rows_given(), allowed,
            1);
  }

  const Document& document_;
  const AttentionReport& report_;
  std::int64_t b_, h_, count_;
  DocumentCheck& check_;
  PlainHead plain_;
  std::vector<double> lse_;
};

}  // namespace
}  // namespace detail

bool DocumentCheck::holds() const {
  return std::ranges::all_of(lines, [](const CheckLine& line) { return line.holds(); });
}

DocumentCheck check_document(const Document& document, std::int64_t rows, std::int64_t batch,
                             std::int64_t head) {
  detail::require_report(document);
  if (rows < 1) detail::refuse("rows is ", rows, "; 1 or more is expected");
  detail::check_range("batch", batch, -1, document.report.batch - 1);
  detail::check_range("head", head, -1, document.report.heads - 1);
  const auto wanted = [](std::int64_t index, std::int64_t asked) { return asked < 0 || index == asked; };
  DocumentCheck check;
  for (std::int64_t b = 0; b < document.report.batch; ++b)
    for (std::int64_t h = 0; h < document.report.heads; ++h)
      if (wanted(b, batch) && wanted(h, head)) detail::HeadCheck(document, b, h, rows, check).run();
  return check;
}

}  // namespace heed
