// The reference: every formula of heed/attention/attention.hpp, one row at a time, in f64. The four passes of
// a row are in passes.hpp; this file writes their results. Read it beside the formulas. Faster kernels are
// tested against it, and nothing in it is optimised for speed.
//
//   run_reference           for each batch entry and head:
//     attend_head             for each of its segments, for each row i:
//       attend_row              the four passes, and the row's results
//                             then the sums over rows: received, map
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "attention/kv_cache/read_row.hpp"
#include "attention/problem/elements.hpp"
#include "attention/reference/reference.hpp"
#include "core/index.hpp"
#include "core/largest.hpp"
#include "heed/attention/results.hpp"

namespace heed::detail {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Writes the whole row of the weights; keys outside the segment have weight 0.
void write_weights(const Problem& p, const Segment& segment, const Row& row,
                   const ReferenceScratch& scratch) {
  for (std::int64_t j = 0; j < p.key_length; ++j) {
    const bool inside = j >= segment.key_begin && j < segment.key_end;
    write(p.weights, inside ? scratch.weights[index(j)] : 0.0, row.batch, row.head, row.i, j);
  }
}

// Writes the whole row of the scores. Stages before the bias ignore masks: every key of the tensor has a
// score, even outside the segment. The stage after the bias has -inf for forbidden keys.
void write_scores(const Problem& p, const Segment& segment, const Row& row, ReferenceScratch& scratch) {
  for (std::int64_t j = 0; j < p.key_length; ++j) {
    const bool inside = j >= segment.key_begin && j < segment.key_end;
    double score = -kInfinity;
    if (p.scores_stage == ScoresStage::raw)
      score = scratch.products[index(j)];
    else if (p.scores_stage == ScoresStage::softcap)
      score = capped(p, scratch.products[index(j)]).score;
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

// Writes the K largest weights of allowed keys, equal ones in order of the key; missing entries are -1 and 0.
// NaN weights cannot be ranked; then all entries are -1 and NaN.
void write_top_k(const Problem& p, const Segment& segment, const Row& row, double lse,
                 const ReferenceScratch& scratch) {
  std::vector<std::int64_t> ranked;
  for (std::int64_t j = segment.key_begin; j < segment.key_end; ++j)
    if (scratch.scores[index(j)] != -kInfinity && !std::isnan(lse)) ranked.push_back(j);
  const auto weight = [&](std::int64_t j) { return scratch.weights[index(j)]; };
  keep_largest(ranked, p.top_k, weight);
  const auto filled = std::ssize(ranked);
  for (std::int64_t k = 0; k < p.top_k; ++k) {
    const std::int64_t j = k < filled ? ranked[index(k)] : -1;
    const double beyond = std::isnan(lse) ? kNaN : 0;
    write(p.top_k_index, j, row.batch, row.head, row.i, k);
    write(p.top_k_weight, j >= 0 ? weight(j) : beyond, row.batch, row.head, row.i, k);
  }
}

// 1 - exp(lse - lse'), where lse' is the row's lse without masks; 0 if that row has no keys.
void write_masked_mass(const Problem& p, const Segment& segment, const Row& row, double lse,
                       ReferenceScratch& scratch) {
  const Problem& unmasked = *scratch.unmasked;
  score_row(unmasked, segment, row, scratch);
  const double whole = softmax_row(unmasked, segment, row, scratch).lse;
  write(p.masked_mass, whole == -kInfinity ? 0 : -std::expm1(lse - whole), row.batch, row.head, row.i);
}

// received_j += p_ij;  map[floor(i * R / Lq), floor(j * C / Lk)] += p_ij
void add_to_sums(const Problem& p, const Segment& segment, const Row& row, ReferenceScratch& scratch) {
  if (!p.received && !p.received_last && !p.map) return;
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

void attend_row(const Problem& p, const Segment& segment, const Row& row, const HeadDropout& dropout,
                ReferenceScratch& scratch) {
  multiply_keys(p, row, multiplied_keys(p, segment, row), scratch);
  const Normaliser normaliser = weigh_row(p, segment, row, scratch);
  if (p.output) {
    drop_row(segment, row, dropout, scratch);
    sum_values(p, segment, row, scratch);
    write_output(p, row, scratch.output);
  }
  write_results(p, segment, row, normaliser, scratch);
}

void attend_head(const Problem& p, std::int64_t batch, std::int64_t head, ReferenceScratch& scratch) {
  const HeadDropout dropout(p.dropout, batch, head);
  for (auto* sums : {&scratch.received, &scratch.received_last, &scratch.map}) std::ranges::fill(*sums, 0.0);

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
    : RowScratch(p),
      received(p.received ? index(p.key_length) : 0),
      received_last(p.received_last ? index(p.key_length) : 0),
      map(p.map ? index(p.map_size.rows * p.map_size.columns) : 0) {
  if (p.masked_mass) unmasked = without_masks(p);
}

KeyRange multiplied_keys(const Problem& p, const Segment& segment, const Row& row) {
  if (p.scores && p.scores_stage != ScoresStage::bias) return {0, p.key_length};
  if (p.masked_mass) return seen_keys(without_masks(p), segment, row);
  return seen_keys(p, segment, row);
}

Normaliser weigh_row(const Problem& p, const Segment& segment, const Row& row, ReferenceScratch& scratch) {
  score_row(p, segment, row, scratch);
  return softmax_row(p, segment, row, scratch);
}

void write_output(const Problem& p, const Row& row, std::span<const double> output) {
  const std::int64_t start = offset_in(p.output, row.batch, row.head, row.i);
  with_element_type(p.output.dtype, [&](auto element) {
    for (std::size_t c = 0; c < output.size(); ++c)
      store<decltype(element)>(p.output.data, start + static_cast<std::int64_t>(c) * p.output.stride[3],
                               output[c]);
  });
}

void write_results(const Problem& p, const Segment& segment, const Row& row, const Normaliser& normaliser,
                   ReferenceScratch& scratch) {
  if (p.weights) write_weights(p, segment, row, scratch);
  if (p.scores) write_scores(p, segment, row, scratch);
  const double offset = alibi_offset(p, segment, row);
  write(p.lse, normaliser.lse + offset, row.batch, row.head, row.i);
  write(p.max_score, normaliser.max_score + offset, row.batch, row.head, row.i);
  if (p.entropy) write(p.entropy, entropy_of(segment, scratch), row.batch, row.head, row.i);
  if (p.distance) write(p.distance, mean_distance(segment, row, scratch), row.batch, row.head, row.i);
  if (p.top_k > 0) write_top_k(p, segment, row, normaliser.lse, scratch);
  add_to_sums(p, segment, row, scratch);
  if (p.masked_mass) write_masked_mass(p, segment, row, normaliser.lse, scratch);
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
  for (const auto& [entry, member] : kResults<Output>)
    if (entry.shape == ResultShape::row) write(p.*member, kNaN, row.batch, row.head, row.i);
  for (std::int64_t k = 0; k < p.top_k; ++k) {
    write(p.top_k_index, std::int64_t{-1}, row.batch, row.head, row.i, k);
    write(p.top_k_weight, kNaN, row.batch, row.head, row.i, k);
  }
}

KernelRun run_reference(const Problem& problem) {
  if (problem.cache != nullptr) return run_reference(with_tensors(problem).problem);
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
