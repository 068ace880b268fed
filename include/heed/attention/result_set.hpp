// One T for each result that attention() can return; T is a tensor, a view or a file name, for example.
#pragma once

namespace heed {

template <class T>
struct ResultSet {
  T output{};     ///< [B, H, Lq, Dv]
  T weights{};    ///< [B, H, Lq, Lk]
  T scores{};     ///< [B, H, Lq, Lk]
  T lse{};        ///< [B, H, Lq]
  T max_score{};  ///< [B, H, Lq]
  T entropy{};    ///< [B, H, Lq]
  T distance{};   ///< [B, H, Lq]
  T dropped{};    ///< [B, H, Lq]
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
