// What each key receives, without a second pass over queries and keys: a thread keeps the unnormalised
// weights of the task that it did last. Once the sums of its rows are known,
//
//   received_j = sum_i p_ij = sum_i w_ij 2^(m_b - m_i) / sum_i
//
// where w_ij was taken with the shift m_b that row i had in the KV block, and m_i and sum_i are the row's at
// the end. A KV block is summed right before the next task overwrites it. Its memory was asked for while the
// KV block before was multiplied: so a thread waits neither for what it reads nor for what it writes, though
// the weights of a task are larger than its caches.
#pragma once

#include "attention/cpu/kernel/workspace.hpp"

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
  return kept.weights + kv_block_key * kQueryBlock;
}
inline float* kept_shifts(const cpu::KeptTask& kept, std::int64_t kv_block_key) {
  return kept.shifts + kv_block_key / kKvBlock * kQueryBlock;
}

/// factors [rows]: what turns the weights of a KV block into p_ij. Shifts only rise, but for a row that had
/// seen no key yet: its weights are 0.
inline void find_factors(const cpu::KeptTask& kept, std::int64_t kv_block_key, float* factors) {
  const float* shifts = kept_shifts(kept, kv_block_key);
  for (std::int64_t r = 0; r < kept.rows; ++r) {
    const float step = shifts[r] - kept.last_shift[r];
    factors[r] = kept.inverse[r];
    if (step != 0) factors[r] = step > 0 || factors[r] == 0 ? 0 : factors[r] * power_of(step);
  }
}

/// Sums the KV blocks that are kept and begin before `end`, each over the rows in their order; at most
/// kQueryBlock terms, so plainly.
inline void sum_kept(const Arguments& call, cpu::KeptTask& kept, std::int64_t end) {
  constexpr int kWide = kRegisters >= 32 ? 12 : 6;
  static_assert(kKvBlock % (kWide * kLanes) == 0);
  alignas(64) float factors[kQueryBlock];
  for (; kept.next_key < smaller(end, kept.end_key); kept.next_key += kKvBlock) {
    count_path(call.paths, Path::received_from_kept);
    find_factors(kept, kept.next_key, factors);
    const float* weights = kept_weights(kept, kept.next_key);
    float* sums = kept.sums.data + kept.next_key - kept.sums.first_key;
    for (std::int64_t k = 0; k < kKvBlock; k += kWide * kLanes)
      sum_vectors<kWide>(weights + k, factors, kept.rows, sums + k);
  }
}

/// Before a task overwrites a KV block.
inline void take_kept_block(TaskState& state, std::int64_t kv_block_key) {
  sum_kept(state.call, *state.kept, kv_block_key + kKvBlock);
  state.weights = kept_weights(*state.kept, kv_block_key);
}

/// Once a task has the weights of a KV block of `count` keys: notes their shifts, and makes weights 0 that no
/// row of their group may see.
inline void keep_block(const TaskState& state, std::int64_t kv_block_key, std::int64_t count) {
  float* shifts = kept_shifts(*state.kept, kv_block_key);
  for (std::int64_t r = 0; r < state.rows; ++r) shifts[r] = state.w.softmax.shift[r];
  for (std::int64_t r = 0; r < state.rows; ++r) {
    const KeyRange keys = written_keys(state.w.group[r / kGroupRows], kv_block_key, count);
    float* weights = state.weights + r * kKvBlock;
    for (std::int64_t k = 0; k < keys.begin; k += kLanes) store(weights + k, zero());
    for (std::int64_t k = keys.end; k < kKvBlock; k += kLanes) store(weights + k, zero());
  }
}

/// Whether this unit keeps the weights of a call's tasks: each is one block of rows, no row is narrowed by a
/// mask, no weight dropped, and there is memory for them.
inline bool takes_received(const Arguments& call) {
  constexpr std::int64_t kMostKeys =
      kTaskWeightsBytes / (kQueryBlock * static_cast<std::int64_t>(sizeof(float)));
  return kComputesEverything && !kHasMatrixTiles && call.most_rows >= kQueryBlock &&
         call.key_length <= kMostKeys && plan(call).rows == kQueryBlock && !has_masks(call) &&
         call.dropout.threshold == 0 && call.cache == nullptr && call.map_columns == 0;
}

/// At the end of a task that saw `seen`: what its rows add to `sums` is known. Rows that are computed again
/// weigh nothing here, whatever was kept of them.
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
    if (kept.inverse[r] != 0) continue;
    for (std::int64_t key = kept.next_key; key < kept.end_key; key += kKvBlock)
      for (std::int64_t k = 0; k < kKvBlock; k += kLanes)
        store(kept_weights(kept, key) + r * kKvBlock + k, zero());
  }
}

}  // namespace heed::detail::HEED_ISA
