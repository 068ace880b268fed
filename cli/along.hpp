// The axis of a tensor that counts positions. Ranks split a tensor along it.
#pragma once

namespace heed::cli {

/// The axis of a tensor that counts positions, and the sequence that these belong to.
struct Along {
  enum Sequence { nothing, queries, keys } sequence = nothing;
  int axis = -2;            ///< from the end
  bool by_layout = false;   ///< --layout may put it before the heads
  bool broadcasts = false;  ///< the axis may have size 1, or be missing
  [[nodiscard]] int axis_of(int rank, bool length_first) const {
    return by_layout && length_first && (rank == 3 || rank == 4) ? -3 : axis;
  }
};

/// kAlongQueries: query and output. kAlongKeys: key and value. kAlongRows: tensors that broadcast to [B, H,
/// Lq, Lk].
inline constexpr Along kAlongQueries{.sequence = Along::queries, .by_layout = true};
inline constexpr Along kAlongKeys{.sequence = Along::keys, .by_layout = true};
inline constexpr Along kAlongRows{.sequence = Along::queries, .broadcasts = true};

}  // namespace heed::cli
