// A call's sparse mask and ScoreMod in the file of a document: the mask as runs of keys of each row, whatever
// form it has, and the ScoreMod in its words.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "heed/attention.hpp"

namespace heed::detail {

inline constexpr const char* kMaskFirst = "sparse_mask_first";
inline constexpr const char* kMaskKeys = "sparse_mask_keys";
inline constexpr const char* kScoreArray = "score_array ";

/// first [B, H, Lq + 1] into keys [N, 2], both i64: row i has the runs keys[first[i]] … keys[first[i + 1] -
/// 1]. B and H are the mask's. Throws Error (invalid_argument) for a mask of more runs than a file should
/// hold.
struct SavedMask {
  Tensor first, keys;
};
[[nodiscard]] SavedMask saved_mask(const SparseMask& mask);

/// Throws Error (invalid_argument) for what saved_mask() does not give.
[[nodiscard]] SparseMask restored_runs(const TensorView& first, const TensorView& keys,
                                       std::int64_t key_length);
/// Like restored_runs(), with one list of runs for each `rows_each` rows.
[[nodiscard]] SparseMask restored_lists(const TensorView& first, const TensorView& keys,
                                        std::int64_t rows_each, std::int64_t query_length,
                                        std::int64_t key_length);

}  // namespace heed::detail
