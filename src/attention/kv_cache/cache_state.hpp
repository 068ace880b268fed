// The state of a KvCache: memory in pages, and for each sequence a table of where its rows lie. Every layout
// consists of pages: in a contiguous cache and in a ring each sequence has one page that is as long as its
// capacity. So every operation is written once.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attention/check/overlap.hpp"
#include "attention/kv_cache/codes.hpp"
#include "attention/problem/problem.hpp"
#include "core/index.hpp"
#include "heed/attention/kv_cache.hpp"

namespace heed::detail {

/// One sequence. A slot is a row number: slot s of head h begins at element h * head_stride + s * row_stride.
struct Sequence {
  bool is_released = false;              ///< free; a fork may reuse its number
  std::int64_t length = 0;               ///< the position of the next row
  std::vector<std::int32_t> slots;       ///< slots of the held rows, in order of position
  std::vector<std::int64_t> positions;   ///< positions of the held rows; unused unless has_gaps
  bool has_gaps = false;                 ///< the held rows are not all of [0, length)
  bool is_even = true;                   ///< slots ascend by 1, so rows are evenly spaced in memory
  std::vector<std::int32_t> pages;       ///< held pages, in any order
  std::vector<std::int32_t> free_slots;  ///< free slots of held pages; the last is used next
  // The following three are used with codes only.
  std::vector<std::int32_t> groups;  ///< [position / group]: scales' number; -1 if all rows are evicted
  std::vector<float> key_tail, value_tail;  ///< [Hkv][2 * group][D]: rows in f32, at position % (2 * group)
  std::int64_t tail_begin = 0;              ///< the first position that the tails hold
  std::vector<float> received;              ///< [row][Hkv]; empty until add_received

  [[nodiscard]] std::int64_t rows() const { return std::ssize(slots); }
  [[nodiscard]] std::int64_t position(std::int64_t row) const {
    return has_gaps ? positions[static_cast<std::size_t>(row)] : row;
  }
  /// Returns the first row whose position is `position` or greater.
  [[nodiscard]] std::int64_t row_from(std::int64_t position) const;
};

/// The keys or values of a cache in memory, [-, Hkv, row number, D].
struct CacheRowsMemory {
  Operand view;                   ///< for reading, with the strides of heads, rows and elements
  std::byte* writable = nullptr;  ///< the same memory; nullptr if read-only
  Tensor owned;
};

class CacheState {
 public:
  KvCacheOptions options;
  RowFormat format = RowFormat::floats;
  bool borrowed = false;
  std::int64_t page_rows = 0;  ///< row numbers from the start of a page to the start of the next
  CacheRowsMemory key, value;
  std::vector<std::int32_t> page_holders;  ///< [pages]: number of sequences that hold each page
  std::vector<std::int32_t> free_pages;    ///< the last is used next
  std::vector<Sequence> sequences;
  std::vector<std::int32_t> released;  ///< numbers of released sequences; the last is used next
  // Scales, used with codes only:
  std::vector<std::uint16_t> key_scale, key_offset;      ///< [number][Hkv][D]
  std::vector<std::int32_t> scale_holders, free_scales;  ///< for each group of keys
  std::vector<std::uint16_t> value_scale, value_offset;  ///< [row number][C], laid out like the rows

  [[nodiscard]] bool has_codes() const { return format != RowFormat::floats; }
  [[nodiscard]] bool has_offsets() const { return format == RowFormat::int4; }
  /// The channels of values that are stored beside the keys: 0 if values are channels of the keys.
  [[nodiscard]] std::int64_t stored_value_dim() const {
    return options.values_in_keys ? 0 : options.value_dim;
  }
  [[nodiscard]] std::int64_t value_groups() const {
    return has_codes() ? (stored_value_dim() + options.group - 1) / options.group : 0;
  }
  /// Rows below this position are codes, if the cache keeps codes.
  [[nodiscard]] std::int64_t coded_end(const Sequence& s) const {
    return s.length / options.group * options.group;
  }
  [[nodiscard]] std::int64_t page_of(std::int32_t slot) const { return slot / page_rows; }
  /// The memory of keys and of values, if the cache is borrowed.
  [[nodiscard]] std::array<MemoryUse, 2> pools() const;
  /// Returns a sequence for reading. Throws if it does not exist.
  [[nodiscard]] const Sequence& sequence(std::int64_t number) const;
  /// Returns a sequence for changes or attention. Throws if it does not exist or is released.
  [[nodiscard]] const Sequence& sequence_in_use(std::int64_t number) const;
  [[nodiscard]] Sequence& sequence_in_use(std::int64_t number);

  /// Returns the plain data by which kernels read the sequence.
  [[nodiscard]] CachedSequence plain(const Sequence& s) const;
  [[nodiscard]] RowCodes codes() const;
  /// Reads one row with the values that attention uses.
  void read_row(const Sequence& s, bool is_key, std::int64_t head, std::int64_t row,
                std::span<float> to) const;
};

/// Returns the offset in bytes of element `at`.
inline std::int64_t byte_of(const CacheState& state, const Operand& view, std::int64_t at) {
  return state.has_codes() ? code_bytes(state.format, at)
                           : at * static_cast<std::int64_t>(size_of(view.dtype));
}
/// Whether each slot is its predecessor plus 1.
bool lie_evenly(std::span<const std::int32_t> slots);

constexpr std::int64_t kMaxPage = 256;

/// Checks the options and allocates a cache that owns its memory.
std::unique_ptr<CacheState> make_cache(const KvCacheOptions& options, std::int64_t largest_page = kMaxPage);
void grow_pages(CacheState& state, std::int64_t pages);
/// Grows a contiguous cache to at least `rows` rows per sequence.
void grow_sequences(CacheState& state, std::int64_t rows);
/// Gives the sequence a free page; there must be one.
void give_page(CacheState& state, Sequence& sequence);
/// Strides of the values' scales, which are laid out like the rows.
struct ScaleStrides {
  std::int64_t head = 0, row = 0;
};
ScaleStrides value_scale_strides(const CacheState& state);

/// Converts a cache to named tensors, and restores it from untrusted tensors (saved.cpp).
using SavedTensors = std::span<const std::pair<std::string, TensorView>>;
std::vector<std::pair<std::string, Tensor>> saved(const CacheState& state);
std::unique_ptr<CacheState> restored(SavedTensors tensors);
/// Returns a deep copy. The copy of a borrowed cache owns its memory.
std::unique_ptr<CacheState> copied(const CacheState& state);

/// Rows appended to one sequence: rows [begin, end) of key and value go to `sequence`.
struct Arrival {
  std::int64_t sequence, batch, begin, end;
};

// The functions below allocate everything they need before they change anything.

void append_rows(CacheState& state, const Operand& key, const Operand& value,
                 std::span<const Arrival> arrivals);
void truncate_rows(CacheState& state, std::int64_t sequence, std::int64_t length);
void evict_rows(CacheState& state, std::int64_t sequence, std::span<const std::int64_t> positions);
std::int64_t fork_rows(CacheState& state, std::int64_t sequence);
void release_rows(CacheState& state, std::int64_t sequence);

}  // namespace heed::detail
