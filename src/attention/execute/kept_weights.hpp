// Weights of calls with few rows. The forward pass keeps them all, so results that need the final sums take
// no second pass.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/kernels/shared/arguments.hpp"
#include "attention/problem/problem.hpp"

namespace heed::detail {

/// The sums of the rows that the forward passes computed, each [B, H, Lq], row-major. A weight is exp2(score
/// - shift) * inverse.
struct RowSums {
  std::span<const cpu::RowStatus> status;
  std::span<const float> shift, inverse;
};

class KeptRowWeights {
 public:
  explicit KeptRowWeights(const Problem& problem) : p_(problem) {}

  /// Returns memory for all rows of the call, in KV blocks of `kv_block` keys. All passes share it.
  [[nodiscard]] cpu::KeptWeights room(std::int64_t kv_block);
  /// Writes weights, received and received_last of these segments, except for rows that are recomputed.
  void finish(std::span<const Segment> segments, const RowSums& rows, int threads);

 private:
  void finish_head(const Segment& s, std::int64_t head, const RowSums& rows) const;
  [[nodiscard]] float factor(std::size_t row, std::int64_t block, const RowSums& rows) const;

  const Problem& p_;
  std::int64_t kv_block_ = 0;
  Tensor weights_;  // [rows, keys]
  std::vector<float> shifts_;
  cpu::KeptWeights kept_{};
};

}  // namespace heed::detail
