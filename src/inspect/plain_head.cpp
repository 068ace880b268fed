#include "inspect/plain_head.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "attention/problem/score_rules.hpp"

namespace heed::detail {
namespace {

// Eight parallel partial sums.
double dot(const double* a, const double* b, std::int64_t count) {
  double sums[8] = {};
  std::int64_t d = 0;
  for (; d + 8 <= count; d += 8)
    for (std::int64_t lane = 0; lane < 8; ++lane) sums[lane] += a[d + lane] * b[d + lane];
  for (; d < count; ++d) sums[0] += a[d] * b[d];
  return std::accumulate(std::begin(sums), std::end(sums), 0.0);
}

double number(const TensorView& view, std::int64_t i, std::int64_t j) {
  if (view.dtype() == DType::f64) return view.at<double>(i, j);
  if (view.dtype() == DType::f32) return static_cast<double>(view.at<float>(i, j));
  const bool half = view.dtype() == DType::f16;
  return static_cast<double>(half ? to_float(view.at<Float16>(i, j)) : to_float(view.at<BFloat16>(i, j)));
}

std::vector<std::int64_t> whole_numbers(const std::optional<TensorView>& view) {
  if (!view) return {};
  const Tensor copy = Tensor::copy_of(*view, DType::i64);
  return {copy.values<std::int64_t>().begin(), copy.values<std::int64_t>().end()};
}

// The largest norm of a row; NaN rows are ignored.
double longest_row(const Tensor& rows) {
  double longest = 0;
  const double* data = rows.values<double>().data();
  for (std::int64_t i = 0; i < rows.size(0); ++i) {
    const double length = std::sqrt(dot(data + i * rows.size(1), data + i * rows.size(1), rows.size(1)));
    if (length > longest) longest = length;
  }
  return longest;
}

}  // namespace

PlainHead::PlainHead(const Document& document, std::int64_t batch, std::int64_t head)
    : options_(document.options),
      batch_(batch),
      head_(head),
      heads_(document.query.size(1)),
      sink_(-kInfinity) {
  const std::int64_t kv_head = head / (document.query.size(1) / document.key.size(1));
  query_ = Tensor::copy_of(document.query.select(0, batch).select(0, head), DType::f64);
  key_ = Tensor::copy_of(document.key.select(0, batch).select(0, kv_head), DType::f64);
  value_view_ = document.value.select(0, batch).select(0, kv_head);
  const Dims scores{document.query.size(0), document.query.size(1), query_.size(0), key_.size(0)};
  const auto plane = [&](const TensorView& view) {
    return view.expand(scores).select(0, batch).select(0, head);
  };
  if (options_.mask) mask_ = plane(*options_.mask);
  if (options_.bias) bias_ = plane(*options_.bias);
  if (options_.alibi_slopes)
    slope_ =
        number(options_.alibi_slopes->expand({document.query.size(0), document.query.size(1)}), batch, head);
  if (options_.decay)
    decay_ =
        options_.decay->expand({document.query.size(0), document.query.size(1), options_.decay->size(-1)})
            .select(0, batch)
            .select(0, head);
  if (options_.sinks) sink_ = number(options_.sinks->expand({1, document.query.size(1)}), 0, head);
  query_segments_ = whole_numbers(options_.query_segments);
  key_segments_ = whole_numbers(options_.key_segments);
  const std::vector<std::int64_t> lengths = whole_numbers(options_.kv_lengths);
  keys_ = lengths.empty() ? key_.size(0) : lengths[static_cast<std::size_t>(batch)];
  scale_ = options_.scale.value_or(1 / std::sqrt(static_cast<double>(query_.size(1))));
  longest_query_ = longest_row(query_);
  longest_key_ = longest_row(key_);
}

PlainPlace PlainHead::place(std::int64_t row) const {
  Range rows{0, query_.size(0)};
  PlainPlace place{0, {0, keys_}, {}};
  for (std::size_t s = 0; s + 1 < query_segments_.size(); ++s)
    if (row >= query_segments_[s] && row < query_segments_[s + 1]) {
      rows = {query_segments_[s], query_segments_[s + 1]};
      place.segment = {key_segments_[s], key_segments_[s + 1]};
    }
  const std::int64_t keys = place.segment.end - place.segment.begin;
  std::int64_t offset = options_.align == Align::bottom_right ? keys - (rows.end - rows.begin) : 0;
  if (options_.query_offset) offset = *options_.query_offset;
  place.position = row - rows.begin + offset;
  const std::int64_t p = place.position;
  const struct {
    bool causal;
    std::int64_t window_left, window_right;
  } rules = {options_.causal, options_.window.left, options_.window.right};
  const KeyRange seen = visible_keys(rules, p, KeyPositions{keys});
  place.seen = {place.segment.begin + seen.begin, place.segment.begin + seen.end};
  return place;
}

double PlainHead::score(const PlainPlace& place, std::int64_t i, std::int64_t j) const {
  if (j < place.seen.begin || j >= place.seen.end) return -kInfinity;
  if (mask_ && !mask_->at<bool>(i, j)) return -kInfinity;
  if (!options_.sparse_mask.is_empty() && !sparse_mask_allows(i, j)) return -kInfinity;
  const double bias = bias_ ? number(*bias_, i, j) : 0;
  if (bias == -kInfinity) return -kInfinity;
  const std::int64_t depth = query_.size(1);
  double score = scale_ * dot(query_.values<double>().data() + i * depth,
                              key_.values<double>().data() + j * depth, depth);
  if (options_.softcap > 0) score = softcapped<F64Math>(score, options_.softcap).score;
  if (!options_.score_mod.is_empty())
    options_.score_mod.part()->apply({batch_, head_, i, j, j + 1}, &score, nullptr);
  if (score == -kInfinity) return score;
  if (decay_) score += decay_between(place, j);
  return with_alibi<F64Math>(score + bias, slope_,
                             static_cast<double>(place.position - (j - place.segment.begin)));
}

double PlainHead::decay_between(const PlainPlace& place, std::int64_t j) const {
  const bool packed = !key_segments_.empty();
  const std::int64_t first = packed ? place.segment.begin : 0;
  const std::int64_t last = (packed ? place.segment.end : decay_->size(0)) - 1;
  const std::int64_t own = std::clamp(place.segment.begin + place.position, first, last);
  const TensorView c = decay_->unsqueeze(0);
  return number(c, 0, own) - number(c, 0, j);
}

bool PlainHead::sparse_mask_allows(std::int64_t i, std::int64_t j) const {
  const SparseMask& mask = options_.sparse_mask;
  return mask.allows(mask.batch() == 1 ? 0 : batch_, head_ / (heads_ / mask.heads()), i, j);
}

PlainRow PlainHead::row(std::int64_t i) const {
  PlainRow row;
  row.place = place(i);
  row.max_score = -kInfinity;
  bool nan = std::isnan(sink_);
  for (std::int64_t j = 0; j < key_.size(0); ++j) {
    row.scores.push_back(score(row.place, i, j));
    nan = nan || std::isnan(row.scores.back());
    row.max_score = std::max(row.max_score, row.scores.back());
  }
  if (nan) row.max_score = std::nan("");
  const double shift = std::isnan(row.max_score) ? row.max_score : std::max(row.max_score, sink_);
  double sum = sink_ == -kInfinity ? 0 : std::exp(sink_ - shift);
  for (const double score : row.scores) sum += score == -kInfinity ? 0 : std::exp(score - shift);
  row.lse = shift == -kInfinity ? shift : shift + std::log(sum);
  for (const double score : row.scores)
    row.weights.push_back(score == -kInfinity ? 0 : std::exp(score - shift) / sum);
  const double* query = query_.values<double>().data() + i * query_.size(1);
  row.size = std::abs(scale_) * std::sqrt(dot(query, query, query_.size(1))) * longest_key_ +
             std::abs(std::isfinite(row.lse) ? row.lse : 0);
  return row;
}

void PlainHead::output(const PlainRow& row, std::vector<double>& sums, std::vector<double>& sizes) {
  if (!value_) value_ = Tensor::copy_of(value_view_, DType::f64);
  const auto columns = static_cast<std::size_t>(value_->size(1));
  sums.assign(columns, 0);
  sizes.assign(columns, 0);
  const double* value = value_->values<double>().data();
  for (std::size_t j = 0; j < row.weights.size(); ++j, value += columns) {
    if (row.scores[j] == -kInfinity) continue;
    for (std::size_t c = 0; c < columns; ++c) {
      sums[c] += row.weights[j] * value[c];
      sizes[c] += row.weights[j] * std::abs(value[c]);
    }
  }
}

double PlainHead::sum(Range rows, Range keys, const std::vector<double>& lse) const {
  double sum = 0;
  for (std::int64_t i = rows.begin; i < rows.end; ++i) {
    const PlainPlace at = place(i);
    for (std::int64_t j = keys.begin; j < keys.end; ++j) {
      const double s = score(at, i, j);
      if (s != -kInfinity) sum += std::exp(s - lse[static_cast<std::size_t>(i)]);
    }
  }
  return sum;
}

double PlainHead::sink_share(double lse) const { return sink_ == -kInfinity ? 0 : std::exp(sink_ - lse); }

double PlainHead::size() const { return std::abs(scale_) * longest_query_ * longest_key_; }

}  // namespace heed::detail
