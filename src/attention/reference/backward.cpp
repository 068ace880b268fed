// The backward reference: every formula of heed/attention/backward.hpp, one row at a time, in f64. The four
// passes of a row follow the forward's in passes.hpp; this file sums them up. Read it beside
// docs/backward.md. Faster kernels are tested against it.
//
//   run_reference_backward
//     differentiate_kv_head     for each key head of each batch entry, alone on its thread:
//       differentiate_row         for each row of each query head that reads it
//     differentiate_bias_row    for each row of dBias, alone on its thread:
//       differentiate_row         for each row of dS that is summed into it
//
// Every sum belongs to one thread and is added in the order of the rows, so its bits do not depend on the
// number of threads. The forward's passes are computed again, and the given lse is not used. For f32 inputs
// that lse is f32: with scores near 1000, it would put an error of 3e-5 on each weight; with scores of 1e38,
// no digit would be left. sum_j p_j dP_j uses the same weights, so the row's dS sum to 0 as exactly as f64
// can.
#include <algorithm>
#include <vector>

#include "attention/problem/decay_sums.hpp"
#include "attention/reference/passes.hpp"
#include "attention/reference/reference.hpp"
#include "core/index.hpp"
#include "heed/parallel.hpp"

namespace heed::detail {
namespace {

// The working memory of one thread.
struct Scratch : GradientScratch {
  using GradientScratch::GradientScratch;
  std::vector<double> grad_bias;  // [Lk], for a row of dBias
  double grad_sink = 0;           // for the current row: p_sink (dLse - sum_j p_j dP_j)
};

// A row, and the segment whose keys it may see.
struct Place {
  Row row;
  const Segment* segment;
};

class Reference {
 public:
  explicit Reference(const BackwardProblem& problem)
      : problem_(problem), p_(problem.forward), decay_(problem) {
    if (p_.heads == 0) return;  // there are no rows, whatever their length
    segment_of_.resize(index(p_.batch * p_.query_length));
    for (const Segment& segment : p_.segments)
      for (std::int64_t i = segment.query_begin; i < segment.query_end; ++i)
        segment_of_[index(segment.batch * p_.query_length + i)] = &segment;
  }

  KernelRun run() {
    const bool sinks = static_cast<bool>(problem_.grad_sinks);
    if (sinks) sink_parts_.resize(index(p_.batch * p_.heads));
    if (problem_.grad_query || problem_.grad_key || problem_.grad_value || sinks || decay_)
      in_parallel(p_.batch * p_.kv_heads, [&](std::int64_t piece, Scratch& scratch) {
        differentiate_kv_head(piece / p_.kv_heads, piece % p_.kv_heads, scratch);
      });
    if (sinks) write_grad_sinks();
    decay_.write();
    const std::int64_t* size = problem_.grad_bias_size;
    if (problem_.grad_bias)
      in_parallel(size[0] * size[1] * size[2], [&](std::int64_t row, Scratch& scratch) {
        differentiate_bias_row(row / (size[1] * size[2]), row / size[2] % size[1], row % size[2], scratch);
      });
    return {threads_used_, 0};
  }

 private:
  template <class Piece>
  void in_parallel(std::int64_t count, Piece piece) {
    if (count == 0) return;
    const int threads = static_cast<int>(std::min<std::int64_t>(count, p_.threads));
    threads_used_ = std::max(threads_used_, threads);
    std::vector<Scratch> scratch(index(threads), Scratch(p_));
    parallel_for(count, threads, [&](std::int64_t i, int worker) { piece(i, scratch[index(worker)]); });
  }

  Place place_of(std::int64_t batch, std::int64_t head, std::int64_t i) const {
    const Segment& segment = *segment_of_[index(batch * p_.query_length + i)];
    const std::int64_t kv_head = head / (p_.heads / p_.kv_heads);
    return {{batch, head, kv_head, i, i - segment.query_begin + segment.offset}, &segment};
  }

  void differentiate_row(const Place& at, const HeadDropout& dropout, Scratch& scratch) const {
    const auto& [row, segment] = at;
    const KeyRange keys = seen_keys(p_, *segment, row);
    multiply_keys(p_, row, keys, scratch);
    multiply_values(problem_, row, keys, scratch);
    scratch.grad_sink = detail::differentiate_row(problem_, *segment, row, dropout, scratch);
  }

  void differentiate_kv_head(std::int64_t batch, std::int64_t kv_head, Scratch& scratch) {
    scratch.grad_key.assign(index(p_.key_length * p_.head_dim), 0.0);
    scratch.grad_value.assign(index(p_.key_length * p_.value_dim), 0.0);
    const std::int64_t group = p_.heads / p_.kv_heads;
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const HeadDropout dropout(p_.dropout, batch, head);
      double grad_sink = 0;
      for (std::int64_t i = 0; i < p_.query_length; ++i) {
        const Place at = place_of(batch, head, i);
        differentiate_row(at, dropout, scratch);
        add_value_gradients(p_, *at.segment, scratch);
        add_query_and_key_gradients(p_, *at.segment, at.row, scratch);
        for (std::size_t d = 0; d < scratch.grad_query.size(); ++d)
          write(problem_.grad_query, scratch.grad_query[d], batch, head, i, static_cast<std::int64_t>(d));
        grad_sink += scratch.grad_sink;
        if (decay_) add_to_decay(at, scratch);
      }
      if (!sink_parts_.empty()) sink_parts_[index(batch * p_.heads + head)] = grad_sink;
    }
    write_rows(problem_.grad_key, scratch.grad_key, p_.head_dim, batch, kv_head);
    write_rows(problem_.grad_value, scratch.grad_value, p_.value_dim, batch, kv_head);
  }

  // dC_p += sum_j dS_pj, dC_j -= dS_pj
  void add_to_decay(const Place& at, const Scratch& scratch) {
    const auto& [row, segment] = at;
    for (std::int64_t j = segment->key_begin; j < segment->key_end; ++j) {
      if (!scratch.attends(j)) continue;
      decay_.of_row(*segment, row.head, row.position) += scratch.grad_scores[index(j)];
      decay_.of_key(*segment, row.head, j) -= scratch.grad_scores[index(j)];
    }
  }

  // Writes [Lk, width] of one key head.
  void write_rows(const Output& to, const std::vector<double>& from, std::int64_t width, std::int64_t batch,
                  std::int64_t kv_head) const {
    for (std::int64_t j = 0; j < p_.key_length; ++j)
      for (std::int64_t d = 0; d < width; ++d) write(to, from[index(j * width + d)], batch, kv_head, j, d);
  }

  // dSink_h: the sum over the batch, and over the heads if all share one sink.
  void write_grad_sinks() const {
    const bool one_for_all = problem_.grad_sinks.stride[1] == 0;
    double sum = 0;
    for (std::int64_t head = 0; head < p_.heads; ++head) {
      if (!one_for_all) sum = 0;
      for (std::int64_t batch = 0; batch < p_.batch; ++batch)
        sum += sink_parts_[index(batch * p_.heads + head)];
      if (!one_for_all) write(problem_.grad_sinks, sum, 0, head, 0);
    }
    if (one_for_all) write(problem_.grad_sinks, sum, 0, 0, 0);
  }

  // The indices that are summed into index `at` of an axis of dBias: that index alone, or the whole axis.
  struct Range {
    std::int64_t begin, end;
  };
  static Range summed(std::int64_t at, std::int64_t size, std::int64_t whole) {
    return size == whole ? Range{at, at + 1} : Range{0, whole};
  }

  // dBias[b, h, i, :] = sum of dS over all rows that use this row of the bias
  void differentiate_bias_row(std::int64_t b, std::int64_t h, std::int64_t i, Scratch& scratch) const {
    const std::int64_t* size = problem_.grad_bias_size;
    const Range batches = summed(b, size[0], p_.batch);
    const Range heads = summed(h, size[1], p_.heads);
    const Range rows = summed(i, size[2], p_.query_length);
    scratch.grad_bias.assign(index(p_.key_length), 0.0);
    for (std::int64_t batch = batches.begin; batch < batches.end; ++batch)
      for (std::int64_t head = heads.begin; head < heads.end; ++head) {
        const HeadDropout dropout(p_.dropout, batch, head);
        for (std::int64_t row = rows.begin; row < rows.end; ++row) {
          const Place at = place_of(batch, head, row);
          differentiate_row(at, dropout, scratch);
          for (std::int64_t j = at.segment->key_begin; j < at.segment->key_end; ++j)
            if (scratch.attends(j)) scratch.grad_bias[index(j)] += scratch.grad_scores[index(j)];
        }
      }
    if (size[3] == p_.key_length) {
      for (std::int64_t j = 0; j < p_.key_length; ++j)
        write(problem_.grad_bias, scratch.grad_bias[index(j)], b, h, i, j);
    } else {
      double sum = 0;
      for (double part : scratch.grad_bias) sum += part;
      write(problem_.grad_bias, sum, b, h, i, 0);
    }
  }

  const BackwardProblem& problem_;
  const Problem& p_;
  std::vector<const Segment*> segment_of_;  // [B, Lq]
  std::vector<double> sink_parts_;          // [B, H], if dSink is wanted
  DecaySums decay_;
  int threads_used_ = 1;
};

}  // namespace

KernelRun run_reference_backward(const BackwardProblem& problem) { return Reference(problem).run(); }

}  // namespace heed::detail
