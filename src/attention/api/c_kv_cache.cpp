// The C functions of KV caches.
#include <algorithm>
#include <vector>

#include "attention/api/c_delivery.hpp"
#include "attention/problem/operands.hpp"
#include "heed/attention/kv_cache.hpp"
#include "heed/io/kv_cache.hpp"

struct heed_kv_cache {
  heed::KvCache cache;
};

namespace {

using heed::KvCache;
using heed::KvCacheOptions;
using heed::MutableTensorView;
using heed::PageOrder;
using heed::Tensor;
using heed::TensorView;
using heed::detail::refuse;
using namespace heed::detail::c_api;

static_assert(static_cast<int>(heed::CacheFormat::fp8) == HEED_CACHE_FP8);
static_assert(static_cast<int>(heed::CacheLayout::ring) == HEED_CACHE_RING);
static_assert(static_cast<int>(PageOrder::nhd) == HEED_PAGES_NHD);

heed_kv_cache_options default_options() {
  const KvCacheOptions defaults;
  auto options = nothing_given<heed_kv_cache_options>();
  options.sequences = defaults.sequences;
  options.page_size = defaults.page_size;
  options.group = defaults.group;
  return options;
}

KvCacheOptions options_of(const heed_kv_cache_options& from) {
  if (from.reserved != 0) refuse("options.reserved is ", from.reserved, "; 0 is expected");
  KvCacheOptions options;
  options.sequences = from.sequences;
  options.kv_heads = from.kv_heads;
  options.head_dim = from.head_dim;
  options.value_dim = from.value_dim;
  options.format = choice("options.format", from.format, heed::CacheFormat::fp8);
  options.layout = choice("options.layout", from.layout, heed::CacheLayout::ring);
  options.capacity = from.capacity;
  options.page_size = from.page_size;
  options.order = choice("options.order", from.order, PageOrder::nhd);
  options.rotate = flag("options.rotate", from.rotate);
  options.sinks = from.sinks;
  options.window = from.window;
  options.group = from.group;
  options.values_in_keys = flag("options.values_in_keys", from.values_in_keys);
  return options;
}

// The listed sequences. No list stands for all of them, as a list of none would.
std::span<const std::int64_t> listed(const char* name, const std::int64_t* sequences, const char* count_name,
                                     std::size_t count) {
  if (sequences != nullptr && count == 0)
    refuse(count_name, " is 0 while ", name, " is given; 1 or more is expected");
  return list_of(name, sequences, count);
}

heed::CacheQuery cache_query(const heed_cache_query* which) {
  const auto nothing = nothing_given<heed_cache_query>();
  const heed_cache_query known = which == nullptr ? nothing : as_known("which", which, nothing);
  if (known.sequence_count < 0)
    refuse("which.sequence_count is ", known.sequence_count, "; 0 or more is expected");
  heed::CacheQuery from;
  from.sequences = listed("which.sequences", known.sequences, "which.sequence_count",
                          static_cast<std::size_t>(known.sequence_count));
  from.tree_parents = optional_view("tree_parents", known.tree_parents);
  from.tree_mask = optional_view("tree_mask", known.tree_mask);
  return from;
}

// Calls make(key, value) with mutable views if the memory is writable, and with read-only views otherwise.
template <class Make>
KvCache over(std::int32_t writable, const MutableTensorView& key, const MutableTensorView& value, Make make) {
  if (flag("writable", writable)) return make(key, value);
  return make(TensorView(key), TensorView(value));
}

// Runs work on a cache; throws if it is NULL.
template <class Cache, class Work>
heed_status with_cache(Cache* cache, Work work) {
  return guarded([&] {
    require("cache", cache);
    work(cache->cache);
  });
}

// Sets *to to the result of get(cache).
template <class Get>
heed_status get_number(const heed_kv_cache* cache, const char* name, std::int64_t* to, Get get) {
  return with_cache(cache, [&](const KvCache& c) {
    require(name, to);
    *to = get(c);
  });
}

// Copies the rows that get(cache) returns to `to`.
template <class Get>
heed_status get_rows(const heed_kv_cache* cache, const char* name, const heed_tensor* to, Get get) {
  return with_cache(cache, [&](const KvCache& c) {
    const MutableTensorView view = view_of(name, to);
    const Tensor rows = get(c);
    (void)heed::detail::target_of(name, view, rows.shape(), rows.dtype(), 0);
    heed::copy(rows, view);
  });
}

}  // namespace

heed_status heed_kv_cache_options_init_sized(heed_kv_cache_options* options, std::size_t struct_size) {
  return guarded([&] { initialise("options", options, struct_size, default_options()); });
}

heed_status heed_cache_query_init_sized(heed_cache_query* which, std::size_t struct_size) {
  return guarded([&] { initialise("which", which, struct_size, nothing_given<heed_cache_query>()); });
}

heed_status heed_kv_cache_create(const heed_kv_cache_options* options, heed_kv_cache** cache) {
  return make_handle("cache", cache, [&] {
    require("options", options);
    return KvCache(options_of(as_known("options", options, default_options())));
  });
}

heed_status heed_kv_cache_over(const heed_tensor* key, const heed_tensor* value, const heed_tensor* lengths,
                               std::int32_t writable, heed_kv_cache** cache) {
  return make_handle("cache", cache, [&] {
    const TensorView all_lengths = view_of("lengths", lengths);
    return over(writable, view_of("key", key), view_of("value", value),
                [&](const auto& k, const auto& v) { return KvCache::over(k, v, all_lengths); });
  });
}

heed_status heed_kv_cache_over_block_table(const heed_tensor* key_pool, const heed_tensor* value_pool,
                                           const heed_tensor* block_table, const heed_tensor* lengths,
                                           std::int32_t order, std::int32_t writable, heed_kv_cache** cache) {
  return make_handle("cache", cache, [&] {
    const PageOrder rows = choice("order", order, PageOrder::nhd);
    const TensorView table = view_of("block_table", block_table), all_lengths = view_of("lengths", lengths);
    return over(writable, view_of("key", key_pool), view_of("value", value_pool),
                [&](const auto& k, const auto& v) {
                  return KvCache::over_block_table(k, v, table, all_lengths, rows);
                });
  });
}

heed_status heed_kv_cache_over_page_indices(const heed_tensor* key_pool, const heed_tensor* value_pool,
                                            const heed_tensor* indptr, const heed_tensor* indices,
                                            const heed_tensor* last_page_len, std::int32_t order,
                                            std::int32_t writable, heed_kv_cache** cache) {
  return make_handle("cache", cache, [&] {
    const PageOrder rows = choice("order", order, PageOrder::nhd);
    const TensorView begins = view_of("indptr", indptr), pages = view_of("indices", indices);
    const TensorView last = view_of("last_page_len", last_page_len);
    return over(writable, view_of("key", key_pool), view_of("value", value_pool),
                [&](const auto& k, const auto& v) {
                  return KvCache::over_page_indices(k, v, begins, pages, last, rows);
                });
  });
}

heed_status heed_kv_cache_write(const heed_kv_cache* cache, const char* path) {
  return with_cache(cache, [&](const KvCache& c) {
    require("path", path);
    heed::io::write_kv_cache(path, c);
  });
}

heed_status heed_kv_cache_read(const char* path, heed_kv_cache** cache) {
  return make_handle("cache", cache, [&] {
    require("path", path);
    return heed::io::read_kv_cache(path);
  });
}

void heed_kv_cache_free(heed_kv_cache* cache) { delete cache; }

heed_status heed_kv_cache_append(heed_kv_cache* cache, const heed_tensor* key, const heed_tensor* value,
                                 const heed_tensor* offsets, const std::int64_t* sequences,
                                 std::size_t count) {
  return with_cache(cache, [&](KvCache& c) {
    const TensorView k = view_of("key", key);
    const auto which = listed("sequences", sequences, "count", count);
    if (offsets == nullptr && !which.empty())
      refuse("sequences is given without offsets; both or none are expected");
    if (c.values_in_keys() && value == nullptr)
      return offsets == nullptr ? c.append_keys(k) : c.append_keys(k, view_of("offsets", offsets), which);
    const TensorView v = view_of("value", value);
    if (offsets != nullptr) return c.append(k, v, view_of("offsets", offsets), which);
    c.append(k, v);
  });
}

heed_status heed_kv_cache_truncate(heed_kv_cache* cache, std::int64_t sequence, std::int64_t length) {
  return with_cache(cache, [&](KvCache& c) { c.truncate(sequence, length); });
}

heed_status heed_kv_cache_fork(heed_kv_cache* cache, std::int64_t sequence, std::int64_t* number) {
  return with_cache(cache, [&](KvCache& c) {
    require("number", number);
    *number = c.fork(sequence);
  });
}

heed_status heed_kv_cache_release(heed_kv_cache* cache, std::int64_t sequence) {
  return with_cache(cache, [&](KvCache& c) { c.release(sequence); });
}

heed_status heed_kv_cache_clear(heed_kv_cache* cache, std::int64_t sequence) {
  return with_cache(cache, [&](KvCache& c) { c.clear(sequence); });
}

heed_status heed_kv_cache_evict(heed_kv_cache* cache, std::int64_t sequence, const std::int64_t* positions,
                                std::size_t count) {
  return with_cache(cache, [&](KvCache& c) { c.evict(sequence, list_of("positions", positions, count)); });
}

heed_status heed_kv_cache_reserve(heed_kv_cache* cache, std::int64_t rows) {
  return with_cache(cache, [&](KvCache& c) { c.reserve(rows); });
}

heed_status heed_kv_cache_add_received(heed_kv_cache* cache, const heed_tensor* received, double decay,
                                       const std::int64_t* sequences, std::size_t count) {
  return with_cache(cache, [&](KvCache& c) {
    c.add_received(view_of("received", received), decay, listed("sequences", sequences, "count", count));
  });
}

heed_status heed_kv_cache_sequences(const heed_kv_cache* cache, std::int64_t* sequences) {
  return get_number(cache, "sequences", sequences, [](const KvCache& c) { return c.sequences(); });
}

heed_status heed_kv_cache_length(const heed_kv_cache* cache, std::int64_t sequence, std::int64_t* length) {
  return get_number(cache, "length", length, [&](const KvCache& c) { return c.length(sequence); });
}

heed_status heed_kv_cache_rows(const heed_kv_cache* cache, std::int64_t sequence, std::int64_t* rows) {
  return get_number(cache, "rows", rows, [&](const KvCache& c) { return c.rows(sequence); });
}

heed_status heed_kv_cache_positions(const heed_kv_cache* cache, std::int64_t sequence,
                                    std::int64_t* positions, std::size_t count) {
  return with_cache(cache, [&](const KvCache& c) {
    const std::vector<std::int64_t> all = c.positions(sequence);
    if (count != all.size())
      refuse("count is ", count, "; ", all.size(), ", the rows of sequence ", sequence, ", is expected");
    if (count > 0) require("positions", positions);
    std::ranges::copy(all, positions);
  });
}

heed_status heed_kv_cache_keys(const heed_kv_cache* cache, std::int64_t sequence, const heed_tensor* keys) {
  return get_rows(cache, "keys", keys, [&](const KvCache& c) { return c.keys(sequence); });
}

heed_status heed_kv_cache_values(const heed_kv_cache* cache, std::int64_t sequence,
                                 const heed_tensor* values) {
  return get_rows(cache, "values", values, [&](const KvCache& c) { return c.values(sequence); });
}

heed_status heed_kv_cache_received(const heed_kv_cache* cache, std::int64_t sequence,
                                   const heed_tensor* received) {
  return get_rows(cache, "received", received, [&](const KvCache& c) { return c.received(sequence); });
}

heed_status heed_kv_cache_get_stats_sized(const heed_kv_cache* cache, heed_kv_cache_stats* stats,
                                          std::size_t struct_size) {
  return with_cache(cache, [&](const KvCache& c) {
    const heed::KvCacheStats from = c.stats();
    auto all = nothing_given<heed_kv_cache_stats>();
    all.rows = from.rows;
    all.capacity = from.capacity;
    all.pages = from.pages;
    all.free_pages = from.free_pages;
    all.shared_pages = from.shared_pages;
    all.bytes = from.bytes;
    all.tail_bytes = from.tail_bytes;
    all.table_bytes = from.table_bytes;
    initialise("stats", stats, struct_size, all);
  });
}

heed_status heed_kv_cache_attention(const heed_tensor* query, const heed_kv_cache* cache,
                                    const heed_attention_options* options, const heed_cache_query* which,
                                    const heed_attention_outputs* outputs) {
  return with_cache(cache, [&](const KvCache& c) {
    const TensorView q = view_of("query", query);
    const heed::CacheQuery from = cache_query(which);
    const auto call = forward_call(options, outputs);
    call.report.tell(heed::attention_into(q, c, call.options, call.outputs, from));
  });
}

heed_status heed_kv_cache_differential_attention(const heed_tensor* query, const heed_kv_cache* cache,
                                                 const heed_tensor* lambda,
                                                 const heed_attention_options* options,
                                                 const heed_cache_query* which,
                                                 const heed_attention_outputs* outputs,
                                                 const heed_tensor* halves) {
  return with_cache(cache, [&](const KvCache& c) {
    const TensorView q = view_of("query", query), factors = view_of("lambda", lambda);
    const auto call = forward_call(options, outputs);
    deliver(heed::detail::differential_attention(q, c, factors, requests_of(call), cache_query(which),
                                                 check_of(call, q, halves)),
            call, halves);
  });
}
