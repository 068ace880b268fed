// One T for each result that attention() can return; T is a tensor, a view or a file name, for example. Also
// what belongs to some of them: the stage of scores, the size of a map.
#pragma once

#include <cstdint>

namespace heed {

/// The stage at which `Need::scores` returns the scores.
enum class ScoresStage {
  raw,      ///< scale * <q, k> for every key; masks, key lengths and segments are ignored
  softcap,  ///< after the softcap; equal to raw without one
  bias,     ///< after bias and ALiBi; -inf for a forbidden key
};

/// Size of a map in bins. rows may exceed Lq and columns may exceed Lk; some bins are then empty.
struct MapSize {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

/// One T for each result of a call: a tensor, a view, a flag.
template <class T>
struct ResultSet {
  T output{};       ///< [B, H, Lq, Dv]
  T weights{};      ///< [B, H, Lq, Lk]
  T scores{};       ///< [B, H, Lq, Lk]
  T lse{};          ///< [B, H, Lq]
  T max_score{};    ///< [B, H, Lq]
  T entropy{};      ///< [B, H, Lq]
  T distance{};     ///< [B, H, Lq]
  T masked_mass{};  ///< [B, H, Lq]
  /// [B, H, Lq, K], i64, sorted by falling weight; ties by rising index. Past the last allowed key: index -1,
  /// weight 0. In a row with NaN weights: index -1, weight NaN.
  T top_k_index{};
  T top_k_weight{};   ///< [B, H, Lq, K]
  T received{};       ///< [B, H, Lk]
  T received_last{};  ///< [B, H, Lk]
  /// [B, H, R, C]: bin (r, c) sums p_ij over rows i with floor(i * R / Lq) = r and keys j with floor(j * C /
  /// Lk) = c.
  T map{};
};

}  // namespace heed
