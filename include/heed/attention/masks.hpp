// Masks in O(L) or O(1) memory, without an Lq x Lk matrix; key lists take the memory of their entries. They
// combine with one another and with all other masks of a call by AND (heed/attention/attention.hpp). Rows and
// keys are tensor indices, in packed sequences too, as in a boolean mask. A sparse mask and the equal boolean
// mask give the same bits, except where keys of lists (Gather) or neighbourhoods are gathered. Empty tiles
// are skipped; full tiles cost the same as without a mask.
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

/// The allowed pairs of a slice (the four slice types of MagiAttention, Tao and Huang 2025).
enum class SliceKind : std::int64_t {
  full,            ///< all
  causal,          ///< j - key_end <= i - query_end: the last query sees the last key
  inverse_causal,  ///< j - key_begin >= i - query_begin: the first query sees all keys of the slice
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

/// A block mask in the layout of FlexAttention's BlockMask, with blocks of query_block x key_block pairs.
/// Block row r lists the first kv_num_blocks[r] entries of kv_indices[r]. `partial` says which pairs of a
/// listed block are allowed; without it, all are. All pairs of a full block are allowed. Tensors are i64 or
/// i32; the axes B and H may be missing or 1.
struct BlockMaskView {
  TensorView kv_num_blocks;                        ///< [B, H, R], R = ceil(Lq / query_block)
  TensorView kv_indices;                           ///< [B, H, R, C]
  std::optional<TensorView> full_kv_num_blocks{};  ///< [B, H, R]; both or neither
  std::optional<TensorView> full_kv_indices{};     ///< [B, H, R, C]
  /// bool [N, query_block, key_block]: the listed blocks (not the full ones), ordered by B, H, R and list
  /// position.
  std::optional<TensorView> partial{};
  std::int64_t query_block = 128;
  std::int64_t key_block = 128;
};

/// Whether a call gathers the keys of lists, that is, reads these keys alone instead of visiting all. It then
/// sums a row in the order of its list, and agrees with the equal boolean mask up to rounding
/// (docs/forms.md).
enum class Gather : std::int64_t {
  automatic,  ///< if there are many keys and short lists
  never,      ///< a call has the bits of the equal boolean mask
  always,     ///< in every call that can (docs/forms.md)
};

/// An axis of a grid of tokens, and the keys that a token sees on it.
struct GridAxis {
  std::int64_t size = 0;
  /// Keys that a token sees. They lie around it, an even window's extra key before it; at a border the window
  /// is moved inwards. -1: all keys.
  std::int64_t window = -1;
  std::int64_t dilation = 1;  ///< every dilation-th key; window * dilation <= size
  bool causal = false;        ///< the last keys up to the token; fewer at the first border
};

/// An immutable set of allowed (batch entry, head, query, key). Copies share memory. A batch size or head
/// count of 1 serves all. The head count may divide the query's, like key heads.
class HEED_API SparseMask {
 public:
  /// Allows everything; fits any shape.
  SparseMask() = default;

  /// Row i may see keys [begin, end) of each of its n intervals. `intervals` is [Lq, n, 2], optionally with
  /// leading axes [B, H] or [H]; i64 or i32; 0 <= begin, end <= key_length. An interval with begin >= end is
  /// empty.
  [[nodiscard]] static SparseMask row_intervals(const TensorView& intervals, std::int64_t key_length);
  /// Key j is forbidden to rows [begin, end). `intervals` is [Lk, n], optionally with leading axes [B, H] or
  /// [H]; i64 or i32. n = 1: begin, with query_length as the end; n = 2: begin, end; n = 4: two intervals. 0
  /// <= begin, end <= query_length < 2^31.
  [[nodiscard]] static SparseMask column_intervals(const TensorView& intervals, std::int64_t query_length);
  /// Row i may see the keys of its list, in any order and each at most once. `indices` is [Lq, n], optionally
  /// with leading axes [B, H] or [H], and `counts` has the same axes without the last; i64 or i32. The list
  /// is the first counts[i] entries; the others are not read. Without `counts`, -1 marks an unused entry. Lk
  /// < 2^31.
  [[nodiscard]] static SparseMask key_lists(const TensorView& indices, std::int64_t key_length,
                                            const std::optional<TensorView>& counts = {},
                                            Gather gather = Gather::automatic);
  /// The union of the slices. query_length is at most 2^27.
  [[nodiscard]] static SparseMask slices(std::span<const MaskSlice> slices, std::int64_t query_length,
                                         std::int64_t key_length);
  /// Block sparse rows: block row r has block columns indices[offsets[r]] … indices[offsets[r + 1] - 1].
  /// `offsets` [R + 1], `indices` [N], i64 or i32.
  [[nodiscard]] static SparseMask blocks(const TensorView& offsets, const TensorView& indices,
                                         std::int64_t query_block, std::int64_t key_block,
                                         std::int64_t query_length, std::int64_t key_length);
  [[nodiscard]] static SparseMask from_block_mask(const BlockMaskView& mask, std::int64_t query_length,
                                                  std::int64_t key_length);
  /// FlashMask's startend_row_indices [B, H, Lk, n] (Wang et al. 2024). With `causal`, keys after the row are
  /// forbidden too; n = 1 forbids rows from the entry on, n = 2 rows between the two entries. Without
  /// `causal`, n = 2 forbids rows from the first entry on and rows before the second. n = 4 forbids rows
  /// between the first two entries and between the last two.
  [[nodiscard]] static SparseMask from_flash_mask(const TensorView& startend_row_indices, bool causal,
                                                  std::int64_t query_length);
  /// A condition on b, h, i and j, such as `j <= i && doc[i] == doc[j]` (language: docs/masks.md). `arrays`
  /// holds the arrays that it names: [n] numbers or bools of any dtype, copied. Throws Error
  /// (invalid_argument) that quotes the position of a mistake.
  [[nodiscard]] static SparseMask expression(std::string_view text, std::int64_t query_length,
                                             std::int64_t key_length,
                                             std::span<const std::pair<std::string, TensorView>> arrays = {});

  /// The intersection of both masks. Throws Error (invalid_argument) if the lengths differ, or if batch sizes
  /// or head counts differ and neither is 1.
  friend SparseMask operator&(const SparseMask& a, const SparseMask& b);

  /// Whether the mask allows everything and fits any shape.
  [[nodiscard]] bool is_empty() const noexcept { return parts_.empty(); }
  [[nodiscard]] std::int64_t batch() const noexcept;  ///< 1 if all batch entries share one mask
  [[nodiscard]] std::int64_t heads() const noexcept;  ///< 1 if all heads share one mask
  [[nodiscard]] std::int64_t query_length() const noexcept;
  [[nodiscard]] std::int64_t key_length() const noexcept;
  /// Whether it has lists or a neighbourhood whose keys a call may gather (Gather).
  [[nodiscard]] bool may_be_gathered() const noexcept;
  /// Memory that the mask uses.
  [[nodiscard]] std::size_t bytes() const noexcept;
  /// Whether query i may see key j. Throws Error (invalid_argument) if an index is out of range.
  [[nodiscard]] bool allows(std::int64_t batch, std::int64_t head, std::int64_t i, std::int64_t j) const;
  /// The mask as a boolean [batch, heads, Lq, Lk]; meant for small masks.
  [[nodiscard]] Tensor dense() const;
  /// The keys that row i may see, as runs [begin, end). Throws Error (invalid_argument) if an index is out of
  /// range.
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

/// Common masks.
namespace masks {

/// Every query sees the keys before `prefix`; the other keys are causal.
[[nodiscard]] HEED_API SparseMask prefix_lm(std::int64_t prefix, std::int64_t query_length,
                                            std::int64_t key_length);
/// Documents of these lengths, one after the other; their sum is both Lq and Lk. A token sees only tokens of
/// its own document.
[[nodiscard]] HEED_API SparseMask documents(std::span<const std::int64_t> lengths, bool causal);
/// Keys i - left <= j <= i + right; -1 leaves a side open.
[[nodiscard]] HEED_API SparseMask sliding_window(std::int64_t left, std::int64_t right,
                                                 std::int64_t query_length, std::int64_t key_length);
/// The keys j <= i that are among the first `sinks`, or have j > i - window (StreamingLLM, Xiao et al. 2023).
[[nodiscard]] HEED_API SparseMask sinks_and_window(std::int64_t sinks, std::int64_t window,
                                                   std::int64_t query_length, std::int64_t key_length);
/// Keys j = i + k * step for whole |k| <= reach (Longformer's dilated window, Beltagy et al. 2020).
[[nodiscard]] HEED_API SparseMask dilated(std::int64_t reach, std::int64_t step, std::int64_t query_length,
                                          std::int64_t key_length);
/// A question of `question` tokens, followed by answers of these lengths. All is causal; no answer sees
/// another.
[[nodiscard]] HEED_API SparseMask shared_question(std::int64_t question,
                                                  std::span<const std::int64_t> answers);
/// BigBird (Zaheer et al. 2020) in blocks of size `block`. Allows the first and last `global` rows and
/// columns of blocks, and `window` blocks around the diagonal. Each row also gets `random` other blocks,
/// drawn from `seed`.
[[nodiscard]] HEED_API SparseMask bigbird(std::int64_t block, std::int64_t global, std::int64_t window,
                                          std::int64_t random, std::uint64_t seed, std::int64_t query_length,
                                          std::int64_t key_length);
/// Neighbourhood attention (NATTEN, Hassani et al. 2023) on a grid of one to three axes. Token (t, y, x) is
/// row (t * height + y) * width + x. It sees the keys that each axis allows. Query i is token first_query +
/// i; a `query_length` of -1 means all later tokens, a `key_length` of -1 all tokens. Memory is O(1). Calls
/// that gather the keys of a line agree with the equal boolean mask up to rounding (docs/forms.md).
[[nodiscard]] HEED_API SparseMask neighbourhood(std::span<const GridAxis> axes, std::int64_t first_query = 0,
                                                std::int64_t query_length = -1, std::int64_t key_length = -1);
/// Axial attention (Ho et al. 2019): a token sees its line along `axis`. An `axis` of -1 allows its lines
/// along all axes (criss-cross attention, Huang et al. 2019). The rest is as in neighbourhood().
[[nodiscard]] HEED_API SparseMask axial(std::span<const std::int64_t> sizes, std::int64_t axis,
                                        std::int64_t first_query = 0, std::int64_t query_length = -1,
                                        std::int64_t key_length = -1);

}  // namespace masks

}  // namespace heed
