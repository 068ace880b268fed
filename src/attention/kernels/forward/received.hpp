// The weight that each key receives, without a second pass over queries and keys. A thread keeps the
// unnormalised weights of its last task. Once the sums of the task's rows are known,
//
//   received_j = sum_i p_ij = sum_i w_ij 2^(m_b - m_i) / sum_i
//
// where w_ij was computed with the shift m_b that row i had in the KV block, and m_i and sum_i are the row's
// final values. A KV block is summed right before the next task overwrites it. So its memory, which no cache
// holds, is fetched only once for both.
#pragma once

#include "attention/kernels/softmax/map_bins.hpp"
#include "attention/kernels/softmax/plan_tiling.hpp"

namespace heed::detail::HEED_ISA {

/// sums [kWide vectors] += the same vectors of `weights` (rows kKvBlock apart), times each row's factor.
template <std::size_t kWide>
HEED_INLINE void sum_vectors(const float* weights, const float* factors, std::int64_t rows, float* sums) {
  Vf sum[kWide];
#pragma GCC unroll 12
  for (std::size_t v = 0; v < kWide; ++v) sum[v] = load(sums + v * kLanes);
  for (std::int64_t r = 0; r < rows; ++r) {
    const Vf factor = splat(factors[r]);
#pragma GCC unroll 12
    for (std::size_t v = 0; v < kWide; ++v)
      sum[v] = mul_add(load(weights + r * kKvBlock + v * kLanes), factor, sum[v]);
  }
#pragma GCC unroll 12
  for (std::size_t v = 0; v < kWide; ++v) store(sums + v * kLanes, sum[v]);
}

inline float* kept_weights(const cpu::KeptTask& kept, std::int64_t kv_block_key) {
  return kept.weights + kv_block_key * kept.row_count;
}
inline float* kept_shifts(const cpu::KeptTask& kept, std::int64_t kv_block_key) {
  return kept.shifts + kv_block_key / kKvBlock * kept.row_count;
}

/// factors [rows]: the factors that turn the weights of a KV block into p_ij. Shifts only rise, except in a
/// row that had seen no key yet; its weights are 0.
inline void find_factors(const cpu::KeptTask& kept, std::int64_t kv_block_key, float* factors) {
  const float* shifts = kept_shifts(kept, kv_block_key);
  for (std::int64_t r = 0; r < kept.rows; ++r) {
    const float step = shifts[r] - kept.last_shift[r];
    factors[r] = kept.inverse[r];
    if (step != 0) factors[r] = step > 0 || factors[r] == 0 ? 0 : factors[r] * power_of(step);
  }
}

/// sums [kKvBlock] += the weights of at most kQueryBlock rows, added up plainly in their order.
inline void add_rows(const float* weights, const float* factors, std::int64_t rows, float* sums) {
  constexpr int kWide = kRegisters < 32 ? 6 : kKvBlock % (12 * kLanes) == 0 ? 12 : 8;
  static_assert(kKvBlock % (kWide * kLanes) == 0);
  alignas(64) float sum[kWide * kLanes];
  for (std::int64_t k = 0; k < kKvBlock; k += kWide * kLanes) {
    for (int i = 0; i < kWide * kLanes; i += kLanes) store(sum + i, zero());
    sum_vectors<kWide>(weights + k, factors, rows, sum);
    for (int i = 0; i < kWide * kLanes; i += kLanes) add_to(sums + k + i, load(sum + i));
  }
}

/// Sums the kept KV blocks that begin before `end`.
inline void sum_kept(const Arguments& call, cpu::KeptTask& kept, std::int64_t end) {
  alignas(64) float factors[kTaskRows];
  for (; kept.next_key < smaller(end, kept.end_key); kept.next_key += kKvBlock) {
    count_path(call.paths, Path::received_from_kept);
    find_factors(kept, kept.next_key, factors);
    const float* weights = kept_weights(kept, kept.next_key);
    float* sums = kept.sums.data + kept.next_key - kept.sums.first_key;
    for (std::int64_t row = 0; row < kept.rows; row += kQueryBlock)
      add_rows(weights + row * kKvBlock, factors + row, smaller(kQueryBlock, kept.rows - row), sums);
  }
}

/// Called once a task has the weights of a KV block of `count` keys for rows [begin, end). Stores the rows'
/// shifts, and zeroes weights that no row of their group may see.
inline void keep_block(const TaskState& state, std::int64_t begin, std::int64_t end,
                       std::int64_t kv_block_key, std::int64_t count) {
  float* shifts = kept_shifts(*state.kept, kv_block_key);
  for (std::int64_t r = begin; r < end; ++r) {
    shifts[r] = state.w.softmax.shift[r];
    const KeyRange keys = written_keys(state.w.group[r / kGroupRows], kv_block_key, count);
    float* weights = state.weights + (r - begin) * kKvBlock;
    for (std::int64_t k = 0; k < keys.begin; k += kLanes) store(weights + k, zero());
    for (std::int64_t k = keys.end; k < kKvBlock; k += kLanes) store(weights + k, zero());
  }
}

/// Whether this unit keeps the weights of a call's tasks. It does if each task has rows of one head, no mask,
/// no dropout, and enough memory.
inline bool takes_received(const Arguments& call) {
  if (!kComputesEverything || kHasMatrixTiles || call.most_rows < kQueryBlock || has_masks(call) ||
      call.dropout.threshold != 0 || call.cache != nullptr || call.map_size.columns > 0)
    return false;
  const std::int64_t rows = plan_tiling(call).rows;
  return rows >= kQueryBlock && call.key_length <= most_kept_keys(rows);
}

/// Called at the end of a task that saw `seen`: from here on the shares of its rows in `sums` can be
/// computed. A row that is recomputed has an inverse of 0.
inline void keep_task(const TaskState& state, const SoftmaxState& s, const KeyRange& seen,
                      const cpu::TaskSums& sums) {
  cpu::KeptTask& kept = *state.kept;
  kept.rows = state.rows;
  kept.next_key = seen.begin / kKvBlock * kKvBlock;
  kept.end_key = state.left_out < state.rows ? seen.end : kept.next_key;
  kept.sums = sums;
  for (std::int64_t r = 0; r < state.rows; ++r) {
    kept.last_shift[r] = s.shift[r];
    kept.inverse[r] = state.w.inverse[r];
  }
}

}  // namespace heed::detail::HEED_ISA
