#include "attention/kv_cache/cache_state.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <unordered_map>

#include "attention/kv_cache/coded_groups.hpp"
#include "attention/kv_cache/read_row.hpp"
#include "attention/problem/elements.hpp"
#include "core/message.hpp"

namespace heed::detail {

bool lie_evenly(std::span<const std::int32_t> slots) {
  return std::ranges::adjacent_find(slots, [](std::int32_t a, std::int32_t b) { return b != a + 1; }) ==
         slots.end();
}

std::int64_t Sequence::row_from(std::int64_t position) const {
  if (!has_gaps) return std::clamp<std::int64_t>(position, 0, rows());
  return std::ranges::lower_bound(positions, position) - positions.begin();
}

Sequence& CacheState::sequence_in_use(std::int64_t number) {
  return const_cast<Sequence&>(std::as_const(*this).sequence_in_use(number));
}
const Sequence& CacheState::sequence_in_use(std::int64_t number) const {
  const Sequence& s = sequence(number);
  if (s.is_released) refuse("sequence is ", number, ", which is released; a sequence in use is expected");
  return s;
}
const Sequence& CacheState::sequence(std::int64_t number) const {
  const auto count = std::ssize(sequences);
  if (count == 0) refuse("sequence is ", number, ", but the cache has no sequences");
  check_range("sequence", number, 0, count - 1);
  return sequences[index(number)];
}

CachedSequence CacheState::plain(const Sequence& s) const {
  CachedSequence plain;
  plain.rows = s.is_even ? nullptr : s.slots.data();
  plain.first_row = s.slots.empty() ? 0 : s.slots.front();
  plain.positions = s.has_gaps ? s.positions.data() : nullptr;
  if (!has_codes()) return plain;
  plain.groups = s.groups.data();
  plain.coded = coded_end(s);
  plain.key_tail = s.key_tail.data();
  plain.value_tail = s.value_tail.data();
  return plain;
}

RowCodes CacheState::codes() const {
  if (!has_codes()) return {};
  const ScaleStrides strides = value_scale_strides(*this);
  RowCodes codes;
  codes.format = format;
  codes.values_in_keys = options.values_in_keys;
  codes.key_dim = options.head_dim;
  codes.group = codes.value_group = options.group;
  codes.group_log2 = std::countr_zero(static_cast<std::uint64_t>(options.group));
  codes.key_scale = key_scale.data();
  codes.key_offset = has_offsets() ? key_offset.data() : nullptr;
  codes.value_scale = value_scale.data();
  codes.value_offset = has_offsets() ? value_offset.data() : nullptr;
  codes.value_head_stride = strides.head;
  codes.value_row_stride = strides.row;
  return codes;
}

ScaleStrides value_scale_strides(const CacheState& state) {
  const Operand& value = state.value.view;
  const std::int64_t width = state.options.value_dim;
  return {value.stride[1] / width * state.value_groups(), value.stride[2] / width * state.value_groups()};
}

std::array<MemoryUse, 2> CacheState::pools() const {
  const auto pool = [&](const char* name, Operand view, std::int64_t width) {
    view.stride[0] = page_rows * view.stride[2];
    return MemoryUse{name, view, {std::ssize(page_holders), options.kv_heads, options.page_size, width}};
  };
  return {pool("key", key.view, options.head_dim), pool("value", value.view, options.value_dim)};
}

void CacheState::read_row(const Sequence& s, bool is_key, std::int64_t head, std::int64_t row,
                          std::span<float> to) const {
  const CachedSequence one = plain(s);
  read_cached_row({&one, options.kv_heads, codes()}, is_key ? key.view : value.view, 0, is_key, head, row,
                  to);
}

namespace {

// Reserves capacity by doubling, as push_back does.
template <class T>
void have_room(std::vector<T>& all, std::size_t count) {
  if (count > all.capacity()) all.reserve(std::max(count, 2 * all.capacity()));
}

// Number of groups of positions that `rows` more rows fill.
std::int64_t groups_to_fill(const CacheState& state, const Sequence& s, std::int64_t rows) {
  if (!state.has_codes()) return 0;
  return (s.length + rows) / state.options.group - s.length / state.options.group;
}

// The operations on one sequence of a cache.
class Writer {
 public:
  Writer(CacheState& state, Sequence& sequence) : state_(state), s_(sequence) {}

  /// Reserves memory in the sequence's tables, so that appending `rows` rows cannot fail.
  void reserve(std::int64_t rows) {
    const bool paged = state_.options.layout == CacheLayout::paged;
    const std::int64_t most = s_.rows() + rows;
    const std::size_t held = index(paged ? most : std::min(most, state_.options.page_size));
    have_room(s_.slots, held);
    if (s_.has_gaps || state_.options.layout == CacheLayout::ring) have_room(s_.positions, held);
    if (!s_.received.empty()) have_room(s_.received, held * index(state_.options.kv_heads));
    have_room(s_.free_slots, index(state_.options.page_size));  // pages are taken once no slot is free
    if (paged) have_room(s_.pages, s_.pages.size() + index(rows / state_.options.page_size + 1));
    if (!state_.has_codes()) return;
    have_room(s_.groups, s_.groups.size() + index(groups_to_fill(state_, s_, rows)));
    const std::int64_t tail = state_.options.kv_heads * 2 * state_.options.group;
    s_.key_tail.resize(index(tail * state_.options.head_dim));
    s_.value_tail.resize(index(tail * state_.stored_value_dim()));
  }

  /// Takes a free page; there must be one.
  void take_page() {
    const std::int32_t page = state_.free_pages.back();
    state_.free_pages.pop_back();
    state_.page_holders[index(page)] = 1;
    s_.pages.push_back(page);
    const auto first = static_cast<std::int32_t>(page * state_.page_rows);
    for (std::int64_t r = state_.options.page_size - 1; r >= 0; --r)
      s_.free_slots.push_back(first + static_cast<std::int32_t>(r));
  }

  /// Replaces a page that other sequences also hold by a copy of its own.
  void copy_page(std::int32_t page) {
    const std::int32_t mine = state_.free_pages.back();
    state_.free_pages.pop_back();
    state_.page_holders[index(mine)] = 1;
    --state_.page_holders[index(page)];
    copy_memory(page, mine);
    const auto move = static_cast<std::int32_t>((mine - page) * state_.page_rows);
    for (std::vector<std::int32_t>* slots : {&s_.slots, &s_.free_slots})
      for (std::int32_t& slot : *slots)
        if (state_.page_of(slot) == page) slot += move;
    std::replace(s_.pages.begin(), s_.pages.end(), page, mine);
    find_evenness();
  }

  void append(const Operand& key, const Operand& value, std::int64_t batch, std::int64_t row) {
    if (s_.free_slots.empty()) take_page();
    const std::int32_t slot = s_.free_slots.back();
    s_.free_slots.pop_back();
    s_.is_even = s_.slots.empty() || (s_.is_even && slot == s_.slots.back() + 1);
    s_.slots.push_back(slot);
    if (s_.has_gaps) s_.positions.push_back(s_.length);
    if (!s_.received.empty()) s_.received.resize(s_.received.size() + index(state_.options.kv_heads));
    if (state_.has_codes()) {
      codes_.append(key, value, batch, row);
    } else {
      write_floats(key, batch, row, state_.key, slot, state_.options.head_dim);
      write_floats(value, batch, row, state_.value, slot, state_.stored_value_dim());
    }
    ++s_.length;
    if (state_.has_codes() && s_.length % state_.options.group == 0) codes_.encode_group();
  }

  void truncate(std::int64_t length) {
    const std::int64_t left = s_.row_from(length);
    reserve_to_free(s_.rows() - left);
    if (state_.has_codes()) codes_.truncate(length);
    for (std::int64_t row = s_.rows() - 1; row >= left; --row) s_.free_slots.push_back(s_.slots[index(row)]);
    s_.slots.resize(index(left));
    if (s_.has_gaps) s_.positions.resize(index(left));
    if (!s_.received.empty()) s_.received.resize(index(left * state_.options.kv_heads));
    s_.length = length;
    if (left == 0) s_.is_even = true;
    if (length == 0) s_.has_gaps = false;
    give_pages_back();
  }

  /// Evicts `count` rows, for which is_gone(row) is true.
  template <class IsGone>
  void evict(std::int64_t count, IsGone is_gone) {
    reserve_to_free(count);
    if (!s_.has_gaps) {
      s_.positions.resize(s_.slots.size());
      for (std::size_t row = 0; row < s_.positions.size(); ++row)
        s_.positions[row] = static_cast<std::int64_t>(row);
      s_.has_gaps = true;
    }
    const auto heads = index(state_.options.kv_heads);
    std::size_t to = 0;
    for (std::size_t row = 0; row < s_.slots.size(); ++row) {
      if (is_gone(row)) {
        s_.free_slots.push_back(s_.slots[row]);
        continue;
      }
      s_.slots[to] = s_.slots[row];
      s_.positions[to] = s_.positions[row];
      for (std::size_t h = 0; !s_.received.empty() && h < heads; ++h)
        s_.received[to * heads + h] = s_.received[row * heads + h];
      ++to;
    }
    s_.slots.resize(to);
    s_.positions.resize(to);
    if (!s_.received.empty()) s_.received.resize(to * heads);
    find_evenness();
    give_pages_back();
    if (state_.has_codes()) codes_.free_evicted();
  }

  /// Releases all pages and scales; the tables still name them.
  void give_all_back() {
    for (const std::int32_t page : s_.pages) give_page_back(page);
    codes_.free_all();
  }

 private:
  // Reserves memory in the free lists for `rows` evicted rows.
  void reserve_to_free(std::int64_t rows) {
    have_room(s_.free_slots, s_.free_slots.size() + index(rows));
    have_room(state_.free_scales, state_.scale_holders.size());
  }

  void find_evenness() { s_.is_even = lie_evenly(s_.slots); }

  // Frees the pages of the pool without held rows, that is, with only free slots. Pages in a caller's table
  // stay.
  void give_pages_back() {
    if (state_.options.layout != CacheLayout::paged || state_.borrowed) return;
    std::ranges::sort(s_.pages, std::greater<>());
    std::ranges::sort(s_.free_slots, std::greater<>());
    auto slot = s_.free_slots.begin(), free_end = slot;
    auto pages_end = s_.pages.begin();
    for (const std::int32_t page : s_.pages) {
      const auto first = slot;
      slot =
          std::find_if(slot, s_.free_slots.end(), [&](std::int32_t s) { return state_.page_of(s) != page; });
      if (slot - first < state_.options.page_size) {
        *pages_end++ = page;
        free_end = std::copy(first, slot, free_end);
      } else {
        give_page_back(page);
      }
    }
    s_.pages.erase(pages_end, s_.pages.end());
    s_.free_slots.erase(free_end, s_.free_slots.end());
  }

  // The caller's pool has no free pages, because its table determines their owners.
  void give_page_back(std::int32_t page) {
    if (--state_.page_holders[index(page)] == 0 && !state_.borrowed) state_.free_pages.push_back(page);
  }

  void copy_memory(std::int64_t from, std::int64_t to) {
    const std::int64_t rows = state_.options.kv_heads * state_.options.page_size;
    const auto copy = [&](CacheRowsMemory& memory, std::int64_t width) {
      const std::int64_t bytes = byte_of(state_, memory.view, rows * width);
      std::memcpy(memory.writable + to * bytes, memory.writable + from * bytes, index(bytes));
    };
    copy(state_.key, state_.options.head_dim);
    copy(state_.value, state_.stored_value_dim());
    if (!state_.has_codes()) return;
    const std::int64_t scales = rows * state_.value_groups();
    const auto copy_scales = [&](std::vector<std::uint16_t>& all) {
      if (!all.empty()) std::copy_n(all.begin() + from * scales, scales, all.begin() + to * scales);
    };
    copy_scales(state_.value_scale);
    copy_scales(state_.value_offset);
  }

  void write_floats(const Operand& from, std::int64_t batch, std::int64_t row, CacheRowsMemory& memory,
                    std::int64_t slot, std::int64_t width) {
    for (std::int64_t h = 0; h < state_.options.kv_heads; ++h) {
      const std::int64_t at = offset_in(memory.view, 0, h, slot);
      const std::int64_t first = offset_in(from, batch, h, row);
      if (from.dtype == memory.view.dtype && from.stride[3] == 1) {
        const auto size = static_cast<std::int64_t>(size_of(from.dtype));
        std::memcpy(memory.writable + at * size, static_cast<const std::byte*>(from.data) + first * size,
                    index(width * size));
        continue;
      }
      with_element_type(memory.view.dtype, [&](auto element) {
        for (std::int64_t c = 0; c < width; ++c)
          store<decltype(element)>(memory.writable, at + c, detail::read(from, batch, h, row, c));
      });
    }
  }

  CacheState& state_;
  Sequence& s_;
  CodedGroups codes_{state_, s_};
};

// Pages that other sequences also hold, and that appending `rows` rows to a sequence will write.
std::vector<std::int32_t> pages_to_copy(const CacheState& state, const Sequence& s, std::int64_t rows) {
  std::vector<std::int32_t> pages;
  const auto add = [&](std::int32_t slot) {
    const auto page = static_cast<std::int32_t>(state.page_of(slot));
    if (state.page_holders[index(page)] > 1 && std::ranges::find(pages, page) == pages.end())
      pages.push_back(page);
  };
  const auto from_free = std::min<std::int64_t>(rows, std::ssize(s.free_slots));
  for (std::int64_t r = 0; r < from_free; ++r) add(s.free_slots[s.free_slots.size() - 1 - index(r)]);
  if (!state.has_codes()) return pages;
  const std::int64_t coded = (s.length + rows) / state.options.group * state.options.group;
  for (std::int64_t row = s.row_from(state.coded_end(s)); row < s.row_from(coded); ++row)
    add(s.slots[index(row)]);
  return pages;
}

// Reserves memory for the scales of all groups that become full. A ring frees the scales of the rows it
// evicts.
void reserve_scales(CacheState& state, std::span<const Arrival> arrivals) {
  if (!state.has_codes()) return;
  std::int64_t groups = 0;
  for (const Arrival& arrival : arrivals) {
    const Sequence& s = state.sequences[index(arrival.sequence)];
    const std::int64_t filled = groups_to_fill(state, s, arrival.end - arrival.begin);
    // If rows arrive together, a ring keeps the last ones, and some of the first as sinks.
    const std::int64_t held = state.options.capacity / state.options.group + 3;
    groups += state.options.layout == CacheLayout::ring ? std::min(filled, held) : filled;
  }
  const auto free = std::ssize(state.free_scales);
  const std::size_t numbers = state.scale_holders.size() + index(std::max<std::int64_t>(0, groups - free));
  const std::size_t scales = numbers * index(state.options.kv_heads * state.options.head_dim);
  have_room(state.scale_holders, numbers);
  have_room(state.free_scales, numbers);
  have_room(state.key_scale, scales);
  if (state.has_offsets()) have_room(state.key_offset, scales);
}

void reserve(CacheState& state, std::span<const Arrival> arrivals) {
  for (const Arrival& arrival : arrivals)
    Writer(state, state.sequences[index(arrival.sequence)]).reserve(arrival.end - arrival.begin);
  reserve_scales(state, arrivals);
}

void append_to_ring(CacheState& state, const Operand& key, const Operand& value, const Arrival& arrival) {
  Sequence& s = state.sequences[index(arrival.sequence)];
  Writer writer(state, s);
  for (std::int64_t row = arrival.begin; row < arrival.end;) {
    // Appends at most a window at a time, because rows before them are evicted at once.
    const std::int64_t here = std::min(arrival.end - row, state.options.window);
    const std::int64_t too_many = here - std::ssize(s.free_slots);
    const std::int64_t first = s.row_from(std::min(state.options.sinks, s.length));
    // Rows that become sinks take no place in the window.
    const std::int64_t gone = std::min(too_many, s.rows() - first);
    if (too_many > 0)
      writer.evict(gone,
                   [&](std::size_t held) { return held >= index(first) && held < index(first + gone); });
    for (const std::int64_t end = row + std::min(here, std::ssize(s.free_slots)); row < end; ++row)
      writer.append(key, value, arrival.batch, row);
  }
}

}  // namespace

void give_page(CacheState& state, Sequence& sequence) {
  sequence.free_slots.reserve(index(state.options.page_size));
  Writer(state, sequence).take_page();
}

void append_rows(CacheState& state, const Operand& key, const Operand& value,
                 std::span<const Arrival> arrivals) {
  if (state.options.layout == CacheLayout::ring) {
    reserve(state, arrivals);
    for (const Arrival& arrival : arrivals) append_to_ring(state, key, value, arrival);
    return;
  }
  const auto free_pages = std::ssize(state.free_pages);
  std::int64_t needed = 0;
  std::unordered_map<std::int32_t, std::int32_t> copied;
  std::vector<std::vector<std::int32_t>> to_copy;  // for each arrival
  for (const Arrival& arrival : arrivals) {
    const Sequence& s = state.sequences[index(arrival.sequence)];
    const std::int64_t rows = arrival.end - arrival.begin;
    const std::int64_t lacking = std::max<std::int64_t>(0, rows - std::ssize(s.free_slots));
    if (lacking > 0 && (state.options.layout == CacheLayout::contiguous || state.borrowed))
      refuse("sequence ", arrival.sequence, " has room for ", s.free_slots.size(), " more rows, but ", rows,
             " arrived; ", state.borrowed ? "its table" : "reserve()", " makes room");
    to_copy.push_back(pages_to_copy(state, s, rows));
    for (const std::int32_t page : to_copy.back()) {
      if (state.borrowed)
        refuse("page ", page, " is shared, but sequence ", arrival.sequence,
               " would write to it; an unshared page is expected in its table");
      if (++copied[page] < state.page_holders[index(page)]) ++needed;
    }
    needed += (lacking + state.options.page_size - 1) / state.options.page_size;
  }
  if (needed > free_pages)
    refuse("the rows to append need ", counted(needed, "page"), ", but ", free_pages, " of ",
           state.page_holders.size(), " are free; reserve(), evict() and clear() make room");
  reserve(state, arrivals);
  for (std::size_t a = 0; a < arrivals.size(); ++a) {
    const Arrival& arrival = arrivals[a];
    Writer writer(state, state.sequences[index(arrival.sequence)]);
    for (const std::int32_t page : to_copy[a])
      if (state.page_holders[index(page)] > 1) writer.copy_page(page);  // others may have freed it
    for (std::int64_t row = arrival.begin; row < arrival.end; ++row)
      writer.append(key, value, arrival.batch, row);
  }
}

void truncate_rows(CacheState& state, std::int64_t sequence, std::int64_t length) {
  Sequence& s = state.sequence_in_use(sequence);
  if (length < 0 || length > s.length)
    refuse("length is ", length, "; 0 to ", s.length, ", the length of sequence ", sequence, ", is expected");
  Writer(state, s).truncate(length);
}

void evict_rows(CacheState& state, std::int64_t sequence, std::span<const std::int64_t> positions) {
  Sequence& s = state.sequence_in_use(sequence);
  std::vector<char> evicted(s.slots.size(), 0);
  std::int64_t last = -1;
  for (const std::int64_t position : positions) {
    const std::int64_t row = s.row_from(position);
    if (position < 0 || row == s.rows() || s.position(row) != position)
      refuse("positions has ", position, ", which sequence ", sequence, " does not hold");
    if (position <= last)
      refuse("positions go from ", last, " to ", position, "; ascending positions are expected");
    evicted[index(row)] = 1;
    last = position;
  }
  if (!positions.empty())
    Writer(state, s).evict(std::ssize(positions), [&](std::size_t row) { return evicted[row] != 0; });
}

std::int64_t fork_rows(CacheState& state, std::int64_t sequence) {
  Sequence copy = state.sequence_in_use(sequence);
  const bool shares = state.options.layout == CacheLayout::paged;
  if (!shares && state.borrowed)
    refuse(
        "the memory of this cache is the caller's and has no room for another sequence; a paged cache is "
        "expected for fork()");
  have_room(state.sequences, state.sequences.size() + 1);
  if (!shares && state.free_pages.empty()) grow_pages(state, std::ssize(state.page_holders) + 1);
  auto number = std::ssize(state.sequences);
  if (state.released.empty()) {
    state.sequences.emplace_back();
  } else {
    number = state.released.back();
    state.released.pop_back();
  }
  Sequence& s = state.sequences[index(number)];
  s = std::move(copy);
  for (const std::int32_t page : s.pages) ++state.page_holders[index(page)];
  if (!shares) Writer(state, s).copy_page(s.pages.front());
  for (const std::int32_t group : s.groups)
    if (group >= 0) ++state.scale_holders[index(group)];
  return number;
}

void release_rows(CacheState& state, std::int64_t sequence) {
  Sequence& s = state.sequence_in_use(sequence);
  have_room(state.released, state.released.size() + 1);
  have_room(state.free_scales, state.scale_holders.size());
  Writer(state, s).give_all_back();
  s = Sequence();
  s.is_released = true;
  state.released.push_back(static_cast<std::int32_t>(sequence));
}

}  // namespace heed::detail
