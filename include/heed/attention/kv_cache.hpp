// KV caches for decoding. Each row of keys and values is computed once and then attended by later queries,
// with every rule and every result of heed/attention/attention.hpp.
//
// A cache holds rows for a batch of sequences of different lengths. A row keeps its position: the first row
// of a sequence is at position 0, the next at 1, whatever is evicted. Causality, windows, ALiBi, `distance`
// and the keys of top_k use positions. Masks, bias, `weights`, `received` and the like have one column per
// row held, ordered by position.
//
// attention(query, cache, options) equals attention() on the stored rows (keys(), values()). For one format
// the bits do not depend on layout, page size, sharing or threads. docs/kv_cache.md explains the layouts and
// formats, with pictures and formulas.
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

#include "heed/attention/attention.hpp"
#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed {

namespace detail {
class CacheState;
}

/// Memory layout of the rows.
enum class CacheLayout : std::uint8_t {
  contiguous,  ///< [B, Hkv, capacity, D]: fixed room for each sequence
  paged,       ///< one pool of pages for all sequences (Kwon et al. 2023)
  ring,        ///< S sinks and a window of the last W rows; appending evicts older ones (Xiao et al. 2023)
};

/// Order of the axes within a page.
enum class PageOrder : std::uint8_t {
  hnd,  ///< [pages, Hkv, page size, D]
  nhd,  ///< [pages, page size, Hkv, D]: the default of vLLM and FlashInfer
};

/// Storage format of the rows. Integers and fp8 are codes with scales in bf16; int4 also has an offset. Keys
/// have a scale per channel and group of positions, values per row and group of channels (KIVI: Liu et al.
/// 2024). The last rows of a sequence stay in f32 until their group is full.
enum class CacheFormat : std::uint8_t {
  f32,
  bf16,
  f16,
  int8,  ///< codes -127 to 127
  int4,  ///< codes 0 to 15
  fp8,   ///< e4m3: codes of 1 sign, 4 exponent and 3 fraction bits
};

/// "f32", "bf16", "f16", "int8", "int4", "fp8"; "" for an invalid value.
HEED_API std::string_view name_of(CacheFormat format) noexcept;
/// "contiguous", "paged", "ring"; "" for an invalid value.
HEED_API std::string_view name_of(CacheLayout layout) noexcept;
HEED_API std::optional<CacheFormat> cache_format_named(std::string_view name) noexcept;
HEED_API std::optional<CacheLayout> cache_layout_named(std::string_view name) noexcept;

/// The sizes, format and layout of a KvCache.
struct KvCacheOptions {
  std::int64_t sequences = 1;  ///< number of sequences, initially empty
  std::int64_t kv_heads = 0;   ///< 1 or more
  std::int64_t head_dim = 0;   ///< D, 1 or more
  std::int64_t value_dim = 0;  ///< Dv; 0: head_dim
  CacheFormat format = CacheFormat::f32;
  CacheLayout layout = CacheLayout::contiguous;
  /// Capacity in rows: per sequence (contiguous), or in all, rounded up to whole pages (paged). A ring has
  /// room for sinks + window.
  std::int64_t capacity = 0;
  std::int64_t page_size = 16;  ///< rows per page, 1 to 256
  PageOrder order = PageOrder::hnd;
  std::int64_t sinks = 0;   ///< ring only: number of first rows that stay
  std::int64_t window = 0;  ///< ring only: number of last rows that stay, 1 or more
  /// Positions per group of keys and channels per group of values; a power of two from 8 to 256.
  std::int64_t group = 32;
  /// Multiplies keys by an orthonormal Hadamard matrix before storage, and queries before use. Scores stay
  /// the same, and outliers spread over all channels (QuaRot: Ashkboos et al. 2024). Needs a format of codes.
  bool rotate = false;
  /// Values are the first value_dim channels of the keys (multi-head latent attention, DeepSeek-AI 2024), so
  /// a row is stored once. append_keys() then takes the place of append(). Codes of values have the scales of
  /// keys. Not with `rotate`.
  bool values_in_keys = false;
};

/// Size of a cache in rows, pages and bytes.
struct KvCacheStats {
  std::int64_t rows = 0;          ///< rows held by all sequences; a row shared by two counts twice
  std::int64_t capacity = 0;      ///< rows that fit in all
  std::int64_t pages = 0;         ///< pages of the pool; without one, one per sequence
  std::int64_t free_pages = 0;    ///< pages that no sequence holds
  std::int64_t shared_pages = 0;  ///< pages that several sequences hold
  // The memory of the cache is the sum of these three:
  std::int64_t bytes = 0;       ///< keys, values and scales; 0 for a cache over caller memory
  std::int64_t tail_bytes = 0;  ///< f32 rows whose group is not full yet
  /// Tables of rows, pages and groups with spare room, positions, running sums, and the cache object.
  std::int64_t table_bytes = 0;
};

/// The sequences that a call attends, and the tree of its draft queries.
struct CacheQuery {
  /// Batch entry (or query segment) b attends sequence sequences[b]; if empty, sequence b.
  std::span<const std::int64_t> sequences{};
  /// Makes the queries a tree of drafts whose keys are the last Lq rows of each sequence. Query i sees
  /// itself, its ancestors and all earlier rows. i64 or i32 [Lq] or [B, Lq]: the parent of each node, which
  /// comes before the node; -1 for a root.
  std::optional<TensorView> tree_parents{};
  /// The tree as a matrix, bool [Lq, Lq] or [B, Lq, Lq]: whether query i sees draft j. Set at most one of the
  /// two.
  std::optional<TensorView> tree_mask{};
};

/// The keys and values of a ragged batch of sequences, for decoding. attention(query, cache) reads them in
/// place.
class HEED_API KvCache {
 public:
  /// Creates a cache with its own memory. Throws Error (invalid_argument) for an invalid option,
  /// out_of_memory if the allocation fails.
  explicit KvCache(const KvCacheOptions& options);

  /// Creates a cache over caller memory, which must outlive it; nothing is copied. All views have one
  /// floating dtype and a last axis of stride 1. Rows can be appended if the views are mutable and there is
  /// room. A `value` that begins where `key` begins and has its strides makes a cache with values_in_keys.
  ///
  /// key [B, Hkv, capacity, D], value [B, Hkv, capacity, Dv], lengths i64 or i32 [B].
  [[nodiscard]] static KvCache over(const TensorView& key, const TensorView& value,
                                    const TensorView& lengths);
  [[nodiscard]] static KvCache over(const MutableTensorView& key, const MutableTensorView& value,
                                    const TensorView& lengths);
  [[nodiscard]] static KvCache over(Tensor& key, Tensor& value, const TensorView& lengths) {
    return over(key.mutable_view(), value.mutable_view(), lengths);
  }
  /// Takes vLLM's block table. Pools are [pages, page size, Hkv, D] (nhd) or [pages, Hkv, page size, D]
  /// (hnd); block_table is i64 or i32 [B, most pages]; lengths is [B]. Table entries past the length of a
  /// sequence are room to append. The room ends at the first entry that is negative or occurs elsewhere in
  /// the table. A table may thus be padded with -1 or with any page.
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
  /// Takes FlashInfer's page table. Sequence b has pages indices[indptr[b], indptr[b + 1]); its last page
  /// holds last_page_len[b] rows. If two sequences share a page, neither can append to the rest of it.
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

  // Functions that change a cache complete, or throw and leave it unchanged.

  /// Appends L rows to every sequence: key [B, Hkv, L, D], value [B, Hkv, L, Dv], of any floating dtype but
  /// f64. A cache of codes accepts numbers up to the largest of bf16, 3.39e38, and keys up to 1/D of it if it
  /// rotates them.
  void append(const TensorView& key, const TensorView& value);
  /// The same for a ragged batch: key [1, Hkv, T, D]. Rows [offsets[b], offsets[b + 1]) go to sequence
  /// sequences[b], or to sequence b if `sequences` is empty. offsets: i64 or i32, from 0 to T.
  void append(const TensorView& key, const TensorView& value, const TensorView& offsets,
              std::span<const std::int64_t> sequences = {});
  /// The same two for a cache whose values are channels of the keys.
  void append_keys(const TensorView& key);
  void append_keys(const TensorView& key, const TensorView& offsets,
                   std::span<const std::int64_t> sequences = {});
  /// Removes the last rows so that `length` positions remain. A cache of codes returns to its earlier state
  /// bit for bit, up to `group` rows back. Further back, rows of the last incomplete group keep their
  /// quantised values.
  void truncate(std::int64_t sequence, std::int64_t length);
  /// Creates a sequence with the rows of another and returns its number, reusing a released one if possible.
  /// Pages are shared until written to. Other layouts copy.
  std::int64_t fork(std::int64_t sequence);
  /// Releases a sequence and its room. A later fork may reuse its number. Until then it has no rows and
  /// cannot be changed or attended. Calls over all sequences then fail; calls that name other sequences work.
  void release(std::int64_t sequence);
  /// Empties a sequence; its next row is at position 0.
  void clear(std::int64_t sequence);
  /// Evicts the rows at these positions, which must be held and ascending. Nothing moves; new rows reuse the
  /// room. In a cache of codes, a page is freed once all rows of its group are evicted.
  void evict(std::int64_t sequence, std::span<const std::int64_t> positions);
  /// Reserves room for `rows` rows: per sequence (contiguous) or in all (paged). Never shrinks.
  void reserve(std::int64_t rows);
  /// Updates the running sum of each row: sum = decay * sum + received. `received` is the Need::received
  /// result of a call, floating, [B, H, Lk]; query heads of one key head are added up. decay in [0, 1].
  void add_received(const TensorView& received, double decay = 1,
                    std::span<const std::int64_t> sequences = {});

  /// Number of sequences, including released ones.
  [[nodiscard]] std::int64_t sequences() const noexcept;
  [[nodiscard]] std::int64_t kv_heads() const noexcept;
  [[nodiscard]] std::int64_t head_dim() const noexcept;
  [[nodiscard]] std::int64_t value_dim() const noexcept;
  [[nodiscard]] CacheFormat format() const noexcept;
  [[nodiscard]] CacheLayout layout() const noexcept;
  [[nodiscard]] std::int64_t page_size() const noexcept;
  [[nodiscard]] bool rotates() const noexcept;
  [[nodiscard]] bool values_in_keys() const noexcept;
  /// The position of the next row of a sequence.
  [[nodiscard]] std::int64_t length(std::int64_t sequence) const;
  /// The number of rows that a sequence holds.
  [[nodiscard]] std::int64_t rows(std::int64_t sequence) const;
  /// The positions of its rows, ascending.
  [[nodiscard]] std::vector<std::int64_t> positions(std::int64_t sequence) const;
  /// The rows as attention reads them, f32 [Hkv, rows, D] and [Hkv, rows, Dv]: codes are decoded; keys of a
  /// rotating cache stay rotated.
  [[nodiscard]] Tensor keys(std::int64_t sequence) const;
  [[nodiscard]] Tensor values(std::int64_t sequence) const;
  /// The running sums of add_received, f32 [Hkv, rows]; 0 for rows appended since.
  [[nodiscard]] Tensor received(std::int64_t sequence) const;
  [[nodiscard]] KvCacheStats stats() const;

  /// For internal use.
  [[nodiscard]] const detail::CacheState& state() const noexcept { return *state_; }

 private:
  HEED_HIDDEN explicit KvCache(std::unique_ptr<detail::CacheState> state) noexcept;
  std::unique_ptr<detail::CacheState> state_;
};

/// Attention over a cache. query [B, H, Lq, D], or [1, H, T, D] with options.query_segments, one segment per
/// sequence; f32, f16 or bf16. Gives the results of attention(), but indices of top_k are positions. Lk is
/// the number of rows of the longest sequence; with segments, the rows of all sequences one after the other.
/// Queries are at the last positions of their sequence, unless options.query_offset is set; options.align is
/// ignored. options.kv_lengths and key_segments come from the cache and are refused. attention_into refuses
/// outputs in the memory of a cache over caller memory, even in its unused rows.
[[nodiscard]] HEED_API AttentionResult attention(const TensorView& query, const KvCache& cache,
                                                 const AttentionOptions& options = {},
                                                 const CacheQuery& which = {});
HEED_API AttentionRun attention_into(const TensorView& query, const KvCache& cache,
                                     const AttentionOptions& options, const AttentionOutputs& outputs,
                                     const CacheQuery& which = {});

/// Multiplies x [.., D], block by block, by the orthonormal Hadamard matrix of the largest power of two that
/// divides D; f32. Its own inverse. Rotating caches apply it to keys and queries.
[[nodiscard]] HEED_API Tensor hadamard(const TensorView& x);

}  // namespace heed
