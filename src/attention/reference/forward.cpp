// The reference: every formula of heed/attention.hpp, one row at a time, in f64. It is read beside the
// formulas and used as the oracle of the faster kernels; nothing in it is there for speed.
//
//   run_reference           for each batch entry and head:
//     attend_head             for each of its segments, for each row i:
//       attend_row              score_row      s_ij
//                               normalise_row  max_i, lse_i, p_ij
//                               write_output   out_i
//                               write_...      what else is asked for
//                             then what is summed over rows: received, map
//
// A key that may not be attended has the score -inf, and every later pass selects by it: such a key's weight
// is 0 by definition and its value is never read, so that a NaN or an infinity there cannot leak (0 * inf is
// NaN).
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "attention/call/elements.hpp"
#include "attention/call/kernels.hpp"
#include "attention/reference/forward_row.hpp"
#include "attention/reference/softmax.hpp"
#include "attention/rules/dropout.hpp"
#include "attention/rules/score_rules.hpp"

namespace heed::detail {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

// s_ij = scale * <q_i, k_j>
double raw_score(const Problem& p, const Row& row, std::int64_t j, ReferenceScratch& scratch) {
  read_row(p.key, row.batch, row.kv_head, j, scratch.key);
  double dot = 0;
  for (std::size_t d = 0; d < scratch.key.size(); ++d) dot += scratch.query[d] * scratch.key[d];
  return p.scale * dot;
}

// Pass 1: the scores of the keys of the row's segment, less the row's alibi_offset; -inf where a key may not
// be attended.
void score_row(const Problem& p, const Segment& segment, const Row& row, ReferenceScratch& scratch) {
  read_row(p.query, row.batch, row.head, row.i, scratch.query);
  for (std::int64_t j = segment.key_begin; j < segment.key_end; ++j)
    scratch.scores[index(j)] =
        is_allowed(p, segment, row, j)
            ? relative_score(p, segment, row, j, capped(p, raw_score(p, row, j, scratch)))
            : -kInfinity;
}

// Pass 2: the weights of the keys of the row's segment.
Normaliser normalise_row(const Problem& p, const Segment& segment, const Row& row,
                         ReferenceScratch& scratch) {
  const double offset = alibi_offset(p, segment, row);
  const double sink = p.sinks ? read(p.sinks, 0, row.head) : -kInfinity;
  const auto keys = [&](std::vector<double>& all) {
    return std::span(all).subspan(index(segment.key_begin), index(segment.key_end - segment.key_begin));
  };
  Normaliser row_sums = normalise(keys(scratch.scores), keys(scratch.weights), sink - offset);
  row_sums.max_score += offset;
  row_sums.lse += offset;
  return row_sums;
}

// Pass 3: out_i = sum_j dropout(p_ij) * v_j over the keys that are attended and not dropped.
void write_output(const Problem& p, const Segment& segment, const Row& row, const HeadDropout& dropout,
                  ReferenceScratch& scratch) {
  std::fill(scratch.output.begin(), scratch.output.end(), 0.0);
  for (std::int64_t j = segment.key_begin; j < segment.key_end; ++j) {
    if (scratch.scores[index(j)] == -kInfinity || dropout.drops(row.i, j)) continue;
    const double weight = scratch.weights[index(j)] * dropout.keep_scale();
    read_row(p.value, row.batch, row.kv_head, j, scratch.value);
    for (std::size_t c = 0; c < scratch.value.size(); ++c) scratch.output[c] += weight * scratch.value[c];
  }
  for (std::size_t c = 0; c < scratch.output.size(); ++c)
    write(p.output, scratch.output[c], row.batch, row.head, row.i, static_cast<std::int64_t>(c));
}

// The whole row of the weights: 0 for keys outside the segment.
void write_weights(const Problem& p, const Segment& segment, const Row& row,
                   const ReferenceScratch& scratch) {
  for (std::int64_t j = 0; j < p.key_length; ++j) {
    const bool inside = j >= segment.key_begin && j < segment.key_end;
    write(p.weights, inside ? scratch.weights[index(j)] : 0.0, row.batch, row.head, row.i, j);
  }
}

// The whole row of the scores. Before the bias they know of no masks: every key of the tensor has one, also
// those outside the segment. After it, what may not be attended has -inf.
void write_scores(const Problem& p, const Segment& segment, const Row& row, ReferenceScratch& scratch) {
  for (std::int64_t j = 0; j < p.key_length; ++j) {
    const bool inside = j >= segment.key_begin && j < segment.key_end;
    double score = -kInfinity;
    if (p.scores_stage == ScoresStage::raw)
      score = raw_score(p, row, j, scratch);
    else if (p.scores_stage == ScoresStage::softcap)
      score = capped(p, raw_score(p, row, j, scratch));
    else if (inside)
      score = scratch.scores[index(j)] + alibi_offset(p, segment, row);
    write(p.scores, score, row.batch, row.head, row.i, j);
  }
}

// -sum_j p_ij log p_ij, where 0 log 0 is 0.
double entropy_of(const Segment& segment, const ReferenceScratch& scratch) {
  double entropy = 0;
  for (std::int64_t j = segment.key_begin; j < segment.key_end; ++j) {
    const double weight = scratch.weights[index(j)];
    if (weight != 0) entropy -= weight * std::log(weight);
  }
  return entropy;
}

// sum_j p_ij |p_i - j|
double mean_distance(const Segment& segment, const Row& row, const ReferenceScratch& scratch) {
  double distance = 0;
  for (std::int64_t j = segment.key_begin; j < segment.key_end; ++j)
    distance += scratch.weights[index(j)] * distance_between(segment, row, j);
  return distance;
}

// The K largest weights of allowed keys, equal ones by the lower index; -1 and 0 beyond them. Where the
// weights are NaN nothing can be ranked: -1 and NaN.
void write_top_k(const Problem& p, const Segment& segment, const Row& row, double lse,
                 const ReferenceScratch& scratch) {
  std::vector<std::int64_t> ranked;
  for (std::int64_t j = segment.key_begin; j < segment.key_end; ++j)
    if (scratch.scores[index(j)] != -kInfinity && !std::isnan(lse)) ranked.push_back(j);
  const auto weight = [&](std::int64_t j) { return scratch.weights[index(j)]; };
  const auto filled = std::min(p.top_k, static_cast<std::int64_t>(ranked.size()));
  std::partial_sort(ranked.begin(), ranked.begin() + filled, ranked.end(),
                    [&](std::int64_t a, std::int64_t b) {
                      return weight(a) > weight(b) || (weight(a) == weight(b) && a < b);
                    });
  for (std::int64_t k = 0; k < p.top_k; ++k) {
    const std::int64_t j = k < filled ? ranked[index(k)] : -1;
    const double beyond = std::isnan(lse) ? kNaN : 0;
    write(p.top_k_index, j, row.batch, row.head, row.i, k);
    write(p.top_k_weight, j >= 0 ? weight(j) : beyond, row.batch, row.head, row.i, k);
  }
}

// received_j += p_ij;  map[floor(i * R / Lq), floor(j * C / Lk)] += p_ij
void add_to_sums(const Problem& p, const Segment& segment, const Row& row, ReferenceScratch& scratch) {
  const bool is_last = row.i >= segment.query_end - p.received_last_rows;
  const std::int64_t map_row = p.map ? row.i * p.map_size.rows / p.query_length : 0;
  for (std::int64_t j = segment.key_begin; j < segment.key_end; ++j) {
    const double weight = scratch.weights[index(j)];
    if (p.received) scratch.received[index(j)] += weight;
    if (p.received_last && is_last) scratch.received_last[index(j)] += weight;
    if (!p.map) continue;
    const std::int64_t map_column = j * p.map_size.columns / p.key_length;
    scratch.map[index(map_row * p.map_size.columns + map_column)] += weight;
  }
}

void attend_head(const Problem& p, std::int64_t batch, std::int64_t head, ReferenceScratch& scratch) {
  const HeadDropout dropout(p.dropout, batch, head);
  for (auto* sums : {&scratch.received, &scratch.received_last, &scratch.map})
    std::fill(sums->begin(), sums->end(), 0.0);

  const std::int64_t kv_head = head / (p.heads / p.kv_heads);
  for (const Segment& segment : p.segments) {
    if (segment.batch != batch) continue;
    for (std::int64_t i = segment.query_begin; i < segment.query_end; ++i)
      attend_row(p, segment, {batch, head, kv_head, i, i - segment.query_begin + segment.offset}, dropout,
                 scratch);
  }

  for (std::size_t j = 0; j < scratch.received.size(); ++j)
    write(p.received, scratch.received[j], batch, head, static_cast<std::int64_t>(j));
  for (std::size_t j = 0; j < scratch.received_last.size(); ++j)
    write(p.received_last, scratch.received_last[j], batch, head, static_cast<std::int64_t>(j));
  for (std::size_t bin = 0; bin < scratch.map.size(); ++bin) {
    const auto [row, column] = std::lldiv(static_cast<std::int64_t>(bin), p.map_size.columns);
    write(p.map, scratch.map[bin], batch, head, row, column);
  }
}

}  // namespace

ReferenceScratch::ReferenceScratch(const Problem& p)
    : query(index(p.head_dim)),
      key(index(p.head_dim)),
      value(index(p.value_dim)),
      output(index(p.value_dim)),
      scores(index(p.key_length)),
      weights(index(p.key_length)),
      received(p.received ? index(p.key_length) : 0),
      received_last(p.received_last ? index(p.key_length) : 0),
      map(p.map ? index(p.map_size.rows * p.map_size.columns) : 0) {}

void attend_row(const Problem& p, const Segment& segment, const Row& row, const HeadDropout& dropout,
                ReferenceScratch& scratch) {
  score_row(p, segment, row, scratch);
  const Normaliser normaliser = normalise_row(p, segment, row, scratch);
  if (p.output) write_output(p, segment, row, dropout, scratch);
  if (p.weights) write_weights(p, segment, row, scratch);
  if (p.scores) write_scores(p, segment, row, scratch);
  write(p.lse, normaliser.lse, row.batch, row.head, row.i);
  write(p.max_score, normaliser.max_score, row.batch, row.head, row.i);
  if (p.entropy) write(p.entropy, entropy_of(segment, scratch), row.batch, row.head, row.i);
  if (p.distance) write(p.distance, mean_distance(segment, row, scratch), row.batch, row.head, row.i);
  if (p.top_k > 0) write_top_k(p, segment, row, normaliser.lse, scratch);
  add_to_sums(p, segment, row, scratch);
}

void attend_scores(const Problem& p, const Segment& segment, const Row& row, ReferenceScratch& scratch) {
  score_row(p, segment, row, scratch);
  write_scores(p, segment, row, scratch);
}

void attend_nan_row(const Problem& p, const Segment& segment, const Row& row, ReferenceScratch& scratch) {
  if (p.weights || p.received || p.received_last || p.map) {
    for (std::int64_t j = segment.key_begin; j < segment.key_end; ++j)
      scratch.weights[index(j)] = is_allowed(p, segment, row, j) ? kNaN : 0;
    if (p.weights) write_weights(p, segment, row, scratch);
    add_to_sums(p, segment, row, scratch);
  }
  for (std::int64_t c = 0; p.output && c < p.value_dim; ++c)
    write(p.output, kNaN, row.batch, row.head, row.i, c);
  for (const Target* to : {&p.lse, &p.max_score, &p.entropy, &p.distance})
    write(*to, kNaN, row.batch, row.head, row.i);
  for (std::int64_t k = 0; k < p.top_k; ++k) {
    write(p.top_k_index, std::int64_t{-1}, row.batch, row.head, row.i, k);
    write(p.top_k_weight, kNaN, row.batch, row.head, row.i, k);
  }
}

KernelRun run_reference(const Problem& problem) {
  ReferenceScratch scratch(problem);
  for (std::int64_t batch = 0; batch < problem.batch; ++batch)
    for (std::int64_t head = 0; head < problem.heads; ++head) {
      attend_head(problem, batch, head, scratch);
      if (problem.progress)
        problem.progress("forward", static_cast<double>(batch * problem.heads + head + 1) /
                                        static_cast<double>(problem.batch * problem.heads));
    }
  return {};
}

}  // namespace heed::detail
