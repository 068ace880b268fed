// Which rows of a KV cache to give away, and what a model then no longer sees.
//
// A policy keeps `chosen` rows by a rule and the `recent` last ones:
//
//   streaming  the first rows, attention sinks                   (StreamingLLM: Xiao et al. 2023,
//   section 3.2) h2o        those with the largest running sums of received   (H2O: Zhang et al. 2023,
//   algorithm 1) snapkv     those that the last queries of a prompt voted for (SnapKV: Li et al. 2024,
//   section 4)
//
// A decoding step with a policy:
//
//   cache.append(key, value);
//   cache.evict(0, positions_to_evict(cache, 0, policy));
//   const auto result = attention(query, cache, {.need = Need::received});
//   cache.add_received(result.received, policy.decay);  // h2o alone
//
// A row of a cache serves all of its heads, so their sums are added up. docs/eviction.md has the formulas.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "heed/attention.hpp"
#include "heed/export.hpp"
#include "heed/kv_cache.hpp"
#include "heed/tensor.hpp"

namespace heed {

enum class EvictionKind : std::uint8_t { streaming, h2o, snapkv };

/// "streaming", "h2o", "snapkv".
[[nodiscard]] HEED_API std::string_view name_of(EvictionKind kind) noexcept;
[[nodiscard]] HEED_API std::optional<EvictionKind> eviction_kind_named(std::string_view name) noexcept;

/// The budget is chosen + recent rows.
struct EvictionPolicy {
  EvictionKind kind = EvictionKind::streaming;
  std::int64_t chosen = 4;  ///< sinks, heavy hitters or winners of the vote; 0 or more
  /// Last rows, which stay; 1 or more. In h2o a grace period: a new row, whose sum begins at 0, gathers
  /// attention before it competes. In snapkv the observation window, whose queries vote.
  std::int64_t recent = 64;
  double decay = 1;  ///< of h2o's sums at each call, 0 to 1. At 1 rows that came early keep the lead that
                     ///< they gathered while there were few.
  std::int64_t pool = 5;  ///< of snapkv: a row's votes are summed with those of its neighbours, so many rows
                          ///< in all; odd
};

/// Positions of `sequence` that exceed the budget, ascending, as KvCache::evict() takes them; none where
/// there are no more rows than that. Sums and votes are cache.received(sequence): for h2o the sums of all
/// queries, for snapkv what the last `recent` queries of the prompt gave (add_received with decay 0). Of rows
/// with equal sums the earlier goes; NaN counts as nothing received. Throws Error (invalid_argument) for a
/// policy or sequence that is wrong.
[[nodiscard]] HEED_API std::vector<std::int64_t> positions_to_evict(const KvCache& cache,
                                                                    std::int64_t sequence,
                                                                    const EvictionPolicy& policy);

/// What a policy would have thrown away of a call, and what that did.
struct EvictionTrace {
  Tensor gone;     ///< [B, Lk], i64: the first row that did not have key j any more; Lq where it stays
  Tensor dropped;  ///< [B, H, Lq]: the share of row i's weights, as the call computes them, on keys that were
                   ///< gone; f64 for f64 inputs and f32 for all others
};

/// Decodes query [B, H, Lq, D] over key [B, Hkv, Lk, D] row by row with the policy: a row is appended, the
/// cache brought down to the budget, and then the row attends what is left. The last row stands at the last
/// key; keys before the first row are held when it comes. The first `prompt` rows are read whole, before
/// anything is evicted; snapkv evicts once, after them. Memory grows with Lq + Lk and the budget.
///
/// Options are those of the call: scale, causal (expected), window, softcap, alibi_slopes, sinks and threads;
/// other rules cannot follow rows that leave, and are refused. Throws Error (invalid_argument) where the call
/// is wrong, too.
[[nodiscard]] HEED_API EvictionTrace trace_eviction(const TensorView& query, const TensorView& key,
                                                    const AttentionOptions& options,
                                                    const EvictionPolicy& policy, std::int64_t prompt = 0);

}  // namespace heed
