// Saves a cache as named tensors, and restores it. The tensors hold rows, positions, sums and slots.
// Reference counts and free lists are derived from them. restored() checks every tensor before it is used.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <unordered_map>
#include <utility>

#include "attention/kv_cache/cache_state.hpp"
#include "attention/problem/elements.hpp"
#include "attention/problem/operands.hpp"
#include "core/message.hpp"

namespace heed::detail {
namespace {

// Indices into the tensor "cache".
enum SavedNumber : std::size_t {
  kVersion,
  kFormat,
  kLayout,
  kOrder,
  kKvHeads,
  kHeadDim,
  kValueDim,
  kPageSize,
  kSinks,
  kWindow,
  kGroup,
  kRotate,
  kPages,
  kScales,
  kSavedNumbers
};
// A cache whose values are channels of the keys has no tensors of values, which readers of version 1 need.
constexpr std::int64_t kTwoTensors = 1, kValuesInKeys = 2;

template <class T>
Tensor list_tensor(const std::vector<T>& values) {
  return Tensor::from(std::span<const T>(values), {std::ssize(values)});
}

Tensor scales_of(const std::vector<std::uint16_t>& bits, const Dims& shape) {
  Tensor tensor(shape, DType::bf16);
  if (!bits.empty()) std::memcpy(tensor.mutable_view().data(), bits.data(), bits.size() * sizeof bits[0]);
  return tensor;
}

std::string name_of_part(std::size_t sequence, const char* name) {
  return std::to_string(sequence) + "." + name;
}

// Calls use(saved, lying) for each row of each held page, with the row's first element in the saved tensor
// and in memory.
void for_each_row(const CacheState& state, const Operand& view, std::int64_t width,
                  const std::function<void(std::int64_t, std::int64_t)>& use) {
  std::int64_t at = 0;
  for (std::size_t page = 0; page < state.page_holders.size(); ++page) {
    if (state.page_holders[page] == 0) continue;
    for (std::int64_t head = 0; head < state.options.kv_heads; ++head)
      for (std::int64_t row = 0; row < state.options.page_size; ++row, at += width)
        use(at, offset_in(view, 0, head, static_cast<std::int64_t>(page) * state.page_rows + row));
  }
}

// The layout of value_scale, [row number][C].
Operand scale_view(const CacheState& state) {
  const ScaleStrides strides = value_scale_strides(state);
  return {nullptr, DType::bf16, {0, strides.head, strides.row, 1}};
}

Dims shape_of_rows(const CacheState& state, std::int64_t width) {
  const auto held =
      std::ranges::count_if(state.page_holders, [](std::int32_t holders) { return holders > 0; });
  return {held, state.options.kv_heads, state.options.page_size, width};
}

Tensor rows_of_pages(const CacheState& state, const Operand& view, std::int64_t width) {
  Tensor rows(shape_of_rows(state, state.has_codes() ? code_bytes(state.format, width) : width), view.dtype);
  auto* to = static_cast<std::byte*>(rows.mutable_view().data());
  const auto bytes = index(byte_of(state, view, width));
  for_each_row(state, view, width, [&](std::int64_t saved, std::int64_t lying) {
    std::memcpy(to + byte_of(state, view, saved),
                static_cast<const std::byte*>(view.data) + byte_of(state, view, lying), bytes);
  });
  return rows;
}

Tensor value_scales(const CacheState& state, const std::vector<std::uint16_t>& all) {
  const std::int64_t width = state.value_groups();
  Tensor scales(shape_of_rows(state, width), DType::bf16);
  auto* to = static_cast<std::uint16_t*>(scales.mutable_view().data());
  for_each_row(state, scale_view(state), width, [&](std::int64_t saved, std::int64_t lying) {
    std::copy_n(all.begin() + lying, width, to + saved);
  });
  return scales;
}

// Converts slots to page * page_size + row.
std::vector<std::int32_t> dense_slots(const CacheState& state, const std::vector<std::int32_t>& slots) {
  std::vector<std::int32_t> dense;
  for (const std::int32_t slot : slots)
    dense.push_back(
        static_cast<std::int32_t>(state.page_of(slot) * state.options.page_size + slot % state.page_rows));
  return dense;
}

void save_sequence(const CacheState& state, std::size_t number,
                   std::vector<std::pair<std::string, Tensor>>& all) {
  const Sequence& s = state.sequences[number];
  const auto add = [&](const char* name, Tensor tensor) {
    all.emplace_back(name_of_part(number, name), std::move(tensor));
  };
  add("slots", list_tensor(dense_slots(state, s.slots)));
  add("free_slots", list_tensor(dense_slots(state, s.free_slots)));
  add("pages", list_tensor(s.pages));
  if (s.has_gaps) add("positions", list_tensor(s.positions));
  if (!s.received.empty()) add("received", list_tensor(s.received));
  if (!state.has_codes()) return;
  add("groups", list_tensor(s.groups));
  add("key_tail", list_tensor(s.key_tail));
  if (state.stored_value_dim() > 0) add("value_tail", list_tensor(s.value_tail));
}

// Untrusted tensors by name.
class Found {
 public:
  explicit Found(SavedTensors tensors) : tensors_(tensors.begin(), tensors.end()) {}

  [[nodiscard]] bool has(const std::string& name) const { return tensors_.contains(name); }
  [[nodiscard]] TensorView at(const std::string& name, DType dtype, const Dims& shape) const {
    const TensorView view = at(name);
    if (view.dtype() != dtype || view.shape() != shape)
      refuse(name, " of the saved cache is ", view.dtype(), " ", view.shape(), "; ", dtype, " ", shape,
             " is expected");
    return view;
  }
  template <class T>
  [[nodiscard]] std::vector<T> list(const std::string& name) const {
    const TensorView view = at(name);
    if (view.rank() != 1)
      refuse(name, " of the saved cache has shape ", view.shape(), "; one axis is expected");
    const Tensor copy = Tensor::copy_of(at(name, dtype_of_v<T>, view.shape()));
    return {copy.values<T>().begin(), copy.values<T>().end()};
  }
  template <class T>
  [[nodiscard]] std::vector<T> list(const std::string& name, std::size_t count) const {
    std::vector<T> all = list<T>(name);
    if (all.size() != count)
      refuse(name, " of the saved cache has ", counted(all.size(), "number"), "; ", count, expected(count));
    return all;
  }

 private:
  [[nodiscard]] TensorView at(const std::string& name) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end())
      refuse("the saved cache lacks '", name, "'; a tensor of that name is expected");
    check_memory(name, found->second);
    return found->second;
  }
  std::unordered_map<std::string, TensorView> tensors_;
};

template <class Enum>
Enum saved_choice(std::int64_t value, std::int64_t most, const char* name) {
  check_range(name, value, 0, most);
  return static_cast<Enum>(value);
}

// Makes a cache with these options and no sequences.
std::unique_ptr<CacheState> empty_cache(const std::vector<std::int64_t>& numbers) {
  if (numbers[kVersion] != kTwoTensors && numbers[kVersion] != kValuesInKeys)
    refuse("the saved cache has version ", numbers[kVersion], "; 1 or 2 is expected");
  KvCacheOptions o;
  o.sequences = 0;
  o.format = saved_choice<CacheFormat>(numbers[kFormat], 5, "format");
  o.layout = saved_choice<CacheLayout>(numbers[kLayout], 2, "layout");
  o.order = saved_choice<PageOrder>(numbers[kOrder], 1, "order");
  o.kv_heads = numbers[kKvHeads];
  o.head_dim = numbers[kHeadDim];
  o.value_dim = numbers[kValueDim];
  check_range("value_dim", o.value_dim, 1, INT32_MAX);
  o.page_size = numbers[kPageSize];
  o.capacity = o.layout == CacheLayout::contiguous ? o.page_size : 0;
  o.sinks = numbers[kSinks];
  o.window = numbers[kWindow];
  o.group = numbers[kGroup];
  o.rotate = numbers[kRotate] != 0;
  o.values_in_keys = numbers[kVersion] == kValuesInKeys;
  check_range("pages", numbers[kPages], 0, INT32_MAX);
  check_range("scales", numbers[kScales], 0, INT32_MAX);
  auto state = make_cache(o, INT32_MAX);
  if (state->options.page_size != numbers[kPageSize])
    refuse("the saved ring has room for ", numbers[kPageSize],
           " rows; sinks + window = ", state->options.page_size, " is expected");
  return state;
}

// Reads one sequence and checks it against the rest of the cache.
class SequenceReader {
 public:
  SequenceReader(const CacheState& state, const Found& found, std::size_t number, std::int64_t scales)
      : state_(state), found_(found), number_(number), scales_(scales) {}

  [[nodiscard]] Sequence read(std::int64_t length, std::int64_t tail_begin) {
    s_.length = length;
    s_.tail_begin = tail_begin;
    require(length >= 0 && length <= INT32_MAX, "length");
    require(tail_begin >= 0 && tail_begin <= (state_.has_codes() ? state_.coded_end(s_) : 0), "tail_begin");
    read_pages();
    read_slots();
    read_positions();
    if (found_.has(name("received")))
      s_.received = found_.list<float>(name("received"), s_.slots.size() * index(state_.options.kv_heads));
    if (state_.has_codes()) {
      read_groups();
      s_.key_tail = tail("key_tail", state_.options.head_dim);
      if (state_.stored_value_dim() > 0) s_.value_tail = tail("value_tail", state_.stored_value_dim());
    }
    return std::move(s_);
  }

 private:
  [[nodiscard]] std::string name(const char* what) const { return name_of_part(number_, what); }
  void require(bool holds, const char* what) const {
    if (!holds)
      refuse(name(what),
             " of the saved cache does not match its other tensors; tensors of one cache are expected");
  }

  void read_pages() {
    s_.pages = found_.list<std::int32_t>(name("pages"));
    std::vector<std::int32_t> sorted = s_.pages;
    std::ranges::sort(sorted);
    require(std::ranges::adjacent_find(sorted) == sorted.end(), "pages");
    require(sorted.empty() || (sorted.front() >= 0 && index(sorted.back()) < state_.page_holders.size()),
            "pages");
    require(state_.options.layout == CacheLayout::paged || s_.pages.size() == 1, "pages");
  }

  // Each slot of the pages is listed once, as held or as free.
  void read_slots() {
    const std::int64_t size = state_.options.page_size;
    s_.slots = found_.list<std::int32_t>(name("slots"));
    s_.free_slots = found_.list<std::int32_t>(name("free_slots"));
    std::vector<std::int32_t> had = s_.slots, expected;
    had.insert(had.end(), s_.free_slots.begin(), s_.free_slots.end());
    require(had.size() == s_.pages.size() * index(size), "slots");
    for (const std::int32_t page : s_.pages)
      for (std::int64_t row = 0; row < size; ++row)
        expected.push_back(static_cast<std::int32_t>(page * size + row));
    std::ranges::sort(had);
    std::ranges::sort(expected);
    require(had == expected, "slots");
    for (std::vector<std::int32_t>* slots : {&s_.slots, &s_.free_slots})
      for (std::int32_t& slot : *slots)
        slot = static_cast<std::int32_t>(slot / size * state_.page_rows + slot % size);
    s_.is_even = lie_evenly(s_.slots);
  }

  void read_positions() {
    s_.has_gaps = found_.has(name("positions"));
    if (!s_.has_gaps) return require(s_.rows() == s_.length, "slots");
    s_.positions = found_.list<std::int64_t>(name("positions"), s_.slots.size());
    require(std::ranges::adjacent_find(s_.positions, std::greater_equal<>()) == s_.positions.end(),
            "positions");
    require(s_.positions.empty() || (s_.positions.front() >= 0 && s_.positions.back() < s_.length),
            "positions");
  }

  // Each quantised row needs scales.
  void read_groups() {
    const std::int64_t group = state_.options.group;
    s_.groups = found_.list<std::int32_t>(name("groups"), index(s_.length / group));
    require(std::ranges::all_of(s_.groups, [&](std::int32_t g) { return g >= -1 && g < scales_; }), "groups");
    const std::int64_t coded = s_.row_from(state_.coded_end(s_));
    for (std::int64_t row = 0; row < coded; ++row)
      require(s_.groups[index(s_.position(row) / group)] >= 0, "groups");
  }

  // Tails are quantised later, so their numbers must be finite.
  [[nodiscard]] std::vector<float> tail(const char* what, std::int64_t width) const {
    std::vector<float> rows = found_.list<float>(name(what));
    const std::size_t whole = index(state_.options.kv_heads * 2 * state_.options.group * width);
    require(rows.size() == whole || (rows.empty() && s_.length == 0), what);
    require(std::ranges::all_of(rows, [](float x) { return std::isfinite(x); }), what);
    return rows;
  }

  const CacheState& state_;
  const Found& found_;
  std::size_t number_;
  std::int64_t scales_;
  Sequence s_;
};

// In fp8 the codes 127 and 255 are NaN; decode() has no entry for them.
void check_saved_codes(const CacheState& state, const char* name, const TensorView& rows) {
  if (state.format != RowFormat::e4m3) return;
  const Tensor codes = Tensor::copy_of(rows);
  for (const std::uint8_t code : codes.values<std::uint8_t>())
    if ((code & 0x7fu) == 0x7fu)
      refuse(name, " of the saved cache contains the fp8 code ", code,
             ", which is NaN; a number is expected");
}

void read_rows(const CacheState& state, CacheRowsMemory& memory, const char* name, std::int64_t width,
               const Found& found) {
  const std::int64_t kept = state.has_codes() ? code_bytes(state.format, width) : width;
  const Tensor rows = Tensor::copy_of(found.at(name, memory.view.dtype, shape_of_rows(state, kept)));
  check_saved_codes(state, name, rows);
  const auto* from = static_cast<const std::byte*>(rows.view().data());
  const auto bytes = index(byte_of(state, memory.view, width));
  for_each_row(state, memory.view, width, [&](std::int64_t saved, std::int64_t lying) {
    std::memcpy(memory.writable + byte_of(state, memory.view, lying),
                from + byte_of(state, memory.view, saved), bytes);
  });
}

// Reads scales, or offsets, which may be negative.
std::vector<std::uint16_t> finite_scales(const char* name, const Dims& shape, const Found& found,
                                         bool is_scale) {
  const Tensor scales = Tensor::copy_of(found.at(name, DType::bf16, shape));
  const auto* from = static_cast<const std::uint16_t*>(scales.view().data());
  for (std::int64_t i = 0; i < scales.count(); ++i)
    if (const float number = to_float(BFloat16{from[i]}); !std::isfinite(number) || (is_scale && number < 0))
      refuse("the tensor '", name, "' has ", number,
             is_scale ? "; finite numbers from 0 on are expected" : "; finite numbers are expected");
  return {from, from + scales.count()};
}

void read_value_scales(const CacheState& state, std::vector<std::uint16_t>& all, const char* name,
                       const Found& found, bool is_scale) {
  const std::int64_t width = state.value_groups();
  const auto scales = finite_scales(name, shape_of_rows(state, width), found, is_scale);
  for_each_row(state, scale_view(state), width, [&](std::int64_t saved, std::int64_t lying) {
    std::copy_n(scales.begin() + saved, width, all.begin() + lying);
  });
}

// Derives reference counts and the free list; the lowest free number is used next.
void count_holders(std::vector<std::int32_t>& holders, std::vector<std::int32_t>& free,
                   const std::vector<Sequence>& sequences, std::vector<std::int32_t> Sequence::*held) {
  for (const Sequence& s : sequences)
    for (const std::int32_t one : s.*held)
      if (one >= 0) ++holders[index(one)];
  free.clear();
  free.reserve(holders.size());
  for (auto one = static_cast<std::int32_t>(holders.size()) - 1; one >= 0; --one)
    if (holders[index(one)] == 0) free.push_back(one);
}

void read_sequences(CacheState& state, const Found& found, std::int64_t scales) {
  const std::vector<std::int64_t> lengths = found.list<std::int64_t>("lengths");
  const std::vector<std::int64_t> tail_begins = found.list<std::int64_t>("tail_begins", lengths.size());
  state.released = found.list<std::int32_t>("released");
  state.sequences.resize(lengths.size());
  for (const std::int32_t number : state.released) {
    if (number < 0 || index(number) >= lengths.size() || state.sequences[index(number)].is_released)
      refuse("released of the saved cache names sequence ", number, "; 0 to ", lengths.size() - 1,
             ", without repetition, is expected");
    state.sequences[index(number)].is_released = true;
  }
  for (std::size_t number = 0; number < lengths.size(); ++number)
    if (!state.sequences[number].is_released)
      state.sequences[number] =
          SequenceReader(state, found, number, scales).read(lengths[number], tail_begins[number]);
}

}  // namespace

std::vector<std::pair<std::string, Tensor>> saved(const CacheState& state) {
  const KvCacheOptions& o = state.options;
  const auto scales = std::ssize(state.scale_holders);
  std::vector<std::int64_t> numbers(kSavedNumbers), lengths, tail_begins;
  numbers[kVersion] = o.values_in_keys ? kValuesInKeys : kTwoTensors;
  numbers[kFormat] = static_cast<std::int64_t>(o.format);
  numbers[kLayout] = static_cast<std::int64_t>(o.layout);
  numbers[kOrder] = static_cast<std::int64_t>(o.order);
  numbers[kKvHeads] = o.kv_heads;
  numbers[kHeadDim] = o.head_dim;
  numbers[kValueDim] = o.value_dim;
  numbers[kPageSize] = o.page_size;
  numbers[kSinks] = o.sinks;
  numbers[kWindow] = o.window;
  numbers[kGroup] = o.group;
  numbers[kRotate] = o.rotate ? 1 : 0;
  numbers[kPages] = std::ssize(state.page_holders);
  numbers[kScales] = scales;
  for (const Sequence& s : state.sequences) {
    lengths.push_back(s.length);
    tail_begins.push_back(s.tail_begin);
  }
  std::vector<std::pair<std::string, Tensor>> all;
  all.emplace_back("cache", list_tensor(numbers));
  all.emplace_back("lengths", list_tensor(lengths));
  all.emplace_back("tail_begins", list_tensor(tail_begins));
  all.emplace_back("released", list_tensor(state.released));
  all.emplace_back("key", rows_of_pages(state, state.key.view, o.head_dim));
  const bool has_values = state.stored_value_dim() > 0;
  if (has_values) all.emplace_back("value", rows_of_pages(state, state.value.view, o.value_dim));
  if (state.has_codes()) {
    const Dims shape{scales, o.kv_heads, o.head_dim};
    all.emplace_back("key_scale", scales_of(state.key_scale, shape));
    if (has_values) all.emplace_back("value_scale", value_scales(state, state.value_scale));
    if (state.has_offsets()) {
      all.emplace_back("key_offset", scales_of(state.key_offset, shape));
      if (has_values) all.emplace_back("value_offset", value_scales(state, state.value_offset));
    }
  }
  for (std::size_t number = 0; number < state.sequences.size(); ++number)
    if (!state.sequences[number].is_released) save_sequence(state, number, all);
  return all;
}

std::unique_ptr<CacheState> restored(SavedTensors tensors) {
  const Found found(tensors);
  const std::vector<std::int64_t> numbers = found.list<std::int64_t>("cache", kSavedNumbers);
  auto state = empty_cache(numbers);
  grow_pages(*state, numbers[kPages]);
  read_sequences(*state, found, numbers[kScales]);
  count_holders(state->page_holders, state->free_pages, state->sequences, &Sequence::pages);
  if (state->options.layout != CacheLayout::paged &&
      std::ranges::any_of(state->page_holders, [](std::int32_t n) { return n > 1; }))
    refuse(
        "two sequences of the saved cache share a page; separate pages are expected unless the cache is "
        "paged");
  read_rows(*state, state->key, "key", state->options.head_dim, found);
  const bool has_values = state->stored_value_dim() > 0;
  if (has_values) read_rows(*state, state->value, "value", state->options.value_dim, found);
  if (!state->has_codes()) return state;
  const Dims shape{numbers[kScales], state->options.kv_heads, state->options.head_dim};
  state->key_scale = finite_scales("key_scale", shape, found, true);
  if (has_values) read_value_scales(*state, state->value_scale, "value_scale", found, true);
  if (state->has_offsets()) {
    state->key_offset = finite_scales("key_offset", shape, found, false);
    if (has_values) read_value_scales(*state, state->value_offset, "value_offset", found, false);
  }
  state->scale_holders.resize(index(numbers[kScales]), 0);
  count_holders(state->scale_holders, state->free_scales, state->sequences, &Sequence::groups);
  return state;
}

}  // namespace heed::detail
