// Caches of keys and values for decoding: rows are computed once and attended from then on, with every rule
// and every result of heed/attention.hpp.
//
// A cache holds rows for a ragged batch of sequences. A row keeps its position while it is held: the first
// row that is appended to a sequence stands at position 0, the next at 1, whatever is evicted. Causality,
// windows, ALiBi, `distance` and the keys of top_k speak of positions; masks, bias, `weights`, `received` and
// the like have a column for each row held, in order of position.
//
// attention(query, cache, options) equals attention() on the rows held, as they are kept (keys(), values()).
// For one format the bits are the same whatever the layout, the page size, the sharing and the threads.
// docs/kv_cache.md has the layouts and formats with pictures and formulas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/attention.hpp"
#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed {

namespace detail {
class CacheState;
}

/// Where rows lie.
enum class CacheLayout : std::uint8_t {
  contiguous,  ///< [B, Hkv, capacity, D]: room for each sequence
  paged,       ///< a pool of pages for all sequences (Kwon and others 2023)
  ring,        ///< S sinks and a window of the last W rows; appending gives older ones away (Xiao and others
               ///< 2023)
};

/// How the rows of a page lie.
enum class PageOrder : std::uint8_t {
  hnd,  ///< [pages, Hkv, page size, D]
  nhd,  ///< [pages, page size, Hkv, D]: vLLM's and FlashInfer's default
};

/// What rows are kept as. Integers and fp8 have a scale, in bf16, for each channel and group of positions of
/// keys, and for each row and group of channels of values (KIVI: Liu and others 2024); int4 an offset, too.
/// The last rows of a sequence are kept in f32 until their group is full.
enum class CacheFormat : std::uint8_t {
  f32,
  bf16,
  f16,
  int8,  ///< codes -127 to 127
  int4,  ///< codes 0 to 15
  fp8,   ///< e4m3: codes of 1 sign, 4 exponent and 3 fraction bits
};

/// "f32", "bf16", "f16", "int8", "int4", "fp8"; "" for what is no enumerator.
HEED_API std::string_view name_of(CacheFormat format) noexcept;
/// "contiguous", "paged", "ring"; "" for what is no enumerator.
HEED_API std::string_view name_of(CacheLayout layout) noexcept;
HEED_API std::optional<CacheFormat> cache_format_named(std::string_view name) noexcept;
HEED_API std::optional<CacheLayout> cache_layout_named(std::string_view name) noexcept;

struct KvCacheOptions {
  std::int64_t sequences = 1;  ///< empty ones, to begin with
  std::int64_t kv_heads = 0;   ///< 1 or more
  std::int64_t head_dim = 0;   ///< D, 1 or more
  std::int64_t value_dim = 0;  ///< Dv; 0: as head_dim
  CacheFormat format = CacheFormat::f32;
  CacheLayout layout = CacheLayout::contiguous;
  /// Rows there is room for: of each sequence (contiguous), or of all together (paged, up to whole pages). A
  /// ring has room for sinks + window.
  std::int64_t capacity = 0;
  std::int64_t page_size = 16;  ///< rows a page, 1 to 256
  PageOrder order = PageOrder::hnd;
  std::int64_t sinks = 0;   ///< of a ring: first rows, which stay
  std::int64_t window = 0;  ///< of a ring: last rows, 1 or more
  std::int64_t group = 32;  ///< positions of a group of keys, and channels of a group of values; a power of
                            ///< two from 8 to 256
  /// Keys are kept times an orthonormal Hadamard matrix, and so are queries before they meet them: scores
  /// stay and outliers spread over all channels (QuaRot: Ashkboos and others 2024). Of codes alone.
  bool rotate = false;
};

/// What a cache is made of, in rows, pages and bytes.
struct KvCacheStats {
  std::int64_t rows = 0;          ///< held, of all sequences; a row that two sequences share counts twice
  std::int64_t capacity = 0;      ///< rows that there is room for, in all
  std::int64_t pages = 0;         ///< of a pool; otherwise one a sequence
  std::int64_t free_pages = 0;    ///< that no sequence holds
  std::int64_t shared_pages = 0;  ///< that several hold
  // Memory that the cache has, together all of it:
  std::int64_t bytes = 0;        ///< of keys, values and scales; 0 where they are borrowed
  std::int64_t tail_bytes = 0;   ///< of rows that wait for their group
  std::int64_t table_bytes = 0;  ///< of tables of rows, pages and groups, with the room kept to grow, of
                                 ///< positions, running sums and the cache itself
};

/// Which sequences a call attends, and how drafted queries see one another.
struct CacheQuery {
  /// Batch entry (or query segment) b attends sequence sequences[b]; empty: sequence b.
  std::span<const std::int64_t> sequences{};
  /// The queries are a tree of drafts, whose keys are the last Lq rows of each sequence: query i sees its
  /// ancestors and itself among them, and all rows before. i64 or i32 [Lq] or [B, Lq]: each node's parent,
  /// which comes before it; -1 for a root.
  std::optional<TensorView> tree_parents{};
  /// The same as a matrix, bool [Lq, Lq] or [B, Lq, Lq]: whether query i sees draft j. Not both.
  std::optional<TensorView> tree_mask{};
};

class HEED_API KvCache {
 public:
  /// A cache with memory of its own. Throws Error (invalid_argument) where an option is wrong, out_of_memory
  /// where memory cannot be had.
  explicit KvCache(const KvCacheOptions& options);

  /// Caches over memory of the caller, which must outlive them; nothing is copied. Views are of one floating
  /// dtype, their last axis without gaps. Rows can be appended where views are mutable and there is room.
  ///
  /// key [B, Hkv, capacity, D], value [B, Hkv, capacity, Dv], lengths i64 or i32 [B].
  [[nodiscard]] static KvCache over(const TensorView& key, const TensorView& value,
                                    const TensorView& lengths);
  [[nodiscard]] static KvCache over(const MutableTensorView& key, const MutableTensorView& value,
                                    const TensorView& lengths);
  [[nodiscard]] static KvCache over(Tensor& key, Tensor& value, const TensorView& lengths) {
    return over(key.mutable_view(), value.mutable_view(), lengths);
  }
  /// vLLM's block table: pools [pages, page size, Hkv, D] (nhd) or [pages, Hkv, page size, D] (hnd),
  /// block_table i64 or i32 [B, most pages], lengths [B]. Entries beyond a sequence's length are room to
  /// append to, up to the first one that is negative or that the table has elsewhere, too: a table may be
  /// filled up with -1 or with any page.
  [[nodiscard]] static KvCache over_block_table(const TensorView& key_pool, const TensorView& value_pool,
                                                const TensorView& block_table, const TensorView& lengths,
                                                PageOrder order = PageOrder::nhd);
  [[nodiscard]] static KvCache over_block_table(const MutableTensorView& key_pool,
                                                const MutableTensorView& value_pool,
                                                const TensorView& block_table, const TensorView& lengths,
                                                PageOrder order = PageOrder::nhd);
  [[nodiscard]] static KvCache over_block_table(Tensor& key_pool, Tensor& value_pool,
                                                const TensorView& block_table, const TensorView& lengths,
                                                PageOrder order = PageOrder::nhd) {
    return over_block_table(key_pool.mutable_view(), value_pool.mutable_view(), block_table, lengths, order);
  }
  /// FlashInfer's page table: sequence b has pages indices[indptr[b], indptr[b + 1]), the last of which holds
  /// last_page_len[b] rows. What is left of a page that two sequences have is room of neither.
  [[nodiscard]] static KvCache over_page_indices(const TensorView& key_pool, const TensorView& value_pool,
                                                 const TensorView& indptr, const TensorView& indices,
                                                 const TensorView& last_page_len,
                                                 PageOrder order = PageOrder::nhd);
  [[nodiscard]] static KvCache over_page_indices(const MutableTensorView& key_pool,
                                                 const MutableTensorView& value_pool,
                                                 const TensorView& indptr, const TensorView& indices,
                                                 const TensorView& last_page_len,
                                                 PageOrder order = PageOrder::nhd);
  [[nodiscard]] static KvCache over_page_indices(Tensor& key_pool, Tensor& value_pool,
                                                 const TensorView& indptr, const TensorView& indices,
                                                 const TensorView& last_page_len,
                                                 PageOrder order = PageOrder::nhd) {
    return over_page_indices(key_pool.mutable_view(), value_pool.mutable_view(), indptr, indices,
                             last_page_len, order);
  }

  /// A deep copy. It gives the same bits as the original from then on. A copy of a cache over the caller's
  /// memory owns its memory, so it can be written to and can grow.
  [[nodiscard]] KvCache copy() const;
  /// Exports the whole cache as named tensors; docs/kv_cache.md lists them.
  [[nodiscard]] std::vector<std::pair<std::string, Tensor>> tensors() const;
  /// Rebuilds an exported cache. The tensors are checked first. Throws Error (invalid_argument) if they do
  /// not describe a cache.
  [[nodiscard]] static KvCache from_tensors(std::span<const std::pair<std::string, TensorView>> tensors);

  KvCache(KvCache&& other) noexcept;
  KvCache& operator=(KvCache&& other) noexcept;
  ~KvCache();

  // What changes a cache happens whole or, where it throws, not at all.

  /// Appends L rows to every sequence: key [B, Hkv, L, D], value [B, Hkv, L, Dv], of any floating dtype but
  /// f64. A cache of codes takes finite numbers only.
  void append(const TensorView& key, const TensorView& value);
  /// The same for a ragged batch: key [1, Hkv, T, D]; rows [offsets[b], offsets[b + 1]) go to sequence
  /// sequences[b], or to sequence b where `sequences` is empty. offsets: i64 or i32, from 0 to T.
  void append(const TensorView& key, const TensorView& value, const TensorView& offsets,
              std::span<const std::int64_t> sequences = {});
  /// Takes back the last rows, so that `length` positions are left. A cache of codes is then as it was before
  /// they came, bit for bit, up to `group` rows back; further back, rows of the last group that is not full
  /// keep the values that they were attended with.
  void truncate(std::int64_t sequence, std::int64_t length);
  /// A new sequence with the rows of another; returns its number, which is one that was released where there
  /// is any. Pages are shared until they are written to. Other layouts copy.
  std::int64_t fork(std::int64_t sequence);
  /// Gives a sequence away, with its room, and its number to a fork to come. Until then it has no rows and
  /// cannot be changed or attended, so that calls over all sequences are refused; those that name others go
  /// on.
  void release(std::int64_t sequence);
  /// Empties a sequence; its next row stands at position 0.
  void clear(std::int64_t sequence);
  /// Gives the rows at these positions away, which must be held and ascend. Nothing moves; their room is for
  /// rows to come. In a cache of codes, room is had again when no row of a group's page is held.
  void evict(std::int64_t sequence, std::span<const std::int64_t> positions);
  /// Makes room for `rows` rows: of each sequence (contiguous), or of all (paged). Never less than there is.
  void reserve(std::int64_t rows);
  /// Adds what rows received to sums that stay with them: sum = decay * sum + received. `received` as a call
  /// with Need::received returns it, floating, [B, H, Lk]; heads of one key head are added up. decay in [0,
  /// 1].
  void add_received(const TensorView& received, double decay = 1,
                    std::span<const std::int64_t> sequences = {});

  /// How many, with those that are released.
  [[nodiscard]] std::int64_t sequences() const noexcept;
  [[nodiscard]] std::int64_t kv_heads() const noexcept;
  [[nodiscard]] std::int64_t head_dim() const noexcept;
  [[nodiscard]] std::int64_t value_dim() const noexcept;
  [[nodiscard]] CacheFormat format() const noexcept;
  [[nodiscard]] CacheLayout layout() const noexcept;
  [[nodiscard]] std::int64_t page_size() const noexcept;
  [[nodiscard]] bool rotates() const noexcept;
  /// The position of the next row of a sequence.
  [[nodiscard]] std::int64_t length(std::int64_t sequence) const;
  /// How many rows it holds.
  [[nodiscard]] std::int64_t rows(std::int64_t sequence) const;
  /// Where they stand, ascending.
  [[nodiscard]] std::vector<std::int64_t> positions(std::int64_t sequence) const;
  /// The rows as they are attended, f32 [Hkv, rows, D] and [Hkv, rows, Dv]: codes as numbers, keys in the
  /// rotated basis where the cache rotates.
  [[nodiscard]] Tensor keys(std::int64_t sequence) const;
  [[nodiscard]] Tensor values(std::int64_t sequence) const;
  /// The running sums of add_received, f32 [Hkv, rows]; 0 for rows that came since.
  [[nodiscard]] Tensor received(std::int64_t sequence) const;
  [[nodiscard]] KvCacheStats stats() const;

  /// For the library itself.
  [[nodiscard]] const detail::CacheState& state() const noexcept { return *state_; }

 private:
  HEED_HIDDEN explicit KvCache(std::unique_ptr<detail::CacheState> state) noexcept;
  std::unique_ptr<detail::CacheState> state_;
};

/// query [B, H, Lq, D], or [1, H, T, D] with options.query_segments, one segment a sequence; f32, f16 or
/// bf16. Results are those of attention() with Lk the most rows of a sequence, or with segments the rows of
/// all sequences one after the other; indices of top_k are positions. Queries stand at the last positions of
/// their sequence, whatever options.align says, unless options.query_offset says otherwise.
/// options.kv_lengths and key_segments are the cache's own, and refused. attention_into refuses outputs in
/// the memory that a cache lies over, also where it holds no row.
[[nodiscard]] HEED_API AttentionResult attention(const TensorView& query, const KvCache& cache,
                                                 const AttentionOptions& options = {},
                                                 const CacheQuery& which = {});
HEED_API AttentionRun attention_into(const TensorView& query, const KvCache& cache,
                                     const AttentionOptions& options, const AttentionOutputs& outputs,
                                     const CacheQuery& which = {});

/// x [.., D] times the orthonormal Hadamard matrix of the largest power of two that divides D, block by
/// block: its own inverse. What a cache that rotates does to keys and queries; f32.
[[nodiscard]] HEED_API Tensor hadamard(const TensorView& x);

}  // namespace heed
