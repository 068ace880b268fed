// Masks in O(L) memory: which keys each query may attend, without an Lq x Lk matrix. They combine by AND with
// one another and with all other masks of a call (heed/attention.hpp). Rows and keys count within the
// tensors, in packed sequences too, as those of a boolean mask do. A mask in one form and the same mask as a
// boolean give the same bits; tiles of it that are empty cost nothing, and full ones are computed as without
// a mask.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed {

namespace detail {
class MaskPart;
struct MaskSource;
}  // namespace detail

/// Which pairs of a slice are allowed (the four types of slices of MagiAttention, Tao and Huang 2025).
enum class SliceKind : std::int64_t {
  full,            ///< all
  causal,          ///< j - key_end <= i - query_end: the last query sees the last key
  inverse_causal,  ///< j - key_begin >= i - query_begin: the first query sees from the first key on
  both_causal,     ///< both
};

/// Queries [query_begin, query_end) and keys [key_begin, key_end).
struct MaskSlice {
  std::int64_t query_begin = 0;
  std::int64_t query_end = 0;
  std::int64_t key_begin = 0;
  std::int64_t key_end = 0;
  SliceKind kind = SliceKind::full;
};

/// Blocks of query_block x key_block pairs, as FlexAttention's BlockMask lists them: of block row r the first
/// kv_num_blocks[r] of kv_indices[r]. What is allowed of a listed block is in `partial`, or all of it; of the
/// full blocks all is allowed. Tensors are i64 or i32; B and H may be missing or 1.
struct BlockMaskView {
  TensorView kv_num_blocks;                        ///< [B, H, R], R = ceil(Lq / query_block)
  TensorView kv_indices;                           ///< [B, H, R, C]
  std::optional<TensorView> full_kv_num_blocks{};  ///< [B, H, R]; both or neither
  std::optional<TensorView> full_kv_indices{};     ///< [B, H, R, C]
  /// bool [N, query_block, key_block]: the listed blocks (not the full ones) in the order of B, H, R and the
  /// list.
  std::optional<TensorView> partial{};
  std::int64_t query_block = 128;
  std::int64_t key_block = 128;
};

/// A set of allowed (batch entry, head, query, key). A value: it does not change, and copies share their
/// memory. Its batch size and head count may be 1, and serve all; its head count may divide the query's, as
/// key heads do.
class HEED_API SparseMask {
 public:
  /// Allows everything, of any shape.
  SparseMask() = default;

  /// Row i may see keys [begin, end) of each of its n intervals: `intervals` [Lq, n, 2], or with [B, H] or
  /// [H] before, i64 or i32, 0 <= begin, end <= key_length; begin >= end is an empty one.
  [[nodiscard]] static SparseMask row_intervals(const TensorView& intervals, std::int64_t key_length);
  /// Key j is forbidden to rows [begin, end): `intervals` [Lk, n], or with [B, H] or [H] before, i64 or i32,
  /// n = 1 (begin; the end is query_length), 2 (begin, end) or 4 (two such). 0 <= begin, end <= query_length
  /// < 2^31.
  [[nodiscard]] static SparseMask column_intervals(const TensorView& intervals, std::int64_t query_length);
  /// The union of the slices.
  [[nodiscard]] static SparseMask slices(std::span<const MaskSlice> slices, std::int64_t query_length,
                                         std::int64_t key_length);
  /// Block sparse rows: block row r has the block columns indices[offsets[r]] … indices[offsets[r + 1] - 1].
  /// `offsets` [R + 1], `indices` [N], i64 or i32.
  [[nodiscard]] static SparseMask blocks(const TensorView& offsets, const TensorView& indices,
                                         std::int64_t query_block, std::int64_t key_block,
                                         std::int64_t query_length, std::int64_t key_length);
  [[nodiscard]] static SparseMask from_block_mask(const BlockMaskView& mask, std::int64_t query_length,
                                                  std::int64_t key_length);
  /// FlashMask's startend_row_indices [B, H, Lk, n] (Wang et al. 2024): with `causal` rows from n = 1 on, or
  /// between n = 2, are forbidden, and keys after the row; without, n = 2 forbids rows from the first on and
  /// before the second, n = 4 rows between the first two and the last two.
  [[nodiscard]] static SparseMask from_flash_mask(const TensorView& startend_row_indices, bool causal,
                                                  std::int64_t query_length);
  /// A condition on b, h, i and j, as `j <= i && doc[i] == doc[j]` (docs/masks.md has the language). `arrays`
  /// are its names: [n] numbers or bools of any dtype, copied. Throws Error (invalid_argument) that quotes
  /// the place of a mistake.
  [[nodiscard]] static SparseMask expression(std::string_view text, std::int64_t query_length,
                                             std::int64_t key_length,
                                             std::span<const std::pair<std::string, TensorView>> arrays = {});

  /// What both allow. Throws Error (invalid_argument) where the lengths, or batch sizes or head counts other
  /// than 1, differ.
  friend SparseMask operator&(const SparseMask& a, const SparseMask& b);

  /// Whether it allows everything, of any shape.
  [[nodiscard]] bool is_empty() const noexcept { return parts_.empty(); }
  [[nodiscard]] std::int64_t batch() const noexcept;  ///< 1 where all batch entries have the same
  [[nodiscard]] std::int64_t heads() const noexcept;  ///< 1 where all heads have the same
  [[nodiscard]] std::int64_t query_length() const noexcept;
  [[nodiscard]] std::int64_t key_length() const noexcept;
  /// Memory that it keeps.
  [[nodiscard]] std::size_t bytes() const noexcept;
  /// Whether query i may see key j. Throws Error (invalid_argument) outside of it.
  [[nodiscard]] bool allows(std::int64_t batch, std::int64_t head, std::int64_t i, std::int64_t j) const;
  /// As a boolean [batch, heads, Lq, Lk], for small ones.
  [[nodiscard]] Tensor dense() const;
  /// The keys that row i may see, as runs [begin, end). Throws Error (invalid_argument) outside of it.
  [[nodiscard]] std::vector<std::pair<std::int64_t, std::int64_t>> runs(std::int64_t batch, std::int64_t head,
                                                                        std::int64_t i) const;

  /// For the library's own use.
  HEED_HIDDEN explicit SparseMask(std::shared_ptr<const detail::MaskPart> part);
  [[nodiscard]] std::span<const std::shared_ptr<const detail::MaskPart>> parts() const noexcept {
    return parts_;
  }

 private:
  std::vector<std::shared_ptr<const detail::MaskPart>> parts_;
};

[[nodiscard]] HEED_API SparseMask operator&(const SparseMask& a, const SparseMask& b);

/// Masks by what they mean.
namespace masks {

/// Keys before `prefix` are seen by all, the others causally.
[[nodiscard]] HEED_API SparseMask prefix_lm(std::int64_t prefix, std::int64_t query_length,
                                            std::int64_t key_length);
/// Documents of these lengths, one after the other; a token sees those of its document. They sum to `length`.
[[nodiscard]] HEED_API SparseMask documents(std::span<const std::int64_t> lengths, bool causal);
/// Keys i - left <= j <= i + right; -1 leaves a side open.
[[nodiscard]] HEED_API SparseMask sliding_window(std::int64_t left, std::int64_t right,
                                                 std::int64_t query_length, std::int64_t key_length);
/// The first `sinks` keys, and keys i - window < j <= i (StreamingLLM, Xiao et al. 2023).
[[nodiscard]] HEED_API SparseMask sinks_and_window(std::int64_t sinks, std::int64_t window,
                                                   std::int64_t query_length, std::int64_t key_length);
/// Keys j = i + k * step for whole |k| <= reach (Longformer's dilated window, Beltagy et al. 2020).
[[nodiscard]] HEED_API SparseMask dilated(std::int64_t reach, std::int64_t step, std::int64_t query_length,
                                          std::int64_t key_length);
/// A question of `question` tokens and answers of these lengths after it: all causal, and no answer sees
/// another.
[[nodiscard]] HEED_API SparseMask shared_question(std::int64_t question,
                                                  std::span<const std::int64_t> answers);
/// Blocks of `block`: the first and last `global` rows and columns of blocks, `window` blocks around the
/// diagonal and `random` of the others in each row, drawn from `seed` (BigBird, Zaheer et al. 2020).
[[nodiscard]] HEED_API SparseMask bigbird(std::int64_t block, std::int64_t global, std::int64_t window,
                                          std::int64_t random, std::uint64_t seed, std::int64_t query_length,
                                          std::int64_t key_length);

}  // namespace masks

}  // namespace heed
