// Caches over the caller's memory. Tables are checked once, here, and trusted afterwards.
#include <algorithm>

#include "attention/kv_cache/cache_state.hpp"
#include "attention/problem/operands.hpp"
#include "core/message.hpp"

namespace heed {
namespace {

using detail::CacheState;
using detail::index;
using detail::refuse;

CacheFormat format_of(const TensorView& key) {
  switch (key.dtype()) {
    case DType::f32:
      return CacheFormat::f32;
    case DType::bf16:
      return CacheFormat::bf16;
    case DType::f16:
      return CacheFormat::f16;
    default:
      refuse("key has dtype ", key.dtype(), "; f32, f16 or bf16 is expected");
  }
}

// A pool as pages, heads, rows of a page, and elements.
struct Pool {
  TensorView view;  // [pages, Hkv, page size, D]
  std::int64_t page_rows = 0;
};

// Converts the distance of pages to rows, so that every row of the pool has a number.
Pool pool_of(const char* name, const TensorView& view, PageOrder order) {
  if (view.rank() != 4) refuse(name, " has shape ", view.shape(), "; 4 axes are expected");
  detail::check_memory(name, view);
  Pool pool{order == PageOrder::hnd ? view : view.transpose(1, 2)};
  const Dims& strides = pool.view.strides();
  if (pool.view.shape()[3] > 1 && strides[3] != 1)
    refuse(name, " has strides ", view.strides(), "; stride 1 is expected for the last axis");
  const std::int64_t row = strides[2], page = strides[0];
  if (row < 0 || strides[1] < 0 || page < 0)
    refuse(name, " has strides ", view.strides(), "; strides of 0 or more are expected");
  if (row == 0 || page % row != 0)
    refuse(name, " has strides ", view.strides(), "; a page stride of whole rows is expected");
  pool.page_rows = page / row;
  return pool;
}

// Sets up what all borrowed caches share.
std::unique_ptr<CacheState> borrow(const TensorView& key, const TensorView& value, PageOrder order,
                                   CacheLayout layout) {
  auto state = std::make_unique<CacheState>();
  KvCacheOptions& o = state->options;
  detail::check_listed("order", order, PageOrder::nhd);
  o.format = format_of(key);
  if (value.dtype() != key.dtype())
    refuse("value has dtype ", value.dtype(), "; ", key.dtype(), " as in key is expected");
  const Pool keys = pool_of("key", key, order), values = pool_of("value", value, order);
  for (int axis = 0; axis < 3; ++axis)
    if (values.view.shape()[axis] != keys.view.shape()[axis])
      refuse("value has shape ", value.shape(), "; the pages, heads and rows of key, ", key.shape(),
             ", are expected");
  const Dims& size = keys.view.shape();
  if (size[0] > 1 && keys.page_rows < size[2])
    refuse("key has shape ", key.shape(), " and strides ", key.strides(),
           ", so pages overlap; separate pages are expected");
  if (size[1] < 1 || size[2] < 1 || size[3] < 1 || values.view.shape()[3] < 1)
    refuse("key has shape ", key.shape(), " and value ", value.shape(),
           "; at least one head, one row and a dimension of 1 are expected");
  if (values.page_rows != keys.page_rows && size[0] > 1)
    refuse("value has pages ", values.page_rows, " rows apart; ", keys.page_rows, " as in key are expected");
  o.layout = layout;
  o.order = order;
  o.kv_heads = size[1];
  o.page_size = size[2];
  o.head_dim = size[3];
  o.value_dim = values.view.shape()[3];
  o.capacity = layout == CacheLayout::contiguous ? o.page_size : 0;
  state->borrowed = true;
  state->page_rows = std::max(o.page_size, keys.page_rows);
  if (state->page_rows > 0 && size[0] > INT32_MAX / state->page_rows)
    refuse("key has shape ", key.shape(), " and strides ", key.strides(),
           "; fewer than 2^31 rows of heads are expected");
  const auto operand = [](const TensorView& view) {
    const Dims& s = view.strides();
    return detail::Operand{view.data(), view.dtype(), {0, s[1], s[2], 1}};
  };
  state->key.view = operand(keys.view);
  state->value.view = operand(values.view);
  const detail::Operand &k = state->key.view, &v = state->value.view;
  const bool one_row = size[0] == 1 && size[2] == 1;  // axes of size 1 may have any stride
  o.values_in_keys = k.data == v.data && o.value_dim <= o.head_dim &&
                     (size[1] == 1 || k.stride[1] == v.stride[1]) && (one_row || k.stride[2] == v.stride[2]);
  if (o.values_in_keys) state->value.view = k;
  state->page_holders.resize(index(size[0]), 0);
  return state;
}

void make_writable(CacheState& state, const MutableTensorView& key, const MutableTensorView& value) {
  detail::target_of("key", key, key.shape(), key.dtype(), 0);  // no two rows may share memory
  detail::target_of("value", value, value.shape(), value.dtype(), 0);
  state.key.writable = static_cast<std::byte*>(key.data());
  state.value.writable = static_cast<std::byte*>(value.data());
  const auto [keys, values] = state.pools();
  if (!state.options.values_in_keys) check_overlap(values, keys);
}

// A sequence with `length` rows in `pages`; the rest of the pages is free.
detail::Sequence sequence_of(CacheState& state, std::int64_t number, std::span<const std::int64_t> pages,
                             std::int64_t length) {
  const std::int64_t size = state.options.page_size;
  detail::Sequence s;
  const auto room = std::ssize(pages) * size;
  if (length < 0 || length > room)
    refuse("sequence ", number, " has length ", length, "; 0 to ", room,
           ", the capacity of its pages, is expected");
  s.pages.assign(pages.begin(), pages.end());
  std::ranges::sort(s.pages);
  const auto twice = std::ranges::adjacent_find(s.pages);
  if (twice != s.pages.end())
    refuse("sequence ", number, " has page ", *twice, " twice; distinct pages are expected");
  for (const std::int32_t page : s.pages) ++state.page_holders[index(page)];
  const auto slot_at = [&](std::int64_t position) {
    return static_cast<std::int32_t>(pages[index(position / size)] * state.page_rows + position % size);
  };
  s.slots.reserve(index(length));
  for (; s.length < length; ++s.length) {
    const std::int32_t slot = slot_at(s.length);
    s.is_even = s.slots.empty() || (s.is_even && slot == s.slots.back() + 1);
    s.slots.push_back(slot);
  }
  s.free_slots.reserve(index(room - length));
  for (std::int64_t position = room - 1; position >= length; --position)
    s.free_slots.push_back(slot_at(position));
  return s;
}

void check_page(const CacheState& state, const char* table, std::int64_t page, std::int64_t at) {
  const auto pages = std::ssize(state.page_holders);
  if (pages == 0) refuse(table, " has page ", page, " at ", at, ", but the pool has no pages");
  if (page < 0 || page >= pages)
    refuse(table, " has page ", page, " at ", at, "; 0 to ", pages - 1, ", a page of the pool, is expected");
}

std::unique_ptr<CacheState> over_tensors(const TensorView& key, const TensorView& value,
                                         const TensorView& lengths) {
  auto state = borrow(key, value, PageOrder::hnd, CacheLayout::contiguous);
  const std::vector<std::int64_t> rows = detail::integers_of("lengths", lengths);
  if (rows.size() != state->page_holders.size())
    refuse("lengths has shape ", lengths.shape(), "; [", state->page_holders.size(),
           "], one per sequence of key, is expected");
  for (std::size_t b = 0; b < rows.size(); ++b) {
    const std::int64_t page[] = {static_cast<std::int64_t>(b)};
    state->sequences.push_back(sequence_of(*state, page[0], page, rows[b]));
  }
  return state;
}

std::unique_ptr<CacheState> over_table(const TensorView& key, const TensorView& value,
                                       const TensorView& table, const TensorView& lengths, PageOrder order) {
  auto state = borrow(key, value, order, CacheLayout::paged);
  const std::vector<std::int64_t> rows = detail::integers_of("lengths", lengths);
  if (table.rank() != 2 || (table.dtype() != DType::i64 && table.dtype() != DType::i32))
    refuse("block_table has dtype ", table.dtype(), " and shape ", table.shape(),
           "; i64 or i32 of two axes is expected");
  if (table.shape()[0] != std::ssize(rows))
    refuse("lengths has shape ", lengths.shape(), "; [", table.shape()[0], "] as in block_table is expected");
  detail::check_memory("block_table", table);
  const Tensor pages = Tensor::copy_of(table, DType::i64);
  std::vector<std::int64_t> entries(state->page_holders.size());  // [pages]: entries in the table
  for (const std::int64_t page : pages.values<std::int64_t>())
    if (page >= 0 && index(page) < entries.size()) ++entries[index(page)];
  std::vector<std::int64_t> of_one;
  for (std::int64_t b = 0; b < table.shape()[0]; ++b) {
    of_one.clear();
    for (std::int64_t p = 0; p < table.shape()[1]; ++p) {
      const std::int64_t page = pages.at<std::int64_t>(b, p);
      const bool is_room = p * state->options.page_size >= rows[index(b)];
      if (is_room && page < 0) break;
      check_page(*state, "block_table", page, b * table.shape()[1] + p);
      if (is_room && entries[index(page)] > 1) break;  // a filler page
      of_one.push_back(page);
    }
    state->sequences.push_back(sequence_of(*state, b, of_one, rows[index(b)]));
  }
  return state;
}

std::unique_ptr<CacheState> over_indices(const TensorView& key, const TensorView& value,
                                         const TensorView& indptr, const TensorView& indices,
                                         const TensorView& last_page_len, PageOrder order) {
  auto state = borrow(key, value, order, CacheLayout::paged);
  const std::vector<std::int64_t> begin = detail::integers_of("indptr", indptr);
  const std::vector<std::int64_t> pages = detail::integers_of("indices", indices);
  const std::vector<std::int64_t> last = detail::integers_of("last_page_len", last_page_len);
  if (begin.size() != last.size() + 1)
    refuse("indptr has shape ", indptr.shape(), "; [", last.size() + 1,
           "], one more than last_page_len, is expected");
  if (begin.front() != 0 || begin.back() > std::ssize(pages) || !std::ranges::is_sorted(begin))
    refuse("indptr runs from ", begin.front(), " to ", begin.back(), "; 0 to ", pages.size(),
           ", the length of indices, in non-decreasing order, is expected");
  const std::int64_t size = state->options.page_size;
  for (std::size_t b = 0; b < last.size(); ++b) {
    const std::int64_t count = begin[b + 1] - begin[b];
    const std::int64_t least = count == 0 ? 0 : 1, most = count == 0 ? 0 : size;
    if (last[b] < least || last[b] > most)
      refuse("last_page_len[", b, "] is ", last[b], "; ", least, " to ", most, " is expected");
    for (std::int64_t p = begin[b]; p < begin[b + 1]; ++p) check_page(*state, "indices", pages[index(p)], p);
    const std::int64_t length = count == 0 ? 0 : (count - 1) * size + last[b];
    state->sequences.push_back(sequence_of(*state, static_cast<std::int64_t>(b),
                                           std::span(pages).subspan(index(begin[b]), index(count)), length));
  }
  return state;
}

}  // namespace

KvCache KvCache::over(const TensorView& key, const TensorView& value, const TensorView& lengths) {
  return KvCache(detail::with_memory_errors([&] { return over_tensors(key, value, lengths); }));
}
KvCache KvCache::over(const MutableTensorView& key, const MutableTensorView& value,
                      const TensorView& lengths) {
  return KvCache(detail::with_memory_errors([&] {
    auto state = over_tensors(key, value, lengths);
    make_writable(*state, key, value);
    return state;
  }));
}

KvCache KvCache::over_block_table(const TensorView& key_pool, const TensorView& value_pool,
                                  const TensorView& block_table, const TensorView& lengths, PageOrder order) {
  return KvCache(detail::with_memory_errors(
      [&] { return over_table(key_pool, value_pool, block_table, lengths, order); }));
}
KvCache KvCache::over_block_table(const MutableTensorView& key_pool, const MutableTensorView& value_pool,
                                  const TensorView& block_table, const TensorView& lengths, PageOrder order) {
  return KvCache(detail::with_memory_errors([&] {
    auto state = over_table(key_pool, value_pool, block_table, lengths, order);
    make_writable(*state, key_pool, value_pool);
    return state;
  }));
}

KvCache KvCache::over_page_indices(const TensorView& key_pool, const TensorView& value_pool,
                                   const TensorView& indptr, const TensorView& indices,
                                   const TensorView& last_page_len, PageOrder order) {
  return KvCache(detail::with_memory_errors(
      [&] { return over_indices(key_pool, value_pool, indptr, indices, last_page_len, order); }));
}
KvCache KvCache::over_page_indices(const MutableTensorView& key_pool, const MutableTensorView& value_pool,
                                   const TensorView& indptr, const TensorView& indices,
                                   const TensorView& last_page_len, PageOrder order) {
  return KvCache(detail::with_memory_errors([&] {
    auto state = over_indices(key_pool, value_pool, indptr, indices, last_page_len, order);
    make_writable(*state, key_pool, value_pool);
    return state;
  }));
}

}  // namespace heed
