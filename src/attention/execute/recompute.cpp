// Recomputes, in f64, the rows that the fused kernel left out, by the reference's formulas, on all threads.
// Some rows of a head form a block: their products are computed together, and one thread runs the block.
//
// Two kinds of rows are recognised instead of recomputed, because one NaN or infinity may affect every row of
// a head:
//   - a row that sees a NaN in its query or in a key has NaN for every weight;
//   - an output whose infinite or NaN columns all come from values that the row sees is correct.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "attention/execute/f64_products.hpp"
#include "attention/execute/path_record.hpp"
#include "attention/execute/recompute.hpp"
#include "attention/kv_cache/read_row.hpp"
#include "attention/problem/elements.hpp"
#include "attention/reference/reference.hpp"
#include "core/index.hpp"
#include "heed/parallel.hpp"

namespace heed::detail {
namespace {

using cpu::RowStatus;

// Most scores of a block. Sums over rows are added block by block, in order.
constexpr std::int64_t kBlockScores = std::int64_t{1} << 22;
// A block has more than 32 rows only if its scores stay in the caches and many threads still find work.
constexpr std::int64_t kCachedScores = std::int64_t{1} << 18, kManyBlocks = 64;
// If at most one key in so many has a weight, a row reads its values alone. Adding one value there costs
// about as much as sixteen in a product of many rows.
constexpr std::int64_t kFewWeights = 16;
// Keys that a thread inspects at a time.
constexpr std::int64_t kKeysAtOnce = 1024;

// The rows of a block do not depend on the threads, because sums over rows do not.
std::int64_t rows_of_block(std::int64_t all_rows, std::int64_t keys) {
  constexpr std::int64_t kRows = F64Products::kRows;
  const std::int64_t rows = std::min(all_rows / kManyBlocks, kCachedScores / keys);
  return std::clamp<std::int64_t>(kBlockScores / keys, 1, std::clamp(rows, kRows, 4 * kRows));
}

// The keys of one key head with numbers that are not finite, in order.
struct NotFinite {
  std::vector<std::int64_t> nan_keys;  // with a NaN in the key
  std::vector<std::int64_t> values;    // with a NaN or an infinity in the value
};

NotFinite look_through(const Problem& p, std::int64_t batch, std::int64_t kv_head, const KeyRange& keys) {
  NotFinite found;
  std::vector<double> key(index(p.head_dim)), value(index(p.value_dim));
  for (std::int64_t j = keys.begin; j < keys.end; ++j) {
    read_row(p.key, batch, kv_head, j, key);
    if (std::ranges::any_of(key, [](double x) { return std::isnan(x); })) found.nan_keys.push_back(j);
    read_row(p.value, batch, kv_head, j, value);
    if (!std::ranges::all_of(value, [](double x) { return std::isfinite(x); })) found.values.push_back(j);
  }
  return found;
}

// Some rows of one head and segment, in order.
struct Block {
  std::int64_t batch, head;
  const Segment* segment;
  std::vector<std::int64_t> rows;
};

// A row of a block, and what to compute for it.
struct RowWork {
  Row row;
  const Problem* results;  // nullptr: only scores
  bool scores;             // whether scores are wanted
};

// The working memory of one thread.
struct BlockScratch : ReferenceScratch {
  BlockScratch(const Problem& p, std::int64_t rows)
      : ReferenceScratch(p),
        row_stride(p.key_length + F64Products::kSpare),
        queries(index(rows * p.head_dim)),
        numbers(index(rows * row_stride)),
        outputs(index(rows * F64Products::padded(p.value_dim))),
        waits(index(rows)) {}

  F64Products multiply;
  std::int64_t row_stride;
  std::vector<double> queries;  // [rows][D]
  std::vector<double> numbers;  // [rows][Lk]: products, then the factors of the values of rows that wait
  std::vector<double> outputs;  // [rows][Dv]
  std::vector<char> waits;      // [rows]: 1 if the row's values are multiplied together with other rows'
};

class Recomputation {
 public:
  Recomputation(const Problem& problem, std::span<const RowStatus> status,
                std::span<const RowStatus> score_status)
      : p_(problem),
        output_only_(problem),
        status_(status),
        score_status_(score_status),
        not_finite_(index(p_.batch * p_.kv_heads)) {
    // The sums already contain the weights of such rows.
    output_only_.weights = output_only_.scores = output_only_.received = output_only_.received_last =
        output_only_.map = {};
  }

  KernelRun run() {
    find_segments();
    collect();
    if (blocks_.empty()) return {};
    look_through_heads();
    // If there are sums over rows, at most `threads_` blocks run at a time, to limit the memory of their
    // sums.
    const std::int64_t count = std::ssize(blocks_);
    threads_ = static_cast<int>(std::min<std::int64_t>(p_.threads, count));
    const bool sums = p_.received || p_.received_last || p_.map;
    const std::int64_t at_once = sums ? threads_ : count;
    std::size_t most = 0;
    for (const Block& block : blocks_) most = std::max(most, block.rows.size());
    std::vector<BlockScratch> scratch(index(threads_), BlockScratch(p_, static_cast<std::int64_t>(most)));
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
    std::int64_t all = 0;
    for (std::size_t row = 0; row < status_.size(); ++row)
      all += static_cast<std::int64_t>(status_[row] != RowStatus::done ||
                                       (!score_status_.empty() && score_status_[row] != RowStatus::done));
    const std::int64_t block_rows = rows_of_block(all, std::max<std::int64_t>(1, p_.key_length));
    for (std::int64_t b = 0; b < p_.batch; ++b)
      for (std::int64_t h = 0; h < p_.heads; ++h)
        for (std::int64_t i = 0; i < p_.query_length; ++i) {
          if (status(b, h, i) == RowStatus::done && !wants_scores(b, h, i)) continue;
          const Segment* segment = segment_of_[index(b * p_.query_length + i)];
          const bool joins = !blocks_.empty() && blocks_.back().segment == segment &&
                             blocks_.back().head == h &&
                             static_cast<std::int64_t>(blocks_.back().rows.size()) < block_rows;
          if (!joins) blocks_.push_back({b, h, segment, {}});
          blocks_.back().rows.push_back(i);
        }
  }

  void find_segments() {
    segment_of_.resize(index(p_.batch * p_.query_length));
    for (const Segment& segment : p_.segments)
      for (std::int64_t i = segment.query_begin; i < segment.query_end; ++i)
        segment_of_[index(segment.batch * p_.query_length + i)] = &segment;
  }

  std::int64_t kv_head(std::int64_t head) const { return head / (p_.heads / p_.kv_heads); }
  const NotFinite& not_finite(const Row& row) const {
    return not_finite_[index(row.batch * p_.kv_heads + row.kv_head)];
  }

  void look_through_heads() {
    std::vector<char> concerned(not_finite_.size(), 0);
    for (const Block& block : blocks_) concerned[index(block.batch * p_.kv_heads + kv_head(block.head))] = 1;
    const std::int64_t pieces = (p_.key_length + kKeysAtOnce - 1) / kKeysAtOnce;
    std::vector<NotFinite> found(not_finite_.size() * index(pieces));
    parallel_for(std::ssize(found), p_.threads, [&](std::int64_t at, int) {
      const std::int64_t head = at / pieces, piece = at % pieces;
      const KeyRange keys{piece * kKeysAtOnce, std::min(p_.key_length, (piece + 1) * kKeysAtOnce)};
      if (concerned[index(head)] != 0)
        found[index(at)] = look_through(p_, head / p_.kv_heads, head % p_.kv_heads, keys);
    });
    const auto append = [](std::vector<std::int64_t>& to, const std::vector<std::int64_t>& more) {
      to.insert(to.end(), more.begin(), more.end());
    };
    for (std::size_t at = 0; at < found.size(); ++at) {
      append(not_finite_[at / index(pieces)].nan_keys, found[at].nan_keys);
      append(not_finite_[at / index(pieces)].values, found[at].values);
    }
  }

  void compute(std::size_t which, BlockScratch& scratch) {
    const Block& block = blocks_[which];
    const HeadDropout dropout(p_.dropout, block.batch, block.head);
    for (auto* sums : {&scratch.received, &scratch.received_last, &scratch.map})
      std::ranges::fill(*sums, 0.0);
    const std::vector<RowWork> work = work_of(block, dropout, scratch, computed_[which]);
    if (work.empty()) return;
    multiply(*block.segment, work, scratch);
    for (std::size_t r = 0; r < work.size(); ++r) weigh(*block.segment, work[r], r, dropout, scratch);
    if (p_.output) write_outputs(*block.segment, work, scratch);
  }

  // Lists the rows of a block that need products, and writes the NaN rows. `computed` counts both.
  std::vector<RowWork> work_of(const Block& block, const HeadDropout& dropout, BlockScratch& scratch,
                               std::int64_t& computed) const {
    std::vector<RowWork> work;
    for (const std::int64_t i : block.rows) {
      const Segment& segment = *block.segment;
      const Row row{block.batch, block.head, kv_head(block.head), i,
                    i - segment.query_begin + segment.offset};
      const RowStatus what = status(block.batch, block.head, i);
      const bool again = what == RowStatus::out_of_range ||
                         (what == RowStatus::output_only && !is_right(segment, row, dropout));
      const bool scores = wants_scores(block.batch, block.head, i);
      if (!again && !scores) continue;
      record_fallback(cpu::Path::fallback, {block.batch, block.head, i, i + 1});
      const bool nan = again && is_nan(segment, row, scratch);
      if (nan) attend_nan_row(p_, segment, row, scratch);
      ++computed;
      const Problem* results = what == RowStatus::out_of_range ? &p_ : &output_only_;
      if (!nan || scores) work.push_back({row, again && !nan ? results : nullptr, scores});
    }
    return work;
  }

  // Computes the products of the block's rows with all keys that any of them needs.
  void multiply(const Segment& segment, const std::vector<RowWork>& work, BlockScratch& scratch) const {
    KeyRange keys{p_.key_length, 0};
    const auto rows = std::ssize(work);
    for (std::int64_t r = 0; r < rows; ++r) {
      const Row& row = work[index(r)].row;
      read_row(p_.query, row.batch, row.head, row.i,
               std::span(scratch.queries).subspan(index(r * p_.head_dim), index(p_.head_dim)));
      const KeyRange own = multiplied_keys(p_, segment, row);
      keys = {std::min(keys.begin, own.begin), std::max(keys.end, own.end)};
    }
    const Row& any = work[0].row;
    scratch.multiply.dot(
        {scratch.queries.data(), rows, p_.head_dim},
        [&](std::int64_t j, std::span<double> to) { read_row(p_.key, any.batch, any.kv_head, j, to); }, keys,
        p_.head_dim, {scratch.numbers.data(), rows, scratch.row_stride});
  }

  // Computes all results of a row except its output, which may wait for write_outputs().
  void weigh(const Segment& segment, const RowWork& work, std::size_t r, const HeadDropout& dropout,
             BlockScratch& scratch) const {
    const double* numbers = scratch.numbers.data() + r * index(scratch.row_stride);
    const KeyRange keys = multiplied_keys(p_, segment, work.row);
    for (std::int64_t j = keys.begin; j < keys.end; ++j) scratch.products[index(j)] = p_.scale * numbers[j];
    scratch.waits[r] = 0;
    if (work.results != nullptr) {
      const Normaliser normaliser = weigh_row(p_, segment, work.row, scratch);
      if (p_.output) add_values(segment, work.row, r, std::isnan(normaliser.lse), dropout, scratch);
      write_results(*work.results, segment, work.row, normaliser, scratch);
    }
    if (work.scores) attend_scores(p_, segment, work.row, scratch);
  }

  // Calls term(j, factor) for the values of the row's output. Weights of 0 count for values that are not
  // finite: they make NaN.
  template <class Term>
  void each_term(const Segment& segment, const Row& row, const HeadDropout& dropout, const RowScratch& x,
                 Term term) const {
    const auto offer = [&](std::int64_t j) {
      if (!dropout.drops(row.i, j)) term(j, x.weights[index(j)] * dropout.keep_scale());
    };
    for (const std::int64_t j : x.softmax.weighted) offer(j);
    for (const std::int64_t j : not_finite(row).values)
      if (j >= segment.key_begin && j < segment.key_end && x.attends(j) && x.weights[index(j)] == 0) offer(j);
  }

  // Adds the values of a row that has few weights, or only NaN. Otherwise keeps their factors for
  // write_outputs().
  void add_values(const Segment& segment, const Row& row, std::size_t r, bool is_nan,
                  const HeadDropout& dropout, BlockScratch& scratch) const {
    double* output = scratch.outputs.data() + r * index(F64Products::padded(p_.value_dim));
    std::fill_n(output, F64Products::padded(p_.value_dim), 0.0);
    if (is_nan) {
      double factor = 0;
      each_term(segment, row, dropout, scratch, [&](std::int64_t, double nan) { factor = nan; });
      std::fill_n(output, p_.value_dim, factor);
      return;
    }
    const auto weights = std::ssize(scratch.softmax.weighted);
    if (weights * kFewWeights <= segment.key_end - segment.key_begin)
      return each_term(segment, row, dropout, scratch, [&](std::int64_t j, double factor) {
        read_row(p_.value, row.batch, row.kv_head, j, scratch.value);
        for (std::size_t c = 0; c < scratch.value.size(); ++c) output[c] += factor * scratch.value[c];
      });
    double* factors = scratch.numbers.data() + r * index(scratch.row_stride);
    std::fill(factors + segment.key_begin, factors + segment.key_end, kNoTerm);
    each_term(segment, row, dropout, scratch, [&](std::int64_t j, double factor) { factors[j] = factor; });
    scratch.waits[r] = 1;
  }

  void write_outputs(const Segment& segment, const std::vector<RowWork>& work, BlockScratch& scratch) const {
    KeyRange keys{p_.key_length, 0};
    const std::int64_t stride = F64Products::padded(p_.value_dim);
    for (std::size_t r = 0; r < work.size(); ++r) {
      if (scratch.waits[r] == 0) continue;
      const KeyRange own = seen_keys(p_, segment, work[r].row);
      keys = {std::min(keys.begin, own.begin), std::max(keys.end, own.end)};
    }
    const Row& any = work[0].row;
    for (std::size_t r = 0; r < work.size() && keys.begin < keys.end; ++r) {
      double* factors = scratch.numbers.data() + r * index(scratch.row_stride);
      if (scratch.waits[r] == 0) std::fill(factors + keys.begin, factors + keys.end, kNoTerm);
    }
    scratch.multiply.add_combined(
        {scratch.numbers.data(), std::ssize(work), scratch.row_stride},
        [&](std::int64_t j, std::span<double> to) { read_row(p_.value, any.batch, any.kv_head, j, to); },
        keys, p_.value_dim, {scratch.outputs.data(), std::ssize(work), stride});
    for (std::size_t r = 0; r < work.size(); ++r)
      if (work[r].results != nullptr)
        write_output(p_, work[r].row,
                     std::span(scratch.outputs).subspan(r * index(stride), index(p_.value_dim)));
  }

  bool sees(const Segment& segment, const Row& row, std::int64_t j) const {
    return j >= segment.key_begin && j < segment.key_end && is_allowed(p_, segment, row, j);
  }

  bool is_nan(const Segment& segment, const Row& row, ReferenceScratch& scratch) const {
    if (p_.score_mod) return false;  // it may forbid the key
    const auto seen = [&](std::int64_t j) { return sees(segment, row, j); };
    const std::vector<std::int64_t>& nan_keys = not_finite(row).nan_keys;
    if (std::ranges::any_of(nan_keys, seen)) return true;
    read_row(p_.query, row.batch, row.head, row.i, scratch.query);
    if (std::ranges::none_of(scratch.query, [](double x) { return std::isnan(x); })) return false;
    for (std::int64_t j = segment.key_begin; j < segment.key_end; ++j)
      if (seen(j)) return true;
    return false;
  }

  // Whether values that the row sees explain every output that is not finite. If a sum is infinite, no
  // infinity met a weight of 0 or an infinity of the other sign. So it is right if some value is that
  // infinity.
  bool is_right(const Segment& segment, const Row& row, const HeadDropout& dropout) const {
    if (p_.score_mod) return false;
    std::vector<std::int64_t> keys;
    for (const std::int64_t j : not_finite(row).values)
      if (sees(segment, row, j) && !dropout.drops(row.i, j)) keys.push_back(j);
    for (std::int64_t c = 0; c < p_.value_dim; ++c) {
      const double sum = read(p_.output, row.batch, row.head, row.i, c);
      if (std::isfinite(sum)) continue;
      const auto explains = [&](std::int64_t j) {
        const double value = read(p_.value, row.batch, row.kv_head, j, c);
        return std::isnan(value) || value == sum;
      };
      if (std::ranges::none_of(keys, explains)) return false;
    }
    return true;
  }

  void add_sums(const Block& block, const ReferenceScratch& scratch) const {
    const auto add = [&](const Output& to, std::int64_t row, std::int64_t column, double sum) {
      write(to, read(to, block.batch, block.head, row, column) + sum, block.batch, block.head, row, column);
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
  Problem output_only_;
  std::span<const RowStatus> status_, score_status_;
  std::vector<Block> blocks_;
  std::vector<const Segment*> segment_of_;  // [B, Lq]
  std::vector<NotFinite> not_finite_;       // [B, Hkv]
  std::vector<std::int64_t> computed_;      // rows computed per block
  int threads_ = 1;
};

}  // namespace

KernelRun recompute_rows(const Problem& problem, std::span<const RowStatus> status,
                         std::span<const RowStatus> score_status) {
  const auto is_done = [](RowStatus s) { return s == RowStatus::done; };
  if (std::ranges::all_of(status, is_done) && std::ranges::all_of(score_status, is_done)) return {};
  if (problem.cache != nullptr) {
    const GatheredCall call = with_tensors(problem);
    return Recomputation(call.problem, status, score_status).run();
  }
  return Recomputation(problem, status, score_status).run();
}

}  // namespace heed::detail
