#include "attention/kv_cache/cache_state.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "attention/call/elements.hpp"
#include "attention/call/message.hpp"
#include "attention/kv_cache/read_row.hpp"

namespace heed::detail {
namespace {

// Where element `at` of the memory lies, in bytes.
std::int64_t byte_of(const CacheState& state, const Operand& view, std::int64_t at) {
  return state.has_codes() ? code_bytes(state.format, at)
                           : at * static_cast<std::int64_t>(size_of(view.dtype));
}

}  // namespace

std::int64_t Sequence::row_from(std::int64_t position) const {
  if (!has_gaps) return std::clamp<std::int64_t>(position, 0, rows());
  return std::lower_bound(positions.begin(), positions.end(), position) - positions.begin();
}

Sequence& CacheState::sequence(std::int64_t number) {
  return const_cast<Sequence&>(std::as_const(*this).sequence(number));
}
const Sequence& CacheState::sequence(std::int64_t number) const {
  const auto count = static_cast<std::int64_t>(sequences.size());
  if (number < 0 || number >= count) refuse("sequence is ", number, "; 0 to ", count - 1, " is expected");
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
  const ScaleStrides strides = value_scale_strides(*this);
  RowCodes codes;
  codes.format = format;
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
  if (width == 0) return {};
  return {value.stride[1] / width * state.value_groups(), value.stride[2] / width * state.value_groups()};
}

void CacheState::read_row(const Sequence& s, bool is_key, std::int64_t head, std::int64_t row,
                          std::span<float> to) const {
  const CachedSequence one = plain(s);
  read_cached_row({&one, options.kv_heads, codes()}, is_key ? key.view : value.view, 0, is_key, head, row,
                  to);
}

namespace {

// The operations on one sequence of a cache. Memory that they need is had before anything changes.
class Writer {
 public:
  Writer(CacheState& state, Sequence& sequence) : state_(state), s_(sequence) {}

  /// Room in the tables for `rows` more rows.
  void reserve(std::int64_t rows) {
    s_.slots.reserve(grown(s_.slots, rows));
    if (s_.has_gaps) s_.positions.reserve(grown(s_.positions, rows));
    if (!s_.received.empty()) s_.received.reserve(grown(s_.received, rows * state_.options.kv_heads));
    if (!state_.has_codes()) return;
    const std::int64_t groups = rows / state_.options.group + 1;
    s_.groups.reserve(grown(s_.groups, groups));
    const auto tail = [&](std::vector<float>& rows_of, std::int64_t width) {
      rows_of.resize(index(state_.options.kv_heads * 2 * state_.options.group * width));
    };
    tail(s_.key_tail, state_.options.head_dim);
    tail(s_.value_tail, state_.options.value_dim);
    state_.scale_holders.reserve(grown(state_.scale_holders, groups));
    state_.free_scales.reserve(grown(state_.free_scales, groups));
    const std::int64_t numbers = groups * state_.options.kv_heads * state_.options.head_dim;
    state_.key_scale.reserve(grown(state_.key_scale, numbers));
    if (state_.has_offsets()) state_.key_offset.reserve(grown(state_.key_offset, numbers));
  }

  /// There is a free page.
  void take_page() {
    const std::int32_t page = state_.free_pages.back();
    state_.free_pages.pop_back();
    state_.page_holders[index(page)] = 1;
    s_.pages.emplace(page, 0);
    const auto first = static_cast<std::int32_t>(page * state_.page_rows);
    for (std::int64_t r = state_.options.page_size - 1; r >= 0; --r)
      s_.free_slots.push_back(first + static_cast<std::int32_t>(r));
  }

  /// Gives this sequence a copy of its own of a page that others hold too.
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
    const std::int32_t used = s_.pages.at(page);
    s_.pages.erase(page);
    s_.pages.emplace(mine, used);
    find_evenness();
  }

  void append(const Operand& key, const Operand& value, std::int64_t batch, std::int64_t row) {
    if (s_.free_slots.empty()) take_page();
    const std::int32_t slot = s_.free_slots.back();
    s_.free_slots.pop_back();
    ++s_.pages.at(static_cast<std::int32_t>(state_.page_of(slot)));
    s_.is_even = s_.slots.empty() || (s_.is_even && slot == s_.slots.back() + 1);
    s_.slots.push_back(slot);
    if (s_.has_gaps) s_.positions.push_back(s_.length);
    if (!s_.received.empty()) s_.received.resize(s_.received.size() + index(state_.options.kv_heads));
    if (state_.has_codes()) {
      write_tail(key, batch, row, s_.key_tail, state_.options.head_dim, state_.options.rotate);
      write_tail(value, batch, row, s_.value_tail, state_.options.value_dim, false);
      s_.tail_begin = std::max(s_.tail_begin, s_.length + 1 - 2 * state_.options.group);
    } else {
      write_floats(key, batch, row, state_.key, slot, state_.options.head_dim);
      write_floats(value, batch, row, state_.value, slot, state_.options.value_dim);
    }
    ++s_.length;
    if (state_.has_codes() && s_.length % state_.options.group == 0) encode_group();
  }

  void truncate(std::int64_t length) {
    if (state_.has_codes()) uncode(length);
    const std::int64_t left = s_.row_from(length);
    for (std::int64_t row = s_.rows() - 1; row >= left; --row) free_slot(s_.slots[index(row)]);
    s_.slots.resize(index(left));
    if (s_.has_gaps) s_.positions.resize(index(left));
    if (!s_.received.empty()) s_.received.resize(index(left * state_.options.kv_heads));
    s_.length = length;
    if (left == 0) s_.is_even = true;
    if (length == 0) s_.has_gaps = false;
    give_pages_back();
  }

  /// `evicted` [rows]: which of the rows go.
  void evict(const std::vector<char>& evicted) {
    if (!s_.has_gaps) {
      s_.positions.resize(s_.slots.size());
      for (std::size_t row = 0; row < s_.positions.size(); ++row)
        s_.positions[row] = static_cast<std::int64_t>(row);
      s_.has_gaps = true;
    }
    const auto heads = index(state_.options.kv_heads);
    std::size_t to = 0;
    for (std::size_t row = 0; row < s_.slots.size(); ++row) {
      if (evicted[row] != 0) {
        free_slot(s_.slots[row]);
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
    if (state_.has_codes()) give_scales_back();
  }

 private:
  template <class T>
  static std::size_t grown(const std::vector<T>& rows, std::int64_t more) {
    const std::size_t needed = rows.size() + index(more);
    return needed <= rows.capacity() ? rows.capacity() : std::max(needed, 2 * rows.capacity());
  }

  void find_evenness() {
    s_.is_even = true;
    for (std::size_t row = 1; row < s_.slots.size() && s_.is_even; ++row)
      s_.is_even = s_.slots[row] == s_.slots[row - 1] + 1;
  }

  void free_slot(std::int32_t slot) {
    --s_.pages.at(static_cast<std::int32_t>(state_.page_of(slot)));
    s_.free_slots.push_back(slot);
  }

  // Pages of the pool of which no row is held.
  void give_pages_back() {
    if (state_.options.layout != CacheLayout::paged) return;
    bool any = false;
    for (auto page = s_.pages.begin(); page != s_.pages.end();) {
      if (page->second != 0) {
        ++page;
        continue;
      }
      any = true;
      if (--state_.page_holders[index(page->first)] == 0 && !state_.borrowed)
        state_.free_pages.push_back(page->first);
      page = s_.pages.erase(page);
    }
    if (any && !state_.borrowed)
      std::erase_if(s_.free_slots, [&](std::int32_t slot) {
        return !s_.pages.contains(static_cast<std::int32_t>(state_.page_of(slot)));
      });
    else if (any)
      keep_borrowed_pages();
  }

  // The caller's table still lists them: they stay room for this sequence.
  void keep_borrowed_pages() {
    for (const std::int32_t slot : s_.free_slots) {
      const auto page = static_cast<std::int32_t>(state_.page_of(slot));
      if (s_.pages.emplace(page, 0).second) ++state_.page_holders[index(page)];
    }
  }

  void copy_memory(std::int64_t from, std::int64_t to) {
    const std::int64_t rows = state_.options.kv_heads * state_.options.page_size;
    const auto copy = [&](CacheRowsMemory& memory, std::int64_t width) {
      const std::int64_t bytes = byte_of(state_, memory.view, rows * width);
      std::memcpy(memory.writable + to * bytes, memory.writable + from * bytes, index(bytes));
    };
    copy(state_.key, state_.options.head_dim);
    copy(state_.value, state_.options.value_dim);
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

  void write_tail(const Operand& from, std::int64_t batch, std::int64_t row, std::vector<float>& tail,
                  std::int64_t width, bool rotates) {
    const std::int64_t length = 2 * state_.options.group;
    for (std::int64_t h = 0; h < state_.options.kv_heads; ++h) {
      float* to = tail.data() + (h * length + s_.length % length) * width;
      for (std::int64_t c = 0; c < width; ++c)
        to[c] = static_cast<float>(detail::read(from, batch, h, row, c));
      if (rotates) rotate({to, index(width)});
    }
  }

  // The group that has just become full, from the tails.
  void encode_group() {
    const std::int64_t begin = s_.length - state_.options.group;
    const std::int64_t first = s_.row_from(begin);
    if (first == s_.rows()) {
      s_.groups.push_back(-1);
      return;
    }
    const std::int32_t number = take_scales();
    for (std::int64_t h = 0; h < state_.options.kv_heads; ++h) {
      for (std::int64_t c = 0; c < state_.options.head_dim; ++c) encode_channel(number, h, c, first);
      for (std::int64_t row = first; row < s_.rows(); ++row) encode_value(h, row);
    }
    s_.groups.push_back(number);
  }

  const float* tail_at(const std::vector<float>& tail, std::int64_t head, std::int64_t position,
                       std::int64_t width) const {
    const std::int64_t length = 2 * state_.options.group;
    return tail.data() + (head * length + position % length) * width;
  }

  std::int32_t take_scales() {
    if (!state_.free_scales.empty()) {
      const std::int32_t number = state_.free_scales.back();
      state_.free_scales.pop_back();
      state_.scale_holders[index(number)] = 1;
      return number;
    }
    const auto number = static_cast<std::int32_t>(state_.scale_holders.size());
    const auto size = index((number + 1) * state_.options.kv_heads * state_.options.head_dim);
    state_.key_scale.resize(size);
    if (state_.has_offsets()) state_.key_offset.resize(size);
    state_.scale_holders.push_back(1);
    return number;
  }

  // The scale is that of all rows that came, held or not, so that codes do not depend on when rows are
  // evicted.
  void encode_channel(std::int32_t number, std::int64_t head, std::int64_t channel, std::int64_t first) {
    const std::int64_t width = state_.options.head_dim;
    const auto element = [&](std::int64_t position) {
      return tail_at(s_.key_tail, head, position, width)[channel];
    };
    const std::int64_t begin = s_.length - state_.options.group;
    float low = element(begin), high = low;
    for (std::int64_t position = begin + 1; position < s_.length; ++position) {
      low = std::min(low, element(position));
      high = std::max(high, element(position));
    }
    const CodeScale scale = scale_for(state_.format, low, high);
    const std::size_t at = index((number * state_.options.kv_heads + head) * width + channel);
    state_.key_scale[at] = scale.scale;
    if (state_.has_offsets()) state_.key_offset[at] = scale.offset;
    for (std::int64_t row = first; row < s_.rows(); ++row)
      set_code(state_.format, code_row(state_.key, head, row), channel,
               encode(state_.format, scale, element(s_.position(row))));
  }

  void encode_value(std::int64_t head, std::int64_t row) {
    const std::int64_t width = state_.options.value_dim;
    const float* from = tail_at(s_.value_tail, head, s_.position(row), width);
    const ScaleStrides strides = value_scale_strides(state_);
    for (std::int64_t c = 0; c < width; c += state_.options.group) {
      const std::int64_t end = std::min(width, c + state_.options.group);
      const auto [low, high] = std::minmax_element(from + c, from + end);
      const CodeScale scale = scale_for(state_.format, *low, *high);
      const std::size_t at =
          index(head * strides.head + s_.slots[index(row)] * strides.row + c / state_.options.group);
      state_.value_scale[at] = scale.scale;
      if (state_.has_offsets()) state_.value_offset[at] = scale.offset;
      for (std::int64_t i = c; i < end; ++i)
        set_code(state_.format, code_row(state_.value, head, row), i, encode(state_.format, scale, from[i]));
    }
  }

  std::uint8_t* code_row(CacheRowsMemory& memory, std::int64_t head, std::int64_t row) {
    const std::int64_t at = offset_in(memory.view, 0, head, s_.slots[index(row)]);
    return reinterpret_cast<std::uint8_t*>(memory.writable) + code_bytes(state_.format, at);
  }

  // Rows from the start of the group that `length` cuts on go back to the tails: as they came where the tails
  // have them still, and as they were attended elsewhere; 0 where they are no more.
  void uncode(std::int64_t length) {
    const std::int64_t begin = length / state_.options.group * state_.options.group;
    for (std::int64_t position = begin; position < std::min(length, s_.tail_begin); ++position)
      for (std::int64_t h = 0; h < state_.options.kv_heads; ++h) {
        restore_tail(true, h, position, s_.key_tail, state_.options.head_dim);
        restore_tail(false, h, position, s_.value_tail, state_.options.value_dim);
      }
    s_.tail_begin = std::min(s_.tail_begin, begin);
    while (static_cast<std::int64_t>(s_.groups.size()) > begin / state_.options.group) {
      give_scale_back(s_.groups.back());
      s_.groups.pop_back();
    }
  }

  void restore_tail(bool is_key, std::int64_t head, std::int64_t position, std::vector<float>& tail,
                    std::int64_t width) {
    const std::int64_t length = 2 * state_.options.group;
    const std::span<float> to = {tail.data() + (head * length + position % length) * width, index(width)};
    const std::int64_t row = s_.row_from(position);
    if (row < s_.rows() && s_.position(row) == position)
      state_.read_row(s_, is_key, head, row, to);
    else
      std::fill(to.begin(), to.end(), 0.0f);
  }

  void give_scale_back(std::int32_t number) {
    if (number >= 0 && --state_.scale_holders[index(number)] == 0) state_.free_scales.push_back(number);
  }

  void give_scales_back() {
    const std::int64_t group = state_.options.group;
    for (std::size_t g = 0; g < s_.groups.size(); ++g) {
      const auto begin = static_cast<std::int64_t>(g) * group;
      if (s_.groups[g] < 0 || s_.row_from(begin) < s_.row_from(begin + group)) continue;
      give_scale_back(s_.groups[g]);
      s_.groups[g] = -1;
    }
  }

  CacheState& state_;
  Sequence& s_;
};

// Pages that others hold, too, and that `rows` more rows of a sequence will be written to.
std::vector<std::int32_t> pages_to_copy(const CacheState& state, const Sequence& s, std::int64_t rows) {
  std::vector<std::int32_t> pages;
  const auto add = [&](std::int32_t slot) {
    const auto page = static_cast<std::int32_t>(state.page_of(slot));
    if (state.page_holders[index(page)] > 1 && std::find(pages.begin(), pages.end(), page) == pages.end())
      pages.push_back(page);
  };
  const auto from_free = std::min<std::int64_t>(rows, static_cast<std::int64_t>(s.free_slots.size()));
  for (std::int64_t r = 0; r < from_free; ++r) add(s.free_slots[s.free_slots.size() - 1 - index(r)]);
  if (!state.has_codes()) return pages;
  const std::int64_t coded = (s.length + rows) / state.options.group * state.options.group;
  for (std::int64_t row = s.row_from(state.coded_end(s)); row < s.row_from(coded); ++row)
    add(s.slots[index(row)]);
  return pages;
}

void append_to_ring(CacheState& state, const Operand& key, const Operand& value, const Arrival& arrival) {
  Sequence& s = state.sequences[index(arrival.sequence)];
  Writer writer(state, s);
  writer.reserve(arrival.end - arrival.begin);
  std::vector<char> evicted;
  for (std::int64_t row = arrival.begin; row < arrival.end;) {
    // As many at a time as the window holds: those before them leave it at once.
    const std::int64_t here = std::min(arrival.end - row, state.options.window);
    const std::int64_t too_many = here - static_cast<std::int64_t>(s.free_slots.size());
    const std::int64_t first = s.row_from(std::min(state.options.sinks, s.length));
    const std::int64_t after_sinks = s.rows() - first;
    // Rows that become sinks need no window.
    if (too_many > 0) {
      evicted.assign(s.slots.size(), 0);
      const std::int64_t gone = std::min(too_many, after_sinks);
      std::fill_n(evicted.begin() + first, gone, char{1});
      writer.evict(evicted);
    }
    for (const std::int64_t end = row + std::min(here, static_cast<std::int64_t>(s.free_slots.size()));
         row < end; ++row)
      writer.append(key, value, arrival.batch, row);
  }
}

}  // namespace

void give_page(CacheState& state, Sequence& sequence) { Writer(state, sequence).take_page(); }

void append_rows(CacheState& state, const Operand& key, const Operand& value,
                 std::span<const Arrival> arrivals) {
  if (state.options.layout == CacheLayout::ring) {
    for (const Arrival& arrival : arrivals) append_to_ring(state, key, value, arrival);
    return;
  }
  const auto free_pages = static_cast<std::int64_t>(state.free_pages.size());
  std::int64_t needed = 0;
  std::unordered_map<std::int32_t, std::int32_t> copied;
  for (const Arrival& arrival : arrivals) {
    const Sequence& s = state.sequences[index(arrival.sequence)];
    const std::int64_t rows = arrival.end - arrival.begin;
    const std::int64_t lacking =
        std::max<std::int64_t>(0, rows - static_cast<std::int64_t>(s.free_slots.size()));
    if (lacking > 0 && (state.options.layout == CacheLayout::contiguous || state.borrowed))
      refuse("sequence ", arrival.sequence, " has room for ", s.free_slots.size(), " more rows, and ", rows,
             " came; ", state.borrowed ? "its table" : "reserve()", " makes room");
    for (const std::int32_t page : pages_to_copy(state, s, rows)) {
      if (state.borrowed)
        refuse("page ", page, " is shared, and sequence ", arrival.sequence,
               " would write to it; one of its own is expected in its table");
      if (++copied[page] < state.page_holders[index(page)]) ++needed;
    }
    needed += (lacking + state.options.page_size - 1) / state.options.page_size;
  }
  if (needed > free_pages)
    refuse("the rows to append need ", needed, " pages, and ", free_pages, " of ", state.page_holders.size(),
           " are free; reserve(), evict() and clear() make room");
  for (const Arrival& arrival : arrivals) {
    Writer writer(state, state.sequences[index(arrival.sequence)]);
    writer.reserve(arrival.end - arrival.begin);
  }
  for (const Arrival& arrival : arrivals) {
    Sequence& s = state.sequences[index(arrival.sequence)];
    Writer writer(state, s);
    for (const std::int32_t page : pages_to_copy(state, s, arrival.end - arrival.begin))
      writer.copy_page(page);
    for (std::int64_t row = arrival.begin; row < arrival.end; ++row)
      writer.append(key, value, arrival.batch, row);
  }
}

void truncate_rows(CacheState& state, std::int64_t sequence, std::int64_t length) {
  Sequence& s = state.sequence(sequence);
  if (length < 0 || length > s.length)
    refuse("length is ", length, "; 0 to ", s.length, ", the length of sequence ", sequence, ", is expected");
  Writer(state, s).truncate(length);
}

void evict_rows(CacheState& state, std::int64_t sequence, std::span<const std::int64_t> positions) {
  Sequence& s = state.sequence(sequence);
  std::vector<char> evicted(s.slots.size(), 0);
  std::int64_t last = -1;
  for (const std::int64_t position : positions) {
    const std::int64_t row = s.row_from(position);
    if (position < 0 || row == s.rows() || s.position(row) != position)
      refuse("positions has ", position, ", which sequence ", sequence, " does not hold");
    if (position <= last)
      refuse("positions go from ", last, " to ", position, "; ascending ones are expected");
    evicted[index(row)] = 1;
    last = position;
  }
  if (!positions.empty()) Writer(state, s).evict(evicted);
}

std::int64_t fork_rows(CacheState& state, std::int64_t sequence) {
  const auto number = static_cast<std::int64_t>(state.sequences.size());
  Sequence copy = state.sequence(sequence);
  if (state.options.layout != CacheLayout::paged) {
    if (state.borrowed)
      refuse(
          "the memory of this cache is the caller's, which has no room for another sequence; a paged cache "
          "is expected to fork");
    const auto pages = static_cast<std::int64_t>(state.page_holders.size());
    grow_pages(state, pages + 1);
    state.sequences.push_back(std::move(copy));
    Sequence& s = state.sequences.back();
    const std::int32_t old_page = s.pages.begin()->first;
    ++state.page_holders[index(old_page)];  // as if it were shared, for copy_page
    Writer(state, s).copy_page(old_page);
  } else {
    state.sequences.push_back(std::move(copy));
    for (const auto& page : state.sequences.back().pages) ++state.page_holders[index(page.first)];
  }
  for (const std::int32_t group : state.sequences.back().groups)
    if (group >= 0) ++state.scale_holders[index(group)];
  return number;
}

}  // namespace heed::detail
