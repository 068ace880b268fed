// What a KvCache is made of: memory in pages, and for each sequence a table that says which row lies where.
// Every layout is pages: a contiguous cache and a ring have one page a sequence, as long as there is room for
// rows. So all operations are written once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attention/call/problem.hpp"
#include "attention/kv_cache/codes.hpp"
#include "core/index.hpp"
#include "heed/kv_cache.hpp"

namespace heed::detail {

/// One sequence. Slots are row numbers: slot s of head h begins at element h * head_stride + s * row_stride.
struct Sequence {
  bool is_released = false;              ///< nobody's, until a fork takes its number
  std::int64_t length = 0;               ///< the position of the next row
  std::vector<std::int32_t> slots;       ///< of the rows held, in order of position
  std::vector<std::int64_t> positions;   ///< of the rows held, where they are not all of [0, length)
  bool has_gaps = false;                 ///< whether `positions` is kept
  bool is_even = true;                   ///< slots ascend by 1, so that rows lie evenly in memory
  std::vector<std::int32_t> pages;       ///< held, in no order
  std::vector<std::int32_t> free_slots;  ///< of held pages; the last is the next to be used
  // Of codes alone:
  std::vector<std::int32_t> groups;  ///< [position / group]: number of the scales; -1 where all rows are gone
  std::vector<float> key_tail, value_tail;  ///< [Hkv][2 * group][D]: rows in f32, at position % (2 * group)
  std::int64_t tail_begin = 0;              ///< the tails hold the rows from this position on
  std::vector<float> received;              ///< [row][Hkv]; empty until add_received

  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(slots.size()); }
  [[nodiscard]] std::int64_t position(std::int64_t row) const {
    return has_gaps ? positions[static_cast<std::size_t>(row)] : row;
  }
  /// The first row that stands at `position` or beyond it.
  [[nodiscard]] std::int64_t row_from(std::int64_t position) const;
};

/// Keys or values of a cache in memory, [-, Hkv, row number, D].
struct CacheRowsMemory {
  Operand view;                   ///< to read; strides of heads, rows and elements
  std::byte* writable = nullptr;  ///< the same memory, where it may be written
  Tensor owned;
};

class CacheState {
 public:
  KvCacheOptions options;
  RowFormat format = RowFormat::floats;
  bool borrowed = false;
  std::int64_t page_rows = 0;  ///< row numbers from a page's first to the next page's
  CacheRowsMemory key, value;
  std::vector<std::int32_t> page_holders;  ///< [pages]: how many sequences hold each
  std::vector<std::int32_t> free_pages;    ///< the last is the next to be used
  std::vector<Sequence> sequences;
  std::vector<std::int32_t> released;  ///< numbers; the last is the next to be used
  // Scales, of codes alone:
  std::vector<std::uint16_t> key_scale, key_offset;      ///< [number][Hkv][D]
  std::vector<std::int32_t> scale_holders, free_scales;  ///< of groups of keys
  std::vector<std::uint16_t> value_scale, value_offset;  ///< [row number][C], as rows lie

  [[nodiscard]] bool has_codes() const { return format != RowFormat::floats; }
  [[nodiscard]] bool has_offsets() const { return format == RowFormat::int4; }
  [[nodiscard]] std::int64_t value_groups() const {
    return has_codes() ? (options.value_dim + options.group - 1) / options.group : 0;
  }
  /// Rows below this position are codes, where the cache keeps codes.
  [[nodiscard]] std::int64_t coded_end(const Sequence& s) const {
    return s.length / options.group * options.group;
  }
  [[nodiscard]] std::int64_t page_of(std::int32_t slot) const { return slot / page_rows; }
  /// To look at. Throws where there is none.
  [[nodiscard]] const Sequence& sequence(std::int64_t number) const;
  /// To change or attend. Throws also where it is released.
  [[nodiscard]] const Sequence& sequence_in_use(std::int64_t number) const;
  [[nodiscard]] Sequence& sequence_in_use(std::int64_t number);

  /// The plain data that kernels read rows by.
  [[nodiscard]] CachedSequence plain(const Sequence& s) const;
  [[nodiscard]] RowCodes codes() const;
  /// One row as it is attended.
  void read_row(const Sequence& s, bool is_key, std::int64_t head, std::int64_t row,
                std::span<float> to) const;
};

/// The offset of element `at` in bytes.
inline std::int64_t byte_of(const CacheState& state, const Operand& view, std::int64_t at) {
  return state.has_codes() ? code_bytes(state.format, at)
                           : at * static_cast<std::int64_t>(size_of(view.dtype));
}
/// Whether each slot is the one before plus 1.
bool lie_evenly(std::span<const std::int32_t> slots);

constexpr std::int64_t kLargestPage = 256;

/// Throws where an option is not within [least, most].
void check_range(const char* name, std::int64_t value, std::int64_t least, std::int64_t most);
/// The options of a cache of its own, checked, and memory for it.
std::unique_ptr<CacheState> make_cache(const KvCacheOptions& options,
                                       std::int64_t largest_page = kLargestPage);
/// Memory for `pages` pages, where it has fewer.
void grow_pages(CacheState& state, std::int64_t pages);
/// Memory for `rows` rows of each sequence of a contiguous cache, where it has less.
void grow_sequences(CacheState& state, std::int64_t rows);
/// Gives a sequence a free page; there is one.
void give_page(CacheState& state, Sequence& sequence);
/// Memory offsets of scales of values, which lie as rows do.
struct ScaleStrides {
  std::int64_t head = 0, row = 0;
};
ScaleStrides value_scale_strides(const CacheState& state);

/// Saves a cache as named tensors, and restores one from untrusted tensors (saved.cpp).
using SavedTensors = std::span<const std::pair<std::string, TensorView>>;
std::vector<std::pair<std::string, Tensor>> saved(const CacheState& state);
std::unique_ptr<CacheState> restored(SavedTensors tensors);
/// A deep copy; a copy of a borrowed cache owns its memory.
std::unique_ptr<CacheState> copied(const CacheState& state);

/// Rows of several sequences that come at once: rows [begin, end) of key and value go to `sequence`.
struct Arrival {
  std::int64_t sequence, batch, begin, end;
};

// What follows has all its memory before it changes anything.

void append_rows(CacheState& state, const Operand& key, const Operand& value,
                 std::span<const Arrival> arrivals);
void truncate_rows(CacheState& state, std::int64_t sequence, std::int64_t length);
void evict_rows(CacheState& state, std::int64_t sequence, std::span<const std::int64_t> positions);
std::int64_t fork_rows(CacheState& state, std::int64_t sequence);
void release_rows(CacheState& state, std::int64_t sequence);

}  // namespace heed::detail
