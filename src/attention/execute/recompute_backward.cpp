// Computes, in f64, the gradients of rows that the fused backward pass left out, by the reference's formulas,
// on all threads.
//
//   for each key head, some of its rows at a time:
//     blocks of rows, in parallel    the factors of the sums below; dQ; dBias if each score has its own bias
//     pieces of keys, in parallel    the rows' shares of dK, dV and a shared dBias, in order of the rows
//
// Every sum belongs to one thread, so its bits do not depend on the number of threads.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "attention/execute/f64_products.hpp"
#include "attention/execute/recompute.hpp"
#include "attention/problem/decay_sums.hpp"
#include "attention/problem/elements.hpp"
#include "attention/reference/passes.hpp"
#include "core/index.hpp"
#include "heed/parallel.hpp"

namespace heed::detail {
namespace {

using cpu::RowStatus;

constexpr std::int64_t kPieceKeys = 64;
// Most elements of a matrix of factors, for the rows processed at a time.
constexpr std::int64_t kFactors = std::int64_t{1} << 22;

std::int64_t pieces_of(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Adds a sum to the other rows' sum. If the sum is 0, an existing -0 stays -0.
void add_to(const Output& to, double sum, std::int64_t a, std::int64_t b, std::int64_t c,
            std::int64_t d = 0) {
  if (!to || sum == 0) return;
  write(to, sum + read(to, a, b, c, d), a, b, c, d);
}

struct LeftOutRow {
  Row row;
  const Segment* segment;
};

// Row stride of a matrix [rows][Lk]. The spare elements spread a column over more cache sets.
std::int64_t row_stride_of(const Problem& p) { return p.key_length + F64Products::kSpare; }

// The working memory of one thread.
struct GradientBlockScratch : GradientScratch {
  GradientBlockScratch(const Problem& p, std::int64_t rows)
      : GradientScratch(p),
        scores(index(rows * row_stride_of(p))),
        weights(scores.size()),
        query_gradients(index(rows * F64Products::padded(p.head_dim))) {}

  F64Products multiply;
  std::vector<double> scores, weights;  // [rows][Lk]: products with keys; of gradients with values
  std::vector<double> query_gradients;  // [rows][D]
};

class LeftOutRows {
 public:
  LeftOutRows(const BackwardProblem& problem, std::span<const RowStatus> status)
      : problem_(problem),
        p_(problem.forward),
        decay_(problem),
        status_(status),
        row_stride_(row_stride_of(p_)),
        most_rows_(std::clamp<std::int64_t>(kFactors / std::max<std::int64_t>(1, p_.key_length), 1,
                                            std::max<std::int64_t>(1, p_.heads * p_.query_length))),
        block_rows_(std::min(F64Products::kRows, most_rows_)) {}

  KernelRun run() {
    const std::int64_t count =
        std::ranges::count_if(status_, [](RowStatus s) { return s != RowStatus::done; });
    if (count == 0) return {};
    prepare();
    for (std::int64_t b = 0; b < p_.batch; ++b)
      for (std::int64_t kv = 0; kv < p_.kv_heads; ++kv) differentiate_head(b, kv);
    add_sums();
    return {threads_used_, count};
  }

 private:
  // Whether each score has its own bias.
  bool has_own_bias() const {
    const std::int64_t whole[4] = {p_.batch, p_.heads, p_.query_length, p_.key_length};
    return problem_.grad_bias && std::equal(whole, whole + 4, problem_.grad_bias_size);
  }
  bool keeps_terms() const { return shares_bias() || decay_; }
  bool shares_bias() const { return problem_.grad_bias && !has_own_bias(); }

  void prepare() {
    segment_of_.resize(index(p_.batch * p_.query_length));
    for (const Segment& segment : p_.segments)
      for (std::int64_t i = segment.query_begin; i < segment.query_end; ++i)
        segment_of_[index(segment.batch * p_.query_length + i)] = &segment;
    key_width_ = F64Products::padded(p_.head_dim);
    value_width_ = F64Products::padded(p_.value_dim);
    sink_sums_.assign(index(p_.heads), 0.0);
    const auto& size = problem_.grad_bias_size;
    if (shares_bias()) bias_sums_.assign(index(size[0] * size[1] * size[2] * size[3]), 0.0);
  }

  // Each worker prepares its memory before its first piece.
  template <class Piece>
  void in_parallel(std::int64_t count, Piece piece) {
    const int threads = static_cast<int>(std::min<std::int64_t>(count, p_.threads));
    threads_used_ = std::max(threads_used_, threads);
    if (scratch_.size() < index(threads))
      scratch_.resize(index(threads), GradientBlockScratch(p_, block_rows_));
    parallel_for(count, threads, [&](std::int64_t i, int worker) { piece(i, scratch_[index(worker)]); });
  }

  std::vector<LeftOutRow> rows_of_head(std::int64_t batch, std::int64_t kv_head) const {
    const std::int64_t group = p_.heads / p_.kv_heads;
    std::vector<LeftOutRow> rows;
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
      for (std::int64_t i = 0; i < p_.query_length; ++i) {
        if (status_[index((batch * p_.heads + head) * p_.query_length + i)] == RowStatus::done) continue;
        const Segment* segment = segment_of_[index(batch * p_.query_length + i)];
        rows.push_back({{batch, head, kv_head, i, i - segment->query_begin + segment->offset}, segment});
      }
    return rows;
  }

  void differentiate_head(std::int64_t batch, std::int64_t kv_head) {
    const std::vector<LeftOutRow> all = rows_of_head(batch, kv_head);
    if (all.empty()) return;
    grad_key_.assign(index(p_.key_length * key_width_), 0.0);
    grad_value_.assign(index(p_.key_length * value_width_), 0.0);
    std::span<const LeftOutRow> left = all;
    while (!left.empty()) {
      rows_ = left.first(std::min(left.size(), index(most_rows_)));
      left = left.subspan(rows_.size());
      differentiate_rows();
    }
    in_parallel(pieces_of(p_.key_length, kPieceKeys), [&](std::int64_t piece, GradientBlockScratch&) {
      const std::int64_t end = std::min(p_.key_length, (piece + 1) * kPieceKeys);
      for (std::int64_t j = piece * kPieceKeys; j < end; ++j) {
        for (std::int64_t d = 0; d < p_.head_dim; ++d)
          add_to(problem_.grad_key, grad_key_[index(j * key_width_ + d)], batch, kv_head, j, d);
        for (std::int64_t c = 0; c < p_.value_dim; ++c)
          add_to(problem_.grad_value, grad_value_[index(j * value_width_ + c)], batch, kv_head, j, c);
      }
    });
  }

  void differentiate_rows() {
    const std::size_t cells = rows_.size() * index(row_stride_);
    key_factors_.assign(cells, kNoTerm);
    value_factors_.assign(cells, kNoTerm);
    if (keeps_terms()) bias_terms_.assign(cells, kNoTerm);
    queries_.resize(rows_.size() * index(p_.head_dim));
    gradients_.resize(rows_.size() * index(p_.value_dim));
    grad_sinks_.assign(rows_.size(), 0.0);
    std::vector<std::size_t> blocks{0};
    for (std::size_t r = 1; r < rows_.size(); ++r)
      if (rows_[r].segment != rows_[r - 1].segment || r - blocks.back() == index(block_rows_))
        blocks.push_back(r);
    blocks.push_back(rows_.size());
    in_parallel(std::ssize(blocks) - 1, [&](std::int64_t i, GradientBlockScratch& scratch) {
      differentiate_block(blocks[index(i)], blocks[index(i) + 1], scratch);
    });
    in_parallel(pieces_of(p_.key_length, kPieceKeys), [&](std::int64_t piece, GradientBlockScratch& scratch) {
      add_to_keys({piece * kPieceKeys, std::min(p_.key_length, (piece + 1) * kPieceKeys)}, scratch);
    });
    for (std::size_t r = 0; r < rows_.size(); ++r) add_row_sums(r);
  }

  static std::span<double> row_of(std::vector<double>& matrix, std::size_t row, std::int64_t width) {
    return std::span(matrix).subspan(row * index(width), index(width));
  }

  void differentiate_block(std::size_t begin, std::size_t end, GradientBlockScratch& x) {
    KeyRange keys{p_.key_length, 0};
    for (std::size_t r = begin; r < end; ++r) {
      const auto& [row, segment] = rows_[r];
      read_row(p_.query, row.batch, row.head, row.i, row_of(queries_, r, p_.head_dim));
      read_row(problem_.grad_output, row.batch, row.head, row.i, row_of(gradients_, r, p_.value_dim));
      const KeyRange own = seen_keys(p_, *segment, row);
      keys = {std::min(keys.begin, own.begin), std::max(keys.end, own.end)};
    }
    const Row& any = rows_[begin].row;
    const auto read_key = [&](std::int64_t j, std::span<double> to) {
      read_row(p_.key, any.batch, any.kv_head, j, to);
    };
    const auto read_value = [&](std::int64_t j, std::span<double> to) {
      read_row(p_.value, any.batch, any.kv_head, j, to);
    };
    const auto rows = static_cast<std::int64_t>(end - begin);
    x.multiply.dot({row_of(queries_, begin, p_.head_dim).data(), rows, p_.head_dim}, read_key, keys,
                   p_.head_dim, {x.scores.data(), rows, row_stride_});
    x.multiply.dot({row_of(gradients_, begin, p_.value_dim).data(), rows, p_.value_dim}, read_value, keys,
                   p_.value_dim, {x.weights.data(), rows, row_stride_});
    for (std::size_t r = begin; r < end; ++r) differentiate(r, r - begin, x);
    if (!problem_.grad_query) return;
    std::ranges::fill(x.query_gradients, 0.0);
    x.multiply.add_combined({row_of(key_factors_, begin, row_stride_).data(), rows, row_stride_}, read_key,
                            keys, p_.head_dim, {x.query_gradients.data(), rows, key_width_});
    for (std::size_t r = begin; r < end; ++r) {
      const Row& row = rows_[r].row;
      const std::span<const double> gradient = row_of(x.query_gradients, r - begin, key_width_);
      for (std::int64_t d = 0; d < p_.head_dim; ++d)
        write(problem_.grad_query, gradient[index(d)], row.batch, row.head, row.i, d);
    }
  }

  // Computes the factors of one row's sums; `at` is the row's number in its block.
  void differentiate(std::size_t r, std::size_t at, GradientBlockScratch& x) {
    const auto& [row, segment] = rows_[r];
    const KeyRange keys = seen_keys(p_, *segment, row);
    for (std::int64_t j = keys.begin; j < keys.end; ++j) {
      x.products[x.at(j)] = p_.scale * x.scores[at * index(row_stride_) + x.at(j)];
      x.grad_products[x.at(j)] = x.weights[at * index(row_stride_) + x.at(j)];
    }
    GradientScratch& g = x;
    grad_sinks_[r] = differentiate_row(problem_, *segment, row, {p_.dropout, row.batch, row.head}, g);
    const std::span<double> of_keys = row_of(key_factors_, r, row_stride_);
    const std::span<double> of_values = row_of(value_factors_, r, row_stride_);
    for (std::int64_t j = keys.begin; j < keys.end; ++j) {
      if (g.kept[g.at(j)] != 0) of_values[g.at(j)] = g.kept[g.at(j)] * g.weights[g.at(j)];
      // Adding 0 turns -0 into 0, because -0 is kNoTerm.
      if (g.attends(j)) of_keys[g.at(j)] = p_.scale * g.grad_scores[g.at(j)] * g.slopes[g.at(j)] + 0.0;
    }
    for (std::int64_t j = keys.begin; (problem_.grad_bias || decay_) && j < keys.end; ++j) {
      if (!g.attends(j)) continue;
      if (has_own_bias()) add_to(problem_.grad_bias, g.grad_scores[g.at(j)], row.batch, row.head, row.i, j);
      if (keeps_terms()) row_of(bias_terms_, r, row_stride_)[g.at(j)] = g.grad_scores[g.at(j)] + 0.0;
    }
  }

  std::size_t bias_index(const Row& row, std::int64_t j) const {
    const auto& size = problem_.grad_bias_size;
    const std::int64_t at[4] = {row.batch, row.head, row.i, j};
    std::int64_t number = 0;
    for (int axis = 0; axis < 4; ++axis) number = number * size[axis] + (size[axis] == 1 ? 0 : at[axis]);
    return index(number);
  }

  // Adds the shares of all rows to the sums of some keys.
  void add_to_keys(const KeyRange& keys, GradientBlockScratch& x) {
    const std::int64_t count = keys.end - keys.begin;
    const auto rows = std::ssize(rows_);
    const auto add = [&](std::vector<double>& factors, std::vector<double>& from, std::int64_t width,
                         std::vector<double>& to) {
      const std::int64_t stride = F64Products::padded(width);
      x.multiply.add_combined({factors.data() + keys.begin, count, 1, row_stride_},
                              [&](std::int64_t r, std::span<double> row) {
                                std::copy_n(from.begin() + r * width, width, row.begin());
                              },
                              {0, rows}, width, {to.data() + keys.begin * stride, count, stride});
    };
    if (problem_.grad_key) add(key_factors_, queries_, p_.head_dim, grad_key_);
    if (problem_.grad_value) add(value_factors_, gradients_, p_.value_dim, grad_value_);
    for (std::size_t r = 0; decay_ && r < rows_.size(); ++r)
      for (std::int64_t j = keys.begin; j < keys.end; ++j)
        decay_.of_key(*rows_[r].segment, rows_[r].row.head, j) -=
            row_of(bias_terms_, r, row_stride_)[index(j)];
    if (!shares_bias() || problem_.grad_bias_size[3] == 1) return;
    for (std::size_t r = 0; r < rows_.size(); ++r)
      for (std::int64_t j = keys.begin; j < keys.end; ++j)
        bias_sums_[bias_index(rows_[r].row, j)] += row_of(bias_terms_, r, row_stride_)[index(j)];
  }

  // Adds a row's share to its sink and its decay, and to a bias that has one number for all keys.
  void add_row_sums(std::size_t r) {
    const Row& row = rows_[r].row;
    if (decay_) {
      const std::span<const double> terms = row_of(bias_terms_, r, row_stride_);
      double& sum = decay_.of_row(*rows_[r].segment, row.head, row.position);
      sum = std::accumulate(terms.begin(), terms.end(), sum);
    }
    if (shares_bias() && problem_.grad_bias_size[3] == 1) {
      const std::span<const double> terms = row_of(bias_terms_, r, row_stride_);
      double& sum = bias_sums_[bias_index(row, 0)];
      sum = std::accumulate(terms.begin(), terms.end(), sum);
    }
    sink_sums_[index(problem_.grad_sinks.stride[1] == 0 ? 0 : row.head)] += grad_sinks_[r];
  }

  void add_sums() const {
    decay_.write(true);
    for (std::int64_t head = 0; head < p_.heads; ++head)
      add_to(problem_.grad_sinks, sink_sums_[index(head)], 0, head, 0);
    const auto& size = problem_.grad_bias_size;
    for (std::int64_t at = 0; at < std::ssize(bias_sums_); ++at)
      add_to(problem_.grad_bias, bias_sums_[index(at)], at / (size[3] * size[2] * size[1]),
             at / (size[3] * size[2]) % size[1], at / size[3] % size[2], at % size[3]);
  }

  const BackwardProblem& problem_;
  const Problem& p_;
  DecaySums decay_;
  std::span<const RowStatus> status_;
  std::int64_t row_stride_, most_rows_, block_rows_;
  std::int64_t key_width_ = 0, value_width_ = 0;  // row widths of the two below
  std::vector<const Segment*> segment_of_;        // [B, Lq]
  std::vector<double> grad_key_, grad_value_;     // [Lk][D] and [Lk][Dv], of the current key head
  std::vector<double> bias_sums_;                 // like grad_bias, if scores share a bias
  std::vector<double> sink_sums_;                 // [H], or one element for all heads
  std::vector<GradientBlockScratch> scratch_;

  // The current rows:
  std::span<const LeftOutRow> rows_;
  std::vector<double> queries_, gradients_;                       // [rows][D], [rows][Dv]
  std::vector<double> key_factors_, value_factors_, bias_terms_;  // [rows][Lk]; terms: dS
  std::vector<double> grad_sinks_;                                // [rows]
  int threads_used_ = 1;
};

}  // namespace

KernelRun add_left_out_rows(const BackwardProblem& problem, std::span<const RowStatus> status) {
  return LeftOutRows(problem, status).run();
}

}  // namespace heed::detail
