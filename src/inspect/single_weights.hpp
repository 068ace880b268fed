// Single weights of the matrix: p_ij = exp(s_ij - lse_i), one dot product each.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "attention/problem/score_rules.hpp"

namespace heed::detail {

/// The keys of the tensor that segment, causal and window allow the row; mask and bias may forbid some of
/// them.
inline KeyRange keys_of(const Problem& p, const Segment& segment, std::int64_t position) {
  const KeyRange visible = visible_keys(p, position, segment.keys());
  return {segment.key_begin + visible.begin, segment.key_begin + visible.end};
}

/// Computes the weights of one row at a time.
class RowWeights {
 public:
  explicit RowWeights(const Problem& problem)
      : p_(problem),
        is_plain_(problem.key.dtype == DType::f32 && problem.key.stride[3] == 1),
        query_(static_cast<std::size_t>(problem.head_dim)),
        query_f32_(static_cast<std::size_t>(problem.head_dim)),
        key_(static_cast<std::size_t>(problem.head_dim)) {}

  void set_row(const Segment& segment, const Row& row, double lse) {
    segment_ = &segment;
    row_ = row;
    lse_ = lse;
    has_query_ = false;
  }

  /// Prefetches memory, because the rows of a head, and its keys, may be far apart.
  void expect_row(const Row& row) const { expect(p_.query, row.batch, row.head, row.i); }
  void expect_key(std::int64_t j) const { expect(p_.key, row_.batch, row_.kv_head, j); }

  /// Accepts any key of the tensor; those outside the segment are forbidden.
  [[nodiscard]] bool allows(std::int64_t j) const {
    return j >= segment_->key_begin && j < segment_->key_end && is_allowed(p_, *segment_, row_, j);
  }

  /// Returns 0 for a forbidden key, whatever the key contains.
  double weight(std::int64_t j) { return allows(j) ? weight_of_allowed(j) : 0; }

  /// A score of -inf gives weight 0 even if the row's lse is -inf.
  double weight_of_allowed(std::int64_t j) {
    const double score = score_of_allowed(j);
    return score == -kInfinity ? 0 : std::exp(score - lse_);
  }

  double score_of_allowed(std::int64_t j) {
    read_query();
    if (is_plain_) return score_of_dot(j, dot(query_.data(), plain_key(j)));
    read_row(p_.key, row_.batch, row_.kv_head, j, key_);
    return score_of_dot(j, dot(query_.data(), key_.data()));
  }

  /// Like weight(), but several times faster for contiguous f32 keys: their products are summed in f32, as in
  /// the kernel. Meant for sums over many keys.
  double quick_weight(std::int64_t j) {
    if (!is_plain_) return weight(j);
    if (!allows(j)) return 0;
    read_query();
    const double score = score_of_dot(j, static_cast<double>(dot(query_f32_.data(), plain_key(j))));
    return score == -kInfinity ? 0 : std::exp(score - lse_);
  }

 private:
  static void expect(const Operand& from, std::int64_t batch, std::int64_t head, std::int64_t row) {
    constexpr std::int64_t kLine = 64;
    const auto size = static_cast<std::int64_t>(size_of(from.dtype));
    const char* const at = static_cast<const char*>(from.data) + offset_in(from, batch, head, row) * size;
    __builtin_prefetch(at);
    __builtin_prefetch(at + kLine);
  }

  // Reads the query lazily, because many rows are set without reading a key.
  void read_query() {
    if (std::exchange(has_query_, true)) return;
    read_row(p_.query, row_.batch, row_.head, row_.i, query_);
    for (std::size_t d = 0; d < query_.size(); ++d) query_f32_[d] = static_cast<float>(query_[d]);
  }

  [[nodiscard]] const float* plain_key(std::int64_t j) const {
    return static_cast<const float*>(p_.key.data) + offset_in(p_.key, row_.batch, row_.kv_head, j);
  }

  [[nodiscard]] double score_of_dot(std::int64_t j, double dot) const {
    return complete_score(p_, *segment_, row_, j, modified(p_, row_, j, p_.scale * dot).score);
  }

  // Many parallel partial sums, which any vector unit can use.
  template <class Sum, class Key>
  [[nodiscard]] Sum dot(const Sum* query, const Key* key) const {
    constexpr auto kLanes = static_cast<std::int64_t>(64 / sizeof(Sum));
    Sum sums[64 / sizeof(Sum)] = {};
    std::int64_t d = 0;
    for (; d + kLanes <= p_.head_dim; d += kLanes)
      for (std::int64_t lane = 0; lane < kLanes; ++lane)
        sums[lane] += query[d + lane] * static_cast<Sum>(key[d + lane]);
    for (; d < p_.head_dim; ++d) sums[0] += query[d] * static_cast<Sum>(key[d]);
    for (std::int64_t width = kLanes / 2; width > 0; width /= 2)
      for (std::int64_t lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
    return sums[0];
  }

  const Problem& p_;
  const Segment* segment_ = nullptr;
  Row row_{};
  double lse_ = 0;
  bool is_plain_;  // keys are contiguous f32
  bool has_query_ = false;
  std::vector<double> query_;
  std::vector<float> query_f32_;
  std::vector<double> key_;
};

struct RowBlock {
  std::size_t segment;
  std::int64_t head;
  std::int64_t begin, end;  ///< rows of the query tensor
};

/// All rows in [row_begin, row_end) of the heads [head_begin, head_end), in blocks for parallel_for.
inline std::vector<RowBlock> row_blocks(const Problem& p, std::int64_t row_begin, std::int64_t row_end,
                                        std::int64_t head_begin, std::int64_t head_end, std::int64_t rows) {
  std::vector<RowBlock> blocks;
  for (std::size_t s = 0; s < p.segments.size(); ++s) {
    const std::int64_t begin = std::max(row_begin, p.segments[s].query_begin);
    const std::int64_t end = std::min(row_end, p.segments[s].query_end);
    for (std::int64_t head = head_begin; head < head_end; ++head)
      for (std::int64_t i = begin; i < end; i += rows)
        blocks.push_back({s, head, i, std::min(end, i + rows)});
  }
  return blocks;
}

inline Row row_at(const Problem& p, const RowBlock& block, std::int64_t i) {
  const Segment& segment = p.segments[block.segment];
  return {segment.batch, block.head, block.head / (p.heads / p.kv_heads), i,
          i - segment.query_begin + segment.offset};
}

}  // namespace heed::detail
