// Rows that the fused kernel left out, computed in f64 by the reference's formulas, on all threads.
//
// Two kinds of rows are recognised instead of computed, for one NaN may touch every row of a head:
//   - a row that sees a NaN in its query or in a key has NaN for every weight;
//   - an output whose infinite or NaN columns all come from a NaN in a value that the row sees is right as it
//   is.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "attention/call/elements.hpp"
#include "attention/call/kernels.hpp"
#include "attention/cpu/driver/path_record.hpp"
#include "attention/kv_cache/gather.hpp"
#include "attention/reference/forward_row.hpp"
#include "core/index.hpp"
#include "heed/parallel.hpp"

namespace heed::detail {
namespace {

using cpu::RowStatus;

// Rows that a thread does at a time. Sums over rows are folded block by block, in their order.
constexpr std::int64_t kRowsAtOnce = 16;

double read_target(const Target& from, std::int64_t b, std::int64_t h, std::int64_t l, std::int64_t c) {
  return read(
      Operand{from.data, from.dtype, {from.stride[0], from.stride[1], from.stride[2], from.stride[3]}}, b, h,
      l, c);
}

// Of the keys and values of one key head, those that are not finite.
struct NotFinite {
  std::vector<std::int64_t> nan_keys;                 // with a NaN in the key
  std::vector<std::vector<std::int64_t>> nan_values;  // [Dv]: keys whose value has a NaN in this column
  std::vector<std::int64_t> infinite_values;          // keys with an infinity in the value
};

NotFinite look_through(const Problem& p, std::int64_t batch, std::int64_t kv_head) {
  NotFinite found;
  found.nan_values.resize(index(p.value_dim));
  std::vector<double> key(index(p.head_dim)), value(index(p.value_dim));
  for (std::int64_t j = 0; j < p.key_length; ++j) {
    read_row(p.key, batch, kv_head, j, key);
    if (std::any_of(key.begin(), key.end(), [](double x) { return std::isnan(x); }))
      found.nan_keys.push_back(j);
    read_row(p.value, batch, kv_head, j, value);
    bool infinite = false;
    for (std::size_t c = 0; c < value.size(); ++c) {
      if (std::isnan(value[c])) found.nan_values[c].push_back(j);
      infinite = infinite || std::isinf(value[c]);
    }
    if (infinite) found.infinite_values.push_back(j);
  }
  return found;
}

// Some rows of one head, in order.
struct Block {
  std::int64_t batch, head;
  std::vector<std::int64_t> rows;
};

class Recomputation {
 public:
  Recomputation(const Problem& problem, std::span<const RowStatus> status,
                std::span<const RowStatus> score_status)
      : p_(problem), status_(status), score_status_(score_status), head_(index(p_.batch * p_.kv_heads)) {}

  KernelRun run() {
    collect();
    if (blocks_.empty()) return {};
    find_segments();
    look_through_heads();
    // Blocks are computed some at a time, so that their sums need no more memory than there are threads.
    const std::int64_t count = static_cast<std::int64_t>(blocks_.size());
    threads_ = static_cast<int>(std::min<std::int64_t>(p_.threads, count));
    const bool sums = p_.received || p_.received_last || p_.map;
    const std::int64_t at_once = sums ? threads_ : count;
    std::vector<ReferenceScratch> scratch(index(threads_), ReferenceScratch(p_));
    computed_.assign(blocks_.size(), 0);
    for (std::int64_t first = 0; first < count; first += at_once) {
      const std::int64_t here = std::min(at_once, count - first);
      parallel_for(here, threads_, [&](std::int64_t i, int worker) {
        compute(index(first + i), scratch[index(sums ? i : worker)]);
      });
      for (std::int64_t i = 0; sums && i < here; ++i) add_sums(blocks_[index(first + i)], scratch[index(i)]);
    }
    KernelRun done{threads_, 0};
    for (const std::int64_t rows : computed_) done.recomputed_rows += rows;
    return done;
  }

 private:
  RowStatus status(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return status_[index((b * p_.heads + h) * p_.query_length + i)];
  }
  bool wants_scores(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return !score_status_.empty() &&
           score_status_[index((b * p_.heads + h) * p_.query_length + i)] != RowStatus::done;
  }

  void collect() {
    for (std::int64_t b = 0; b < p_.batch; ++b)
      for (std::int64_t h = 0; h < p_.heads; ++h) {
        bool open = false;
        for (std::int64_t i = 0; i < p_.query_length; ++i) {
          if (status(b, h, i) == RowStatus::done && !wants_scores(b, h, i)) continue;
          if (!open || static_cast<std::int64_t>(blocks_.back().rows.size()) == kRowsAtOnce)
            blocks_.push_back({b, h, {}});
          open = true;
          blocks_.back().rows.push_back(i);
        }
      }
  }

  void find_segments() {
    segment_of_.resize(index(p_.batch * p_.query_length));
    for (const Segment& segment : p_.segments)
      for (std::int64_t i = segment.query_begin; i < segment.query_end; ++i)
        segment_of_[index(segment.batch * p_.query_length + i)] = &segment;
  }

  std::int64_t kv_head(std::int64_t head) const { return head / (p_.heads / p_.kv_heads); }
  NotFinite& head_of(std::int64_t batch, std::int64_t head) {
    return head_[index(batch * p_.kv_heads + kv_head(head))];
  }

  void look_through_heads() {
    std::vector<char> concerned(head_.size(), 0);
    for (const Block& block : blocks_) concerned[index(block.batch * p_.kv_heads + kv_head(block.head))] = 1;
    parallel_for(static_cast<std::int64_t>(head_.size()), p_.threads, [&](std::int64_t at, int) {
      if (concerned[index(at)] != 0) head_[index(at)] = look_through(p_, at / p_.kv_heads, at % p_.kv_heads);
    });
  }

  void compute(std::size_t which, ReferenceScratch& scratch) {
    const Block& block = blocks_[which];
    const HeadDropout dropout(p_.dropout, block.batch, block.head);
    for (auto* sums : {&scratch.received, &scratch.received_last, &scratch.map})
      std::fill(sums->begin(), sums->end(), 0.0);
    for (const std::int64_t i : block.rows) {
      const Segment& segment = *segment_of_[index(block.batch * p_.query_length + i)];
      const Row row{block.batch, block.head, kv_head(block.head), i,
                    i - segment.query_begin + segment.offset};
      const RowStatus what = status(block.batch, block.head, i);
      const bool again = what == RowStatus::out_of_range ||
                         (what == RowStatus::output_only && !is_right(segment, row, dropout));
      if (again && is_nan(segment, row, scratch))
        attend_nan_row(p_, segment, row, scratch);
      else if (again)
        attend_again(segment, row, what, dropout, scratch);
      if (wants_scores(block.batch, block.head, i)) attend_scores(p_, segment, row, scratch);
      if (!again && !wants_scores(block.batch, block.head, i)) continue;
      record_fallback(cpu::Path::fallback, {block.batch, block.head, i, i + 1});
      ++computed_[which];
    }
  }

  // Where only the output is wrong, the row's weights are in the sums already.
  void attend_again(const Segment& segment, const Row& row, RowStatus what, const HeadDropout& dropout,
                    ReferenceScratch& scratch) const {
    if (what == RowStatus::out_of_range) return attend_row(p_, segment, row, dropout, scratch);
    Problem output = p_;
    output.weights = output.scores = output.received = output.received_last = output.map = {};
    attend_row(output, segment, row, dropout, scratch);
  }

  bool sees(const Segment& segment, const Row& row, std::int64_t j) const {
    return j >= segment.key_begin && j < segment.key_end && is_allowed(p_, segment, row, j);
  }

  bool is_nan(const Segment& segment, const Row& row, ReferenceScratch& scratch) {
    if (p_.score_mod) return false;  // which may forbid the key
    const auto seen = [&](std::int64_t j) { return sees(segment, row, j); };
    const NotFinite& head = head_of(row.batch, row.head);
    if (std::any_of(head.nan_keys.begin(), head.nan_keys.end(), seen)) return true;
    read_row(p_.query, row.batch, row.head, row.i, scratch.query);
    if (std::none_of(scratch.query.begin(), scratch.query.end(), [](double x) { return std::isnan(x); }))
      return false;
    for (std::int64_t j = segment.key_begin; j < segment.key_end; ++j)
      if (seen(j)) return true;
    return false;
  }

  // Whether NaN in values that the row sees explain all of its output that is not finite.
  bool is_right(const Segment& segment, const Row& row, const HeadDropout& dropout) {
    if (p_.score_mod) return false;
    const auto counts = [&](std::int64_t j) { return sees(segment, row, j) && !dropout.drops(row.i, j); };
    const NotFinite& head = head_of(row.batch, row.head);
    if (std::any_of(head.infinite_values.begin(), head.infinite_values.end(), counts)) return false;
    for (std::int64_t c = 0; c < p_.value_dim; ++c) {
      if (std::isfinite(read_target(p_.output, row.batch, row.head, row.i, c))) continue;
      const std::vector<std::int64_t>& keys = head.nan_values[index(c)];
      if (std::none_of(keys.begin(), keys.end(), counts)) return false;
    }
    return true;
  }

  void add_sums(const Block& block, const ReferenceScratch& scratch) const {
    const auto add = [&](const Target& to, std::int64_t row, std::int64_t column, double sum) {
      write(to, read_target(to, block.batch, block.head, row, column) + sum, block.batch, block.head, row,
            column);
    };
    for (std::size_t j = 0; j < scratch.received.size(); ++j)
      add(p_.received, static_cast<std::int64_t>(j), 0, scratch.received[j]);
    for (std::size_t j = 0; j < scratch.received_last.size(); ++j)
      add(p_.received_last, static_cast<std::int64_t>(j), 0, scratch.received_last[j]);
    for (std::size_t bin = 0; bin < scratch.map.size(); ++bin) {
      const auto [row, column] = std::lldiv(static_cast<std::int64_t>(bin), p_.map_size.columns);
      add(p_.map, row, column, scratch.map[bin]);
    }
  }

  const Problem& p_;
  std::span<const RowStatus> status_, score_status_;
  std::vector<Block> blocks_;
  std::vector<const Segment*> segment_of_;  // [B, Lq]
  std::vector<NotFinite> head_;             // [B, Hkv]
  std::vector<std::int64_t> computed_;      // rows of each block
  int threads_ = 1;
};

}  // namespace

KernelRun recompute_rows(const Problem& problem, std::span<const RowStatus> status,
                         std::span<const RowStatus> score_status) {
  const auto is_done = [](RowStatus s) { return s == RowStatus::done; };
  if (std::all_of(status.begin(), status.end(), is_done) &&
      std::all_of(score_status.begin(), score_status.end(), is_done))
    return {};
  if (problem.cache != nullptr) {
    const GatheredCall call = with_tensors(problem);
    return Recomputation(call.problem, status, score_status).run();
  }
  return Recomputation(problem, status, score_status).run();
}

}  // namespace heed::detail
