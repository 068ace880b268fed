// Eviction policies for KV caches, and what a model loses by them.
//
// A policy keeps `chosen` rows by a rule and the `recent` last ones:
//
//   streaming  the first rows: attention sinks
//              (StreamingLLM: Xiao et al. 2023, section 3.2)
//   h2o        the rows with the largest running sums of received
//              (H2O: Zhang et al. 2023, algorithm 1)
//   snapkv     the rows that the last queries of a prompt voted for
//              (SnapKV: Li et al. 2024, section 4)
//
// A decoding step with a policy:
//
//   cache.append(key, value);
//   cache.evict(0, positions_to_evict(cache, 0, policy));
//   const auto result = attention(query, cache, {.need = Need::received});
//   cache.add_received(result.received, policy.decay);  // h2o only
//
// A row of a cache serves all of its heads, so their sums are added up. docs/eviction.md has the formulas.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "heed/attention/attention.hpp"
#include "heed/attention/kv_cache.hpp"
#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// The eviction policies (docs/eviction.md).
enum class EvictionKind : std::uint8_t { streaming, h2o, snapkv };

/// "streaming", "h2o", "snapkv"; "" for an invalid value.
[[nodiscard]] HEED_API std::string_view name_of(EvictionKind kind) noexcept;
[[nodiscard]] HEED_API std::optional<EvictionKind> eviction_kind_named(std::string_view name) noexcept;

/// The budget is chosen + recent rows.
struct EvictionPolicy {
  EvictionKind kind = EvictionKind::streaming;
  std::int64_t chosen = 4;  ///< number of sinks, heavy hitters or vote winners; 0 or more
  /// Number of last rows that stay; 1 or more. For h2o they are a grace period: the sum of a new row starts
  /// at 0 and grows before the row competes. For snapkv they are the observation window, whose queries vote.
  std::int64_t recent = 64;
  double decay = 1;  ///< h2o: factor of the sums at each call, 0 to 1. At 1 early rows keep the lead that
                     ///< they gained while there were few rows.
  std::int64_t pool = 5;  ///< snapkv: votes are summed over this many neighbouring rows; odd
};

/// The positions of `sequence` to evict, ascending, for KvCache::evict(); empty if the sequence is within the
/// budget. Sums and votes are cache.received(sequence). For h2o they are the sums over all queries. For
/// snapkv they come from the last `recent` queries of the prompt (add_received with decay 0). Among equal
/// sums the earlier row is evicted; NaN counts as 0. Throws Error (invalid_argument) for an invalid policy or
/// sequence.
[[nodiscard]] HEED_API std::vector<std::int64_t> positions_to_evict(const KvCache& cache,
                                                                    std::int64_t sequence,
                                                                    const EvictionPolicy& policy);

/// Simulated evictions of a policy during a call, and their effect.
struct EvictionTrace {
  Tensor gone;     ///< [B, Lk], i64: the first query row without key j; Lq if it stays
  Tensor dropped;  ///< [B, H, Lq]: share of row i's weights, as the call computes them, on evicted keys; f64
                   ///< for f64 inputs, otherwise f32
};

/// Decodes query [B, H, Lq, D] over key [B, Hkv, Lk, D] row by row with the policy. Each step appends a row,
/// evicts down to the budget, and attends the remaining rows. The last query is at the position of the last
/// key; keys before the first query are in the cache from the start. The first `prompt` rows are read as a
/// whole before any eviction; snapkv evicts once, after them. Memory grows with Lq + Lk and the budget.
///
/// Uses these options of the call: scale, causal (must be true), align or query_offset (the last query is at
/// the last key), window, softcap, alibi_slopes, sinks and threads. Other rules are refused, because they
/// cannot follow evicted rows. Throws Error (invalid_argument) also if the call is wrong.
[[nodiscard]] HEED_API EvictionTrace trace_eviction(const TensorView& query, const TensorView& key,
                                                    const AttentionOptions& options,
                                                    const EvictionPolicy& policy, std::int64_t prompt = 0);

}  // namespace heed
