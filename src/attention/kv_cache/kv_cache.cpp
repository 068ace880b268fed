// The public class KvCache: checks, followed by the operations of cache_state.hpp.
#include "heed/attention/kv_cache.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "attention/kv_cache/cache_state.hpp"
#include "attention/problem/elements.hpp"
#include "attention/problem/operands.hpp"
#include "core/message.hpp"

namespace heed {

using detail::Arrival;
using detail::counted;
using detail::index;
using detail::refuse;

namespace {

constexpr std::string_view kFormats[] = {"f32", "bf16", "f16", "int8", "int4", "fp8"};
constexpr std::string_view kLayouts[] = {"contiguous", "paged", "ring"};

template <class Enum>
std::string_view name_in(std::span<const std::string_view> names, Enum value) {
  const auto at = static_cast<std::size_t>(value);
  return at < names.size() ? names[at] : std::string_view();
}
template <class Enum>
std::optional<Enum> named(std::span<const std::string_view> names, std::string_view name) {
  const auto at = std::ranges::find(names, name);
  if (at == names.end()) return std::nullopt;
  return static_cast<Enum>(at - names.begin());
}

// Throws for a number that the cache cannot store. Scales and offsets of codes are bf16, and a number of a
// rotated key is a sum of up to D numbers before it is scaled. f16 and bf16 round larger numbers to infinity.
void check_numbers(const detail::CacheState& state, const char* name, const detail::Operand& rows,
                   std::int64_t batch, std::int64_t begin, std::int64_t end, std::int64_t width) {
  const DType kept = state.key.view.dtype;
  if (!state.has_codes() && (kept == DType::f32 || rows.dtype == kept)) return;
  constexpr float largest_bf16 = 0x1.fep127f;
  const bool rotates = state.options.rotate && name == std::string_view("key");
  const float most = rotates ? largest_bf16 / static_cast<float>(width) : largest_bf16;
  const float beyond = kept == DType::f16 ? 65520 : 0x1.ffp127f;
  const auto fits = [&](float x) {
    return state.has_codes() ? std::abs(x) <= most : !std::isfinite(x) || std::abs(x) < beyond;
  };
  std::vector<float> numbers(detail::index(width));
  for (std::int64_t h = 0; h < state.options.kv_heads; ++h)
    for (std::int64_t row = begin; row < end; ++row) {
      detail::read_numbers(rows, batch, h, row, std::span(numbers));
      const auto bad = std::ranges::find_if_not(numbers, fits);
      if (bad != numbers.end())
        refuse(name, " has ", *bad, " at ", Dims{batch, h, row, bad - numbers.begin()}, "; a number that ",
               name_of(state.options.format), " can hold is expected");
    }
}

// Rows that may lie in the caller's memory of the cache are copied to `copy`, because appending one row could
// change the next.
detail::CallTensor rows_to_append(const detail::CacheState& state, const char* name, const TensorView& view,
                                  std::int64_t batch, std::int64_t width, Tensor& copy) {
  if (!is_floating(view.dtype()) || view.dtype() == DType::f64)
    refuse(name, " has dtype ", view.dtype(), "; f32, f16 or bf16 is expected");
  const detail::CallTensor tensor = detail::tensor_of(name, view);
  if (tensor.size[0] != batch || tensor.size[1] != state.options.kv_heads || tensor.size[3] != width)
    refuse(name, " has shape ", view.shape(), "; [", batch, ", ", state.options.kv_heads, ", rows, ", width,
           "] is expected");
  if (!state.borrowed) return tensor;
  const detail::MemoryUse rows{
      name, tensor.rows, {tensor.size[0], tensor.size[1], tensor.size[2], tensor.size[3]}};
  const auto pools = state.pools();
  if (std::ranges::any_of(pools, [&](const auto& pool) { return detail::may_overlap(rows, pool); }))
    return detail::tensor_of(name, (copy = Tensor::copy_of(view)).view());
  return tensor;
}

void check_arrivals(const detail::CacheState& state, const detail::CallTensor& key,
                    const detail::CallTensor& value, std::span<const Arrival> arrivals) {
  for (const Arrival& arrival : arrivals) {
    const std::int64_t length = state.sequence_in_use(arrival.sequence).length;
    if (length + (arrival.end - arrival.begin) > INT32_MAX)
      refuse("sequence ", arrival.sequence, " would be ", length + (arrival.end - arrival.begin),
             " positions long; fewer than 2^31 are expected");
    check_numbers(state, "key", key.rows, arrival.batch, arrival.begin, arrival.end, state.options.head_dim);
    check_numbers(state, "value", value.rows, arrival.batch, arrival.begin, arrival.end,
                  state.stored_value_dim());
  }
}

void check_writable(const detail::CacheState& state) {
  if (state.key.writable == nullptr)
    refuse("the memory of this cache is read-only; mutable views are expected for append()");
}

// A sequence listed twice would take its rows twice, in an unspecified order.
void check_distinct(std::span<const std::int64_t> sequences) {
  std::vector<std::int64_t> sorted(sequences.begin(), sequences.end());
  std::ranges::sort(sorted);
  const auto twice = std::ranges::adjacent_find(sorted);
  if (twice != sorted.end()) refuse("sequences has ", *twice, " twice; distinct sequences are expected");
}

// Appends rows of `key` and `value`; `value` is null if values are channels of the keys. arrivals_of(rows)
// says which sequences take the rows.
template <class ArrivalsOf>
void append_to(detail::CacheState& state, const TensorView& key, const TensorView* value, std::int64_t batch,
               ArrivalsOf arrivals_of) {
  check_writable(state);
  if (state.options.values_in_keys == (value != nullptr))
    refuse(
        value != nullptr
            ? "value is given, but the values of this cache are channels of its keys; key alone is expected"
            : "value is missing; it may be absent only if the values of a cache are channels of its keys");
  Tensor key_copy, value_copy;
  const detail::CallTensor k = rows_to_append(state, "key", key, batch, state.options.head_dim, key_copy);
  const detail::CallTensor v =
      value == nullptr ? k
                       : rows_to_append(state, "value", *value, batch, state.options.value_dim, value_copy);
  if (v.size[2] != k.size[2])
    refuse("value has ", counted(v.size[2], "row"), "; ", k.size[2], " as in key are expected");
  const std::vector<Arrival> arrivals = arrivals_of(k.size[2]);
  check_arrivals(state, k, v, arrivals);
  detail::append_rows(state, k.rows, v.rows, arrivals);
}

void append_to_all(detail::CacheState& state, const TensorView& key, const TensorView* value) {
  const auto batch = std::ssize(state.sequences);
  append_to(state, key, value, batch, [&](std::int64_t rows) {
    std::vector<Arrival> arrivals;
    for (std::int64_t b = 0; b < batch; ++b) arrivals.push_back({b, b, 0, rows});
    return arrivals;
  });
}

void append_ragged(detail::CacheState& state, const TensorView& key, const TensorView* value,
                   const TensorView& offsets, std::span<const std::int64_t> which) {
  append_to(state, key, value, 1, [&](std::int64_t rows) {
    const auto count = static_cast<std::int64_t>(which.empty() ? state.sequences.size() : which.size());
    const std::vector<std::int64_t> ends = detail::integers_of("offsets", offsets);
    if (std::ssize(ends) != count + 1)
      refuse("offsets has ", counted(ends.size(), "number"), "; ", count + 1,
             ", one more than sequences, are expected");
    if (ends.front() != 0 || ends.back() != rows || !std::ranges::is_sorted(ends))
      refuse("offsets run from ", ends.front(), " to ", ends.back(), "; 0 to ", rows,
             ", in non-decreasing order, is expected");
    check_distinct(which);
    std::vector<Arrival> arrivals;
    for (std::int64_t b = 0; b < count; ++b)
      arrivals.push_back({which.empty() ? b : which[index(b)], 0, ends[index(b)], ends[index(b) + 1]});
    return arrivals;
  });
}

}  // namespace

std::string_view name_of(CacheFormat format) noexcept { return name_in(kFormats, format); }
std::string_view name_of(CacheLayout layout) noexcept { return name_in(kLayouts, layout); }
std::optional<CacheFormat> cache_format_named(std::string_view name) noexcept {
  return named<CacheFormat>(kFormats, name);
}
std::optional<CacheLayout> cache_layout_named(std::string_view name) noexcept {
  return named<CacheLayout>(kLayouts, name);
}

KvCache::KvCache(const KvCacheOptions& options)
    : state_(detail::with_memory_errors([&] { return detail::make_cache(options); })) {}
KvCache::KvCache(std::unique_ptr<detail::CacheState> state) noexcept : state_(std::move(state)) {}
KvCache::KvCache(KvCache&& other) noexcept = default;
KvCache& KvCache::operator=(KvCache&& other) noexcept = default;
KvCache::~KvCache() = default;

KvCache KvCache::copy() const {
  return KvCache(detail::with_memory_errors([&] { return detail::copied(*state_); }));
}

std::vector<std::pair<std::string, Tensor>> KvCache::tensors() const {
  return detail::with_memory_errors([&] { return detail::saved(*state_); });
}

KvCache KvCache::from_tensors(std::span<const std::pair<std::string, TensorView>> tensors) {
  return KvCache(detail::with_memory_errors([&] { return detail::restored(tensors); }));
}

void KvCache::append(const TensorView& key, const TensorView& value) {
  detail::with_memory_errors([&] { append_to_all(*state_, key, &value); });
}

void KvCache::append(const TensorView& key, const TensorView& value, const TensorView& offsets,
                     std::span<const std::int64_t> which) {
  detail::with_memory_errors([&] { append_ragged(*state_, key, &value, offsets, which); });
}

void KvCache::append_keys(const TensorView& key) {
  detail::with_memory_errors([&] { append_to_all(*state_, key, nullptr); });
}

void KvCache::append_keys(const TensorView& key, const TensorView& offsets,
                          std::span<const std::int64_t> which) {
  detail::with_memory_errors([&] { append_ragged(*state_, key, nullptr, offsets, which); });
}

void KvCache::truncate(std::int64_t sequence, std::int64_t length) {
  detail::with_memory_errors([&] { detail::truncate_rows(*state_, sequence, length); });
}

std::int64_t KvCache::fork(std::int64_t sequence) {
  return detail::with_memory_errors([&] { return detail::fork_rows(*state_, sequence); });
}

void KvCache::release(std::int64_t sequence) {
  detail::with_memory_errors([&] { detail::release_rows(*state_, sequence); });
}

void KvCache::clear(std::int64_t sequence) { truncate(sequence, 0); }

void KvCache::evict(std::int64_t sequence, std::span<const std::int64_t> positions) {
  detail::with_memory_errors([&] { detail::evict_rows(*state_, sequence, positions); });
}

void KvCache::reserve(std::int64_t rows) {
  detail::with_memory_errors([&] {
    if (rows < 0) refuse("rows is ", rows, "; 0 or more is expected");
    if (state_->borrowed) refuse("the memory of this cache is the caller's and cannot grow");
    if (layout() == CacheLayout::contiguous) return detail::grow_sequences(*state_, rows);
    if (layout() == CacheLayout::paged)
      return detail::grow_pages(*state_, rows / page_size() + (rows % page_size() != 0 ? 1 : 0));
    if (rows > state_->options.capacity)
      refuse("rows is ", rows, "; a ring has room for sinks + window = ", state_->options.capacity);
  });
}

void KvCache::add_received(const TensorView& received, double decay, std::span<const std::int64_t> which) {
  detail::with_memory_errors([&] {
    if (!(decay >= 0 && decay <= 1)) refuse("decay is ", decay, "; 0 to 1 is expected");
    if (!is_floating(received.dtype()))
      refuse("received has dtype ", received.dtype(), "; a floating dtype is expected");
    detail::check_memory("received", received);
    const std::int64_t count = which.empty() ? sequences() : std::ssize(which);
    std::int64_t most = 0;
    for (std::int64_t b = 0; b < count; ++b)
      most = std::max(most, state_->sequence_in_use(which.empty() ? b : which[index(b)]).rows());
    check_distinct(which);
    if (received.rank() != 3 || received.shape()[0] != count || received.shape()[1] % kv_heads() != 0 ||
        received.shape()[1] == 0 || received.shape()[2] != most)
      refuse("received has shape ", received.shape(), "; [", count, ", heads, ", most,
             "] with a multiple of ", kv_heads(), " heads, as a call returns it, is expected");
    const Tensor sums = Tensor::copy_of(received, DType::f32);
    for (std::int64_t b = 0; b < count; ++b)
      state_->sequences[index(which.empty() ? b : which[index(b)])].received.reserve(
          index(most * kv_heads()));
    const std::int64_t group = received.shape()[1] / kv_heads();
    for (std::int64_t b = 0; b < count; ++b) {
      detail::Sequence& s = state_->sequences[index(which.empty() ? b : which[index(b)])];
      s.received.resize(index(s.rows() * kv_heads()));
      for (std::int64_t row = 0; row < s.rows(); ++row)
        for (std::int64_t h = 0; h < kv_heads(); ++h) {
          float sum = static_cast<float>(decay) * s.received[index(row * kv_heads() + h)];
          for (std::int64_t q = h * group; q < (h + 1) * group; ++q) sum += sums.at<float>(b, q, row);
          s.received[index(row * kv_heads() + h)] = sum;
        }
    }
  });
}

std::int64_t KvCache::sequences() const noexcept { return std::ssize(state_->sequences); }
std::int64_t KvCache::kv_heads() const noexcept { return state_->options.kv_heads; }
std::int64_t KvCache::head_dim() const noexcept { return state_->options.head_dim; }
std::int64_t KvCache::value_dim() const noexcept { return state_->options.value_dim; }
CacheFormat KvCache::format() const noexcept { return state_->options.format; }
CacheLayout KvCache::layout() const noexcept { return state_->options.layout; }
std::int64_t KvCache::page_size() const noexcept { return state_->options.page_size; }
bool KvCache::rotates() const noexcept { return state_->options.rotate; }
bool KvCache::values_in_keys() const noexcept { return state_->options.values_in_keys; }
std::int64_t KvCache::length(std::int64_t sequence) const {
  return std::as_const(*state_).sequence(sequence).length;
}
std::int64_t KvCache::rows(std::int64_t sequence) const {
  return std::as_const(*state_).sequence(sequence).rows();
}

std::vector<std::int64_t> KvCache::positions(std::int64_t sequence) const {
  const detail::Sequence& s = std::as_const(*state_).sequence(sequence);
  if (s.has_gaps) return s.positions;
  std::vector<std::int64_t> positions(s.slots.size());
  std::iota(positions.begin(), positions.end(), std::int64_t{0});
  return positions;
}

namespace {

Tensor rows_of(const detail::CacheState& state, std::int64_t sequence, bool are_keys, std::int64_t width) {
  const detail::Sequence& s = state.sequence(sequence);
  Tensor rows({state.options.kv_heads, s.rows(), width});
  for (std::int64_t h = 0; h < state.options.kv_heads; ++h)
    for (std::int64_t row = 0; row < s.rows(); ++row)
      state.read_row(s, are_keys, h, row,
                     rows.values<float>().subspan(index((h * s.rows() + row) * width), index(width)));
  return rows;
}

}  // namespace

Tensor KvCache::keys(std::int64_t sequence) const { return rows_of(*state_, sequence, true, head_dim()); }
Tensor KvCache::values(std::int64_t sequence) const { return rows_of(*state_, sequence, false, value_dim()); }

Tensor KvCache::received(std::int64_t sequence) const {
  const detail::Sequence& s = std::as_const(*state_).sequence(sequence);
  Tensor sums({kv_heads(), s.rows()});
  for (std::int64_t row = 0; !s.received.empty() && row < s.rows(); ++row)
    for (std::int64_t h = 0; h < kv_heads(); ++h)
      sums.at<float>(h, row) = s.received[index(row * kv_heads() + h)];
  return sums;
}

KvCacheStats KvCache::stats() const {
  const detail::CacheState& state = *state_;
  KvCacheStats stats;
  stats.pages = std::ssize(state.page_holders);
  stats.capacity = stats.pages * state.options.page_size;
  for (const std::int32_t holders : state.page_holders) {
    stats.free_pages += holders == 0;
    stats.shared_pages += holders > 1;
  }
  const auto bytes = [](const auto&... memory) {
    return static_cast<std::int64_t>(((memory.capacity() * sizeof memory[0]) + ...));
  };
  const auto tensor = [](const Tensor& memory) {
    return memory.count() * static_cast<std::int64_t>(size_of(memory.dtype()));
  };
  stats.bytes = tensor(state.key.owned) + tensor(state.value.owned) +
                bytes(state.key_scale, state.key_offset, state.value_scale, state.value_offset);
  stats.table_bytes = static_cast<std::int64_t>(sizeof state) + bytes(state.page_holders, state.free_pages,
                                                                      state.scale_holders, state.free_scales,
                                                                      state.sequences, state.released);
  for (const detail::Sequence& s : state.sequences) {
    stats.rows += s.rows();
    stats.tail_bytes += bytes(s.key_tail, s.value_tail);
    stats.table_bytes += bytes(s.slots, s.free_slots, s.positions, s.pages, s.groups, s.received);
  }
  return stats;
}

}  // namespace heed
