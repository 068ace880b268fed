// Caches that own their memory.
#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>

#include "attention/kv_cache/cache_state.hpp"
#include "core/message.hpp"

namespace heed::detail {
namespace {

constexpr std::int64_t kMaxDim = std::int64_t{1} << 20;
constexpr std::int64_t kMaxHeads = std::int64_t{1} << 16;
constexpr std::int64_t kMaxSequences = std::int64_t{1} << 20;
constexpr std::int64_t kMaxRows = INT32_MAX;

RowFormat row_format_of(CacheFormat format) {
  switch (format) {
    case CacheFormat::int8:
      return RowFormat::int8;
    case CacheFormat::int4:
      return RowFormat::int4;
    case CacheFormat::fp8:
      return RowFormat::e4m3;
    default:
      return RowFormat::floats;
  }
}

DType dtype_of_rows(CacheFormat format) {
  switch (format) {
    case CacheFormat::f32:
      return DType::f32;
    case CacheFormat::bf16:
      return DType::bf16;
    case CacheFormat::f16:
      return DType::f16;
    default:
      return DType::u8;
  }
}

void check_codes(const KvCacheOptions& options, RowFormat format) {
  if (format == RowFormat::floats) {
    if (options.rotate)
      refuse("rotate is set for a cache of ", name_of(options.format),
             "; int8, int4 or fp8 is expected with it");
    return;
  }
  check_range("group", options.group, 8, 256);
  if (!std::has_single_bit(static_cast<std::uint64_t>(options.group)))
    refuse("group is ", options.group, "; a power of two is expected");
  if (format != RowFormat::int4) return;
  if (options.head_dim % 2 != 0)
    refuse("head_dim is ", options.head_dim, "; an even number is expected for int4");
  if (options.value_dim % 2 != 0)
    refuse("value_dim is ", options.value_dim, "; an even number is expected for int4");
}

// Checks and completes the options; page_size becomes the rows of a page in every layout.
void complete(KvCacheOptions& options, RowFormat format, std::int64_t largest_page) {
  check_listed("format", options.format, CacheFormat::fp8);
  check_listed("layout", options.layout, CacheLayout::ring);
  check_listed("order", options.order, PageOrder::nhd);
  if (options.value_dim == 0) options.value_dim = options.head_dim;
  check_range("sequences", options.sequences, 0, kMaxSequences);
  check_range("kv_heads", options.kv_heads, 1, kMaxHeads);
  check_range("head_dim", options.head_dim, 1, kMaxDim);
  check_range("value_dim", options.value_dim, 1, kMaxDim);
  check_codes(options, format);
  if (options.values_in_keys && options.value_dim > options.head_dim)
    refuse("value_dim is ", options.value_dim, "; at most head_dim = ", options.head_dim,
           " is expected if values are channels of the keys");
  if (options.values_in_keys && options.rotate)
    refuse("rotate is set for a cache whose values are channels of the keys; false is expected");
  if (options.layout != CacheLayout::ring && (options.sinks != 0 || options.window != 0))
    refuse("sinks is ", options.sinks, " and window ", options.window, " in a ", name_of(options.layout),
           " cache; 0 is expected for both outside a ring");
  if (options.layout == CacheLayout::ring) {
    check_range("sinks", options.sinks, 0, kMaxRows / 2);
    check_range("window", options.window, 1, kMaxRows / 2);
    if (options.capacity != 0)
      refuse("capacity is ", options.capacity,
             " in a ring, which has room for sinks + window; 0 is expected");
    options.capacity = options.sinks + options.window;
  }
  check_range("capacity", options.capacity, options.layout == CacheLayout::contiguous ? 1 : 0, kMaxRows);
  if (options.layout == CacheLayout::paged) {
    check_range("page_size", options.page_size, 1, largest_page);
  } else {
    options.page_size = options.capacity;
    options.order = PageOrder::hnd;
  }
}

// Number of pages of a new cache.
std::int64_t pages_for(const KvCacheOptions& options) {
  if (options.layout != CacheLayout::paged) return options.sequences;
  return (options.capacity + options.page_size - 1) / options.page_size;
}

struct Memory {
  Tensor key, value;
  std::vector<std::uint16_t> value_scale, value_offset;
};

Memory memory_for(const CacheState& state, std::int64_t pages) {
  const KvCacheOptions& o = state.options;
  std::int64_t rows = 0;
  if (__builtin_mul_overflow(pages, o.kv_heads * o.page_size, &rows) || rows > kMaxRows)
    refuse("the cache would have ", pages, " pages of ", o.kv_heads, " heads and ", o.page_size,
           " rows; fewer than 2^31 rows of heads are expected");
  const DType dtype = dtype_of_rows(o.format);
  Memory memory;
  memory.key = Tensor({rows, code_bytes(state.format, o.head_dim)}, dtype);
  memory.value = Tensor({rows, code_bytes(state.format, state.stored_value_dim())}, dtype);
  if (state.has_codes()) memory.value_scale.resize(static_cast<std::size_t>(rows * state.value_groups()));
  if (state.has_offsets()) memory.value_offset.resize(memory.value_scale.size());
  return memory;
}

Operand view_of(const CacheState& state, const Tensor& memory, std::int64_t width) {
  const KvCacheOptions& o = state.options;
  const bool hnd = o.order == PageOrder::hnd;
  return {memory.view().data(),
          memory.dtype(),
          {0, hnd ? o.page_size * width : width, hnd ? width : o.kv_heads * width, 1}};
}

void view_owned(CacheState& state) {
  const auto view = [&](CacheRowsMemory& rows, Tensor& owned, std::int64_t width) {
    rows.view = view_of(state, owned, width);
    rows.writable = static_cast<std::byte*>(owned.mutable_view().data());
  };
  view(state.key, state.key.owned, state.options.head_dim);
  if (state.stored_value_dim() > 0)
    view(state.value, state.value.owned, state.options.value_dim);
  else
    view(state.value, state.key.owned, state.options.head_dim);
}

void take(CacheState& state, Memory memory) {
  state.key.owned = std::move(memory.key);
  state.value.owned = std::move(memory.value);
  view_owned(state);
  state.value_scale = std::move(memory.value_scale);
  state.value_offset = std::move(memory.value_offset);
  state.page_rows = state.options.order == PageOrder::hnd ? state.options.kv_heads * state.options.page_size
                                                          : state.options.page_size;
}

void copy_tensor(const Tensor& from, Tensor& to) {
  if (from.count() > 0)
    std::memcpy(to.mutable_view().data(), from.view().data(),
                static_cast<std::size_t>(from.count()) * size_of(from.dtype()));
}

// Inserts numbers [begin, end) so that they are used after the present ones. The last element is used next.
void insert_falling(std::vector<std::int32_t>& free, std::int64_t begin, std::int64_t end) {
  free.insert(free.begin(), static_cast<std::size_t>(end - begin), 0);
  for (std::int64_t i = begin; i < end; ++i)
    free[static_cast<std::size_t>(end - 1 - i)] = static_cast<std::int32_t>(i);
}

}  // namespace

void grow_pages(CacheState& state, std::int64_t pages) {
  const auto now = std::ssize(state.page_holders);
  if (pages <= now) return;
  Memory memory = memory_for(state, pages);
  state.free_pages.reserve(static_cast<std::size_t>(pages));
  state.page_holders.reserve(static_cast<std::size_t>(pages));
  copy_tensor(state.key.owned, memory.key);
  copy_tensor(state.value.owned, memory.value);
  std::ranges::copy(state.value_scale, memory.value_scale.begin());
  std::ranges::copy(state.value_offset, memory.value_offset.begin());
  state.page_holders.resize(static_cast<std::size_t>(pages), 0);
  insert_falling(state.free_pages, now, pages);
  take(state, std::move(memory));
}

void grow_sequences(CacheState& state, std::int64_t rows) {
  check_range("rows", rows, 0, kMaxRows);
  const std::int64_t old = state.options.page_size;
  if (rows <= old) return;
  const auto pages = std::ssize(state.page_holders);
  KvCacheOptions options = state.options;
  options.capacity = options.page_size = rows;
  CacheState grown;
  grown.options = options;
  grown.format = state.format;
  take(grown, memory_for(grown, pages));
  for (Sequence& s : state.sequences)
    s.free_slots.reserve(s.free_slots.size() + static_cast<std::size_t>(rows - old));
  const auto move_rows = [&](const std::byte* from, std::byte* to, std::int64_t bytes) {
    for (std::int64_t head = 0; head < pages * options.kv_heads; ++head)
      std::memcpy(to + head * rows * bytes, from + head * old * bytes, static_cast<std::size_t>(old * bytes));
  };
  const auto row_bytes = [&](const Tensor& memory) {
    return memory.shape()[1] * static_cast<std::int64_t>(size_of(memory.dtype()));
  };
  const auto bytes_of = [](std::vector<std::uint16_t>& all) {
    return reinterpret_cast<std::byte*>(all.data());
  };
  move_rows(state.key.writable, grown.key.writable, row_bytes(grown.key.owned));
  move_rows(state.value.writable, grown.value.writable, row_bytes(grown.value.owned));
  const std::int64_t scales = 2 * state.value_groups();
  if (scales > 0) move_rows(bytes_of(state.value_scale), bytes_of(grown.value_scale), scales);
  if (!state.value_offset.empty())
    move_rows(bytes_of(state.value_offset), bytes_of(grown.value_offset), scales);
  const auto moved = [&](std::int32_t slot) {
    const std::int64_t page = slot / state.page_rows;
    return static_cast<std::int32_t>(page * grown.page_rows + slot % state.page_rows);
  };
  for (Sequence& s : state.sequences) {
    for (std::vector<std::int32_t>* slots : {&s.slots, &s.free_slots})
      for (std::int32_t& slot : *slots) slot = moved(slot);
    if (s.is_released) continue;  // it has no page
    const std::int64_t first = s.pages.front() * grown.page_rows;
    insert_falling(s.free_slots, first + old, first + rows);
  }
  state.options = options;
  state.page_rows = grown.page_rows;
  state.key = std::move(grown.key);
  state.value = std::move(grown.value);
  state.value_scale = std::move(grown.value_scale);
  state.value_offset = std::move(grown.value_offset);
}

std::unique_ptr<CacheState> make_cache(const KvCacheOptions& options, std::int64_t largest_page) {
  auto state = std::make_unique<CacheState>();
  state->options = options;
  state->format = row_format_of(options.format);
  complete(state->options, state->format, largest_page);
  grow_pages(*state, pages_for(state->options));
  if (state->key.owned.count() == 0) take(*state, memory_for(*state, 0));
  state->sequences.resize(static_cast<std::size_t>(options.sequences));
  if (state->options.layout != CacheLayout::paged)
    for (Sequence& sequence : state->sequences) give_page(*state, sequence);
  return state;
}

std::unique_ptr<CacheState> copied(const CacheState& state) {
  if (state.borrowed) {
    const std::vector<std::pair<std::string, Tensor>> tensors = saved(state);
    return restored(std::vector<std::pair<std::string, TensorView>>(tensors.begin(), tensors.end()));
  }
  auto copy = std::make_unique<CacheState>(state);
  view_owned(*copy);
  copy->free_pages.reserve(copy->page_holders.size());  // give_page_back() must not allocate
  return copy;
}

}  // namespace heed::detail
