// A call's sparse mask and ScoreMod in a document file. The mask is stored as runs of keys per row, whatever
// its form; the ScoreMod as its text.
#pragma once

#include "heed/attention/attention.hpp"

namespace heed::detail {

inline constexpr const char* kMaskFirst = "sparse_mask_first";
inline constexpr const char* kMaskKeys = "sparse_mask_keys";
inline constexpr const char* kScoreArray = "score_array ";

/// `first` [B, H, Lq + 1] indexes into `keys` [N, 2]; both are i64. Row i has the runs keys[first[i]] …
/// keys[first[i + 1] - 1]. B and H are the mask's sizes. Throws Error (invalid_argument) if the mask has more
/// runs than a file should hold.
struct SavedMask {
  Tensor first, keys;
};
[[nodiscard]] SavedMask saved_mask(const SparseMask& mask);

/// Throws Error (invalid_argument) for tensors that saved_mask() cannot have made.
[[nodiscard]] SparseMask restored_runs(const TensorView& first, const TensorView& keys,
                                       std::int64_t key_length);
/// Like restored_runs(), with one list of runs per `rows_each` rows.
[[nodiscard]] SparseMask restored_lists(const TensorView& first, const TensorView& keys,
                                        std::int64_t rows_each, std::int64_t query_length,
                                        std::int64_t key_length);

}  // namespace heed::detail
