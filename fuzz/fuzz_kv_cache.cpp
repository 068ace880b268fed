// Builds arbitrary caches, from options or block tables, then runs appends, rollbacks, forks, evictions and
// calls. A wrong operation throws Error and changes nothing. After every operation the cache holds the same
// rows as a plain vector. Where all numbers are ordinary, attention() over the cache agrees with the
// definitions.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "../tests/fused_rounding.hpp"
#include "../tests/naive_attention.hpp"
#include "choices.hpp"
#include "fuzz_support.hpp"
#include "heed/attention/kv_cache.hpp"
#include "heed/attention/results.hpp"
#include "heed/error.hpp"

namespace {

using heed::CacheFormat;
using heed::CacheLayout;
using heed::Dims;
using heed::DType;
using heed::KvCache;
using heed::KvCacheOptions;
using heed::Tensor;
using heed::TensorView;
using heed::fuzz::Choices;
using heed::fuzz::require;

constexpr std::int64_t kMaxSequences = 6, kMaxOperations = 40;

std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

// Runs an operation that may be wrong. Returns false where it threw Error; any other exception is a failure.
template <class Operation>
bool accepted(Operation operation) {
  try {
    operation();
    return true;
  } catch (const heed::Error& error) {
    require(error.code() == heed::ErrorCode::invalid_argument ||
            error.code() == heed::ErrorCode::out_of_memory);
    return false;
  }
}

struct PlainRow {
  std::int64_t position = 0;
  std::vector<float> key, value, received;  // [Hkv * D], [Hkv * Dv], [Hkv]
};

struct PlainSequence {
  std::int64_t length = 0;
  std::vector<PlainRow> rows;
  int rollbacks = 0;  // each may quantise rows once more
  bool is_released = false;
};

// ---- Caches -----------------------------------------------------------------------------------------------

// Numbers that no option should have, and numbers at the edges of the valid range.
std::int64_t strange(Choices& bytes) {
  return bytes.one_of<std::int64_t>({-1, 0, 1, 7, 257, std::int64_t{1} << 31, std::int64_t{1} << 40,
                                     std::numeric_limits<std::int64_t>::max(),
                                     std::numeric_limits<std::int64_t>::min()});
}

KvCacheOptions options_from(Choices& bytes) {
  KvCacheOptions o;
  o.sequences = bytes.integer<std::int64_t>(0, 3);
  o.kv_heads = bytes.integer<std::int64_t>(1, 3);
  o.head_dim = bytes.integer<std::int64_t>(1, 8);
  o.value_dim = bytes.integer<std::int64_t>(0, 8);
  o.format = static_cast<CacheFormat>(bytes.integer(0, 5));
  o.layout = static_cast<CacheLayout>(bytes.integer(0, 2));
  o.capacity = o.layout == CacheLayout::ring ? 0 : bytes.integer<std::int64_t>(0, 100);
  o.page_size = bytes.integer<std::int64_t>(1, 9);
  o.order = bytes.boolean() ? heed::PageOrder::nhd : heed::PageOrder::hnd;
  if (o.layout == CacheLayout::ring) {
    o.sinks = bytes.integer<std::int64_t>(0, 3);
    o.window = bytes.integer<std::int64_t>(1, 40);
  }
  o.group = bytes.one_of<std::int64_t>({8, 16, 32, 12});
  o.rotate = bytes.boolean() && o.format >= CacheFormat::int8;
  if (bytes.integer(0, 7) == 0) {
    std::int64_t KvCacheOptions::*const members[] = {
        &KvCacheOptions::sequences, &KvCacheOptions::kv_heads, &KvCacheOptions::head_dim,
        &KvCacheOptions::value_dim, &KvCacheOptions::capacity, &KvCacheOptions::page_size,
        &KvCacheOptions::sinks,     &KvCacheOptions::window,   &KvCacheOptions::group};
    o.*members[bytes.integer<std::size_t>(0, std::size(members) - 1)] = strange(bytes);
  }
  return o;
}

// A pool that the caller owns, in memory of exactly its extent, and a block table over it.
struct Pool {
  std::vector<std::uint8_t> key_memory, value_memory;
  heed::MutableTensorView key, value;
  heed::PageOrder order = heed::PageOrder::nhd;
  bool writable = false;

  // The elements of page p and row r, for all heads, converted by copy_of.
  static std::vector<float> row(const TensorView& pool, heed::PageOrder order, std::int64_t page,
                                std::int64_t row) {
    const TensorView hnd = order == heed::PageOrder::hnd ? pool : pool.transpose(1, 2);
    const Tensor one = Tensor::copy_of(hnd.narrow(0, page, 1).narrow(2, row, 1), DType::f32);
    return {one.values<float>().begin(), one.values<float>().end()};
  }
};

heed::MutableTensorView pool_memory(Choices& bytes, std::vector<std::uint8_t>& memory, const Dims& shape,
                                    DType dtype) {
  Dims strides = heed::contiguous_strides(shape);
  if (bytes.integer(0, 3) == 0) strides[0] += strides[1] * bytes.integer<std::int64_t>(0, 2);
  if (bytes.integer(0, 15) == 0) strides[bytes.integer(0, 3)] = bytes.integer<std::int64_t>(0, 40);
  std::int64_t last = 0;
  for (int axis = 0; axis < 4; ++axis) last += (shape[axis] - 1) * strides[axis];
  const std::int64_t count = heed::element_count(shape) == 0 ? 0 : last + 1;
  // Multiples of 1/8 from -16 to 15.875, which every dtype holds exactly.
  Tensor numbers({count});
  std::uint32_t state = bytes.integer<std::uint8_t>();
  for (float& x : numbers.values<float>()) {
    state = state * 1664525 + 1013904223;
    x = static_cast<float>(static_cast<std::int32_t>(state >> 24) - 128) / 8;
  }
  const Tensor converted = Tensor::copy_of(numbers, dtype);
  const auto* first = static_cast<const std::uint8_t*>(converted.view().data());
  memory.assign(first, first + index(count) * heed::size_of(dtype));
  return {memory.data(), dtype, shape, strides};
}

// Integers as a tensor of i64 or i32; rarely one of them is replaced by a strange one.
Tensor table_of(Choices& bytes, std::vector<std::int64_t> numbers, const Dims& shape) {
  if (!numbers.empty() && bytes.integer(0, 7) == 0)
    numbers[bytes.integer<std::size_t>(0, numbers.size() - 1)] = strange(bytes);
  return Tensor::copy_of(Tensor::from(std::span<const std::int64_t>(numbers), shape),
                         bytes.boolean() ? DType::i64 : DType::i32);
}

std::vector<std::int64_t> numbers_from(Choices& bytes, std::int64_t count, std::int64_t least,
                                       std::int64_t most) {
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < count; ++i) numbers.push_back(bytes.integer(least, std::max(least, most)));
  return numbers;
}

// ---- A cache and the rows that it must hold ---------------------------------------------------------------

class Life {
 public:
  explicit Life(const std::uint8_t* data, std::size_t size) : bytes_(data, size) {}

  void live() {
    const int kind = bytes_.integer(0, 4);
    if (!(kind == 0 ? borrow_table() : kind == 1 ? borrow_indices() : kind == 2 ? borrow_tensors() : make()))
      return;
    check();
    for (std::int64_t n = 0; n < kMaxOperations && bytes_.remaining_bytes() > 0; ++n) {
      step();
      check();
    }
  }

 private:
  // -- Construction

  bool make() {
    const KvCacheOptions o = options_from(bytes_);
    if (!accepted([&] { cache_.emplace(o); })) return false;
    require(o.sequences >= 0 && o.kv_heads > 0 && o.head_dim > 0);
    layout_ = o.layout;
    sinks_ = o.sinks;
    window_ = o.window;
    plain_.resize(index(o.sequences));
    return true;
  }

  // Makes pools of pages [pages, Hkv, rows, D], or with rows before heads.
  void make_pools(std::int64_t pages, std::int64_t page_size) {
    const auto heads = bytes_.integer<std::int64_t>(1, 2);
    pool_.order = bytes_.boolean() ? heed::PageOrder::nhd : heed::PageOrder::hnd;
    if (borrows_tensors_) pool_.order = heed::PageOrder::hnd;
    const bool hnd = pool_.order == heed::PageOrder::hnd;
    const auto shape = [&](std::int64_t width) {
      return Dims{pages, hnd ? heads : page_size, hnd ? page_size : heads, width};
    };
    const DType dtype = bytes_.one_of({DType::f32, DType::bf16, DType::f16});
    pool_.key = pool_memory(bytes_, pool_.key_memory, shape(bytes_.integer<std::int64_t>(1, 5)), dtype);
    pool_.value = pool_memory(bytes_, pool_.value_memory, shape(bytes_.integer<std::int64_t>(1, 5)), dtype);
    pool_.writable = bytes_.boolean();
    is_borrowed_ = true;
  }

  // Adds a sequence whose rows lie in these pages of the pool.
  void add_sequence(const std::vector<std::int64_t>& pages, std::int64_t length, std::int64_t page_size) {
    PlainSequence s;
    s.length = length;
    for (std::int64_t r = 0; r < length; ++r) {
      PlainRow row;
      row.position = r;
      row.key = Pool::row(pool_.key, pool_.order, pages[index(r / page_size)], r % page_size);
      row.value = Pool::row(pool_.value, pool_.order, pages[index(r / page_size)], r % page_size);
      row.received.resize(index(cache_->kv_heads()));
      s.rows.push_back(std::move(row));
    }
    plain_.push_back(std::move(s));
  }

  bool borrow_table() {
    const auto pages = bytes_.integer<std::int64_t>(0, 12), size = bytes_.integer<std::int64_t>(1, 5);
    const auto batch = bytes_.integer<std::int64_t>(0, 3), most = bytes_.integer<std::int64_t>(0, 5);
    make_pools(pages, size);
    const Tensor table = table_of(bytes_, numbers_from(bytes_, batch * most, -1, pages - 1), {batch, most});
    const Tensor lengths = table_of(bytes_, numbers_from(bytes_, batch, 0, most * size), {batch});
    const auto over = [&](const auto& key, const auto& value) {
      cache_.emplace(KvCache::over_block_table(key, value, table, lengths, pool_.order));
    };
    if (!accepted([&] { borrow(over); })) return false;
    layout_ = CacheLayout::paged;
    const Tensor numbers = Tensor::copy_of(table, DType::i64), counts = Tensor::copy_of(lengths, DType::i64);
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::int64_t length = counts.at<std::int64_t>(b);
      std::vector<std::int64_t> of_one;
      for (std::int64_t p = 0; p < most; ++p) of_one.push_back(numbers.at<std::int64_t>(b, p));
      require_pages(of_one, (length + size - 1) / size, pages);
      add_sequence(of_one, length, size);
    }
    return true;
  }

  bool borrow_indices() {
    const auto pages = bytes_.integer<std::int64_t>(0, 12), size = bytes_.integer<std::int64_t>(1, 5);
    const auto batch = bytes_.integer<std::int64_t>(0, 3);
    make_pools(pages, size);
    std::vector<std::int64_t> begin{0};
    for (std::int64_t b = 0; b < batch; ++b)
      begin.push_back(begin.back() + bytes_.integer<std::int64_t>(0, 4));
    const std::int64_t count = begin.back() + bytes_.integer<std::int64_t>(0, 1);
    const Tensor indptr = table_of(bytes_, begin, {batch + 1});
    const Tensor indices = table_of(bytes_, numbers_from(bytes_, count, 0, pages - 1), {count});
    std::vector<std::int64_t> last;
    for (std::int64_t b = 0; b < batch; ++b)
      last.push_back(begin[index(b)] == begin[index(b + 1)] ? 0 : bytes_.integer<std::int64_t>(1, size));
    const Tensor last_rows = table_of(bytes_, last, {batch});
    const auto over = [&](const auto& key, const auto& value) {
      cache_.emplace(KvCache::over_page_indices(key, value, indptr, indices, last_rows, pool_.order));
    };
    if (!accepted([&] { borrow(over); })) return false;
    layout_ = CacheLayout::paged;
    const Tensor begins = Tensor::copy_of(indptr, DType::i64), numbers = Tensor::copy_of(indices, DType::i64);
    const Tensor lasts = Tensor::copy_of(last_rows, DType::i64);
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::int64_t first = begins.at<std::int64_t>(b), end = begins.at<std::int64_t>(b + 1);
      require(0 <= first && first <= end && end <= count);
      std::vector<std::int64_t> of_one;
      for (std::int64_t p = first; p < end; ++p) of_one.push_back(numbers.at<std::int64_t>(p));
      require_pages(of_one, end - first, pages);
      const std::int64_t rows = lasts.at<std::int64_t>(b);
      require(first == end ? rows == 0 : rows >= 1 && rows <= size);
      add_sequence(of_one, first == end ? 0 : (end - first - 1) * size + rows, size);
    }
    return true;
  }

  bool borrow_tensors() {
    borrows_tensors_ = true;
    const auto batch = bytes_.integer<std::int64_t>(0, 3), capacity = bytes_.integer<std::int64_t>(0, 20);
    make_pools(batch, capacity);
    const Tensor lengths = table_of(bytes_, numbers_from(bytes_, batch, 0, capacity), {batch});
    const auto over = [&](const auto& key, const auto& value) {
      cache_.emplace(KvCache::over(key, value, lengths));
    };
    if (!accepted([&] { borrow(over); })) return false;
    layout_ = CacheLayout::contiguous;
    const Tensor counts = Tensor::copy_of(lengths, DType::i64);
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::int64_t length = counts.at<std::int64_t>(b);
      require(length >= 0 && length <= capacity);
      add_sequence({b}, length, std::max<std::int64_t>(1, capacity));
    }
    return true;
  }

  template <class Over>
  void borrow(Over over) {
    if (pool_.writable) return over(pool_.key, pool_.value);
    over(TensorView(pool_.key), TensorView(pool_.value));
  }

  // Requires the first `used` pages to be different pages of the pool; other tables must have been refused.
  static void require_pages(const std::vector<std::int64_t>& pages, std::int64_t used, std::int64_t count) {
    require(used >= 0 && used <= static_cast<std::int64_t>(pages.size()));
    for (std::int64_t p = 0; p < used; ++p) {
      require(pages[index(p)] >= 0 && pages[index(p)] < count);
      require(std::count(pages.begin(), pages.begin() + used, pages[index(p)]) == 1);
    }
  }

  // -- Operations

  void step() {
    switch (bytes_.integer(0, 9)) {
      case 0:
        return truncate();
      case 1:
        return fork();
      case 2:
        return evict();
      case 3:
        return receive();
      case 4:
        return reserve();
      case 5:
      case 6:
        return attend();
      default:
        return append();
    }
  }

  bool rarely() { return bytes_.integer(0, 15) == 0; }
  bool is_sequence(std::int64_t number) const {
    return number >= 0 && number < static_cast<std::int64_t>(plain_.size());
  }
  bool is_in_use(std::int64_t number) const {
    return is_sequence(number) && !plain_[index(number)].is_released;
  }
  // The number of a sequence, or rarely one out of range.
  std::int64_t any_sequence() {
    const auto last = static_cast<std::int64_t>(plain_.size()) - 1;
    return rarely() ? strange(bytes_) : bytes_.integer<std::int64_t>(0, std::max<std::int64_t>(0, last));
  }
  std::vector<std::int64_t> some_sequences() {
    std::vector<std::int64_t> numbers;
    for (std::int64_t s = 0; s < static_cast<std::int64_t>(plain_.size()); ++s)
      if (bytes_.boolean()) numbers.push_back(s);
    if (rarely()) numbers.push_back(any_sequence());
    return numbers;
  }
  bool has_codes() const { return cache_->format() >= CacheFormat::int8; }
  DType dtype_of_rows() const {
    switch (cache_->format()) {
      case CacheFormat::bf16:
        return DType::bf16;
      case CacheFormat::f16:
        return DType::f16;
      default:
        return DType::f32;
    }
  }

  // Multiples of 1/8 from -16 to 15.875, and rarely a number that few formats hold.
  Tensor numbers_of(const Dims& shape, DType dtype) {
    Tensor numbers(shape);
    std::uint32_t state = bytes_.integer<std::uint8_t>();
    for (float& x : numbers.values<float>()) {
      state = state * 1664525 + 1013904223;
      x = static_cast<float>(static_cast<std::int32_t>(state >> 24) - 128) / 8;
    }
    if (rarely() && numbers.count() > 0)
      numbers.values<float>()[state % index(numbers.count())] =
          bytes_.one_of({NAN, INFINITY, -INFINITY, 70000.0f, 65519.0f, 1e38f, 1e-40f, -0.0f});
    return Tensor::copy_of(numbers, dtype);
  }

  void append() {
    const std::vector<std::int64_t> which = some_sequences();
    const std::int64_t count = static_cast<std::int64_t>(which.empty() ? plain_.size() : which.size());
    std::vector<std::int64_t> ends{0};
    for (std::int64_t b = 0; b < count; ++b)
      ends.push_back(ends.back() + bytes_.integer<std::int64_t>(0, 20));
    const std::int64_t rows = rarely() ? bytes_.integer<std::int64_t>(0, 9) : ends.back();
    const Tensor offsets = table_of(bytes_, ends, {count + 1});
    const DType dtype = bytes_.one_of({DType::f32, DType::f32, DType::bf16, DType::f16});
    const Dims shape{1, cache_->kv_heads() + (rarely() ? 1 : 0), rows, cache_->head_dim()};
    const Tensor key = numbers_of(shape, dtype);
    const Tensor value = numbers_of({1, cache_->kv_heads(), rows + (rarely() ? 1 : 0), cache_->value_dim()},
                                    rarely() ? DType::f64 : DType::f32);
    if (!accepted([&] { cache_->append(key, value, offsets, which); })) return;
    const Tensor begins = Tensor::copy_of(offsets, DType::i64);
    require(!is_borrowed_ || pool_.writable);
    require(key.size(1) == cache_->kv_heads() && value.size(2) == rows && value.dtype() == DType::f32);
    require(begins.at<std::int64_t>(0) == 0 && begins.at<std::int64_t>(count) == rows);
    for (std::int64_t b = 0; b < count; ++b) {
      const std::int64_t number = which.empty() ? b : which[index(b)];
      require(is_in_use(number));
      require(which.empty() || std::count(which.begin(), which.end(), number) == 1);
      const std::int64_t begin = begins.at<std::int64_t>(b), end = begins.at<std::int64_t>(b + 1);
      require(begin <= end);
      for (std::int64_t row = begin; row < end; ++row) add_row(plain_[index(number)], key, value, row);
    }
  }

  std::vector<float> row_of(const Tensor& rows, std::int64_t row) {
    const Tensor kept = Tensor::copy_of(rows.view().narrow(2, row, 1), dtype_of_rows());
    const Tensor wide = Tensor::copy_of(kept, DType::f32),
                 came = Tensor::copy_of(rows.view().narrow(2, row, 1), DType::f32);
    for (const float x : came.values<float>()) {
      require(!has_codes() || std::isfinite(x));
      // The cache refuses numbers that would overflow f16.
      require(cache_->format() != CacheFormat::f16 || !std::isfinite(x) || std::abs(x) < 65520);
      largest_ = std::max(largest_, std::abs(static_cast<double>(x)));
    }
    return {wide.values<float>().begin(), wide.values<float>().end()};
  }

  void add_row(PlainSequence& s, const Tensor& key, const Tensor& value, std::int64_t row) {
    s.rows.push_back(
        {s.length++, row_of(key, row), row_of(value, row), std::vector<float>(index(cache_->kv_heads()))});
    if (layout_ != CacheLayout::ring) return;
    if (static_cast<std::int64_t>(s.rows.size()) <= sinks_ + window_) return;
    // The oldest row that is not a sink is evicted.
    const auto oldest = std::find_if(s.rows.begin(), s.rows.end(),
                                     [&](const PlainRow& one) { return one.position >= sinks_; });
    s.rows.erase(oldest);
  }

  void truncate() {
    const std::int64_t number = any_sequence();
    const std::int64_t length = is_sequence(number) ? plain_[index(number)].length : 0;
    const std::int64_t left = rarely()           ? strange(bytes_)
                              : bytes_.boolean() ? length - bytes_.integer<std::int64_t>(0, 9)
                                                 : bytes_.integer<std::int64_t>(0, length);
    const bool clears = rarely();
    if (clears && bytes_.boolean()) return release(number);
    if (!accepted([&] { clears ? cache_->clear(number) : cache_->truncate(number, left); })) return;
    require(is_in_use(number));
    PlainSequence& s = plain_[index(number)];
    if (clears) {
      s = {};
      return;
    }
    require(left >= 0 && left <= s.length);
    std::erase_if(s.rows, [&](const PlainRow& row) { return row.position >= left; });
    s.length = left;
    ++s.rollbacks;
  }

  void release(std::int64_t number) {
    if (!accepted([&] { cache_->release(number); })) return;
    require(is_in_use(number));
    plain_[index(number)] = {};
    plain_[index(number)].is_released = true;
    released_.push_back(number);
  }

  void fork() {
    if (static_cast<std::int64_t>(plain_.size()) >= kMaxSequences && released_.empty()) return;
    const std::int64_t number = any_sequence();
    std::int64_t made = -1;
    if (!accepted([&] { made = cache_->fork(number); })) return;
    require(is_in_use(number));
    if (released_.empty()) {
      require(made == static_cast<std::int64_t>(plain_.size()));
      plain_.emplace_back();
    } else {
      require(made == released_.back());
      released_.pop_back();
    }
    plain_[index(made)] = PlainSequence(plain_[index(number)]);
  }

  void evict() {
    const std::int64_t number = any_sequence();
    std::vector<std::int64_t> gone;
    if (is_sequence(number))
      for (const PlainRow& row : plain_[index(number)].rows)
        if (bytes_.integer(0, 3) == 0) gone.push_back(row.position);
    if (rarely()) gone.push_back(bytes_.boolean() ? strange(bytes_) : bytes_.integer<std::int64_t>(0, 60));
    if (!accepted([&] { cache_->evict(number, gone); })) return;
    require(is_in_use(number) && std::is_sorted(gone.begin(), gone.end()));
    require(std::adjacent_find(gone.begin(), gone.end()) == gone.end());
    std::vector<PlainRow>& rows = plain_[index(number)].rows;
    const std::size_t before = rows.size();
    std::erase_if(rows, [&](const PlainRow& row) {
      return std::binary_search(gone.begin(), gone.end(), row.position);
    });
    require(rows.size() + gone.size() == before);
  }

  void receive() {
    const std::vector<std::int64_t> which = some_sequences();
    const std::int64_t count = static_cast<std::int64_t>(which.empty() ? plain_.size() : which.size());
    std::int64_t most = 0;
    for (std::int64_t b = 0; b < count; ++b) {
      const std::int64_t number = which.empty() ? b : which[index(b)];
      if (is_sequence(number))
        most = std::max(most, static_cast<std::int64_t>(plain_[index(number)].rows.size()));
    }
    const std::int64_t heads = cache_->kv_heads() * bytes_.integer<std::int64_t>(0, 2) + (rarely() ? 1 : 0);
    const Tensor received = numbers_of({count, heads, most + (rarely() ? 1 : 0)}, DType::f32);
    const double decay =
        rarely() ? bytes_.one_of<double>({-0.5, 1.5, NAN}) : bytes_.one_of<double>({0, 0.5, 1});
    if (!accepted([&] { cache_->add_received(received, decay, which); })) return;
    require(decay >= 0 && decay <= 1 && heads > 0 && heads % cache_->kv_heads() == 0);
    require(received.size(2) == most);
    for (std::int64_t b = 0; b < count; ++b) {
      const std::int64_t number = which.empty() ? b : which[index(b)];
      require(is_in_use(number));
      add_sums(plain_[index(number)], received, b, static_cast<float>(decay));
    }
  }

  void add_sums(PlainSequence& s, const Tensor& received, std::int64_t b, float decay) const {
    const std::int64_t group = received.size(1) / cache_->kv_heads();
    for (std::size_t r = 0; r < s.rows.size(); ++r)
      for (std::int64_t h = 0; h < received.size(1); ++h) {
        float& sum = s.rows[r].received[index(h / group)];
        if (h % group == 0) sum *= decay;
        sum += received.at<float>(b, h, static_cast<std::int64_t>(r));
      }
  }

  void reserve() {
    const std::int64_t rows = rarely() ? strange(bytes_) : bytes_.integer<std::int64_t>(0, 400);
    const std::int64_t before = cache_->stats().capacity;
    if (!accepted([&] { cache_->reserve(rows); })) return;
    require(rows >= 0 && !is_borrowed_ && cache_->stats().capacity >= before);
  }

  // -- Attention

  void attend() {
    heed::CacheQuery which;
    const std::vector<std::int64_t> sequences =
        bytes_.boolean() ? some_sequences() : std::vector<std::int64_t>{};
    which.sequences = sequences;
    const std::int64_t count =
        static_cast<std::int64_t>(sequences.empty() ? plain_.size() : sequences.size()) + (rarely() ? 1 : 0);
    const auto rows = bytes_.integer<std::int64_t>(0, 4);
    const std::int64_t heads = cache_->kv_heads() * bytes_.integer<std::int64_t>(0, 2) + (rarely() ? 1 : 0);
    const DType dtype =
        rarely() ? DType::f64 : bytes_.one_of({DType::f32, DType::f32, DType::bf16, DType::f16});
    const bool packed = bytes_.integer(0, 7) == 0;
    const std::int64_t width = cache_->head_dim() + (rarely() ? 1 : 0);
    const Tensor query = Tensor::copy_of(
        scaled(numbers_of(packed ? Dims{1, heads, count * rows, width} : Dims{count, heads, rows, width},
                          DType::f32)),
        dtype);
    heed::AttentionOptions options = options_of_call();
    std::vector<std::int64_t> ends{0};
    for (std::int64_t b = 0; b < count; ++b) ends.push_back(ends.back() + rows);
    const Tensor segments = table_of(bytes_, ends, {count + 1});
    if (packed) options.query_segments = segments.view();
    const Tensor parents = table_of(bytes_, numbers_from(bytes_, rows, -1, rows - 1), {rows});
    const Tensor mask = Tensor::copy_of(
        table_of(bytes_, numbers_from(bytes_, rows * rows, 0, 1), {rows, rows}), DType::boolean);
    const bool has_tree = bytes_.integer(0, 7) == 0;
    if (has_tree && bytes_.boolean()) which.tree_parents = parents.view();
    if (has_tree && (rarely() || !which.tree_parents)) which.tree_mask = mask.view();
    std::optional<heed::AttentionResult> result;
    if (!accepted([&] { result = heed::attention(query, *cache_, options, which); })) return;
    check_result(query, *result);
    if (packed || has_tree) return;
    for (std::int64_t b = 0; b < count; ++b)
      check_numbers(query, *result, options, sequences.empty() ? b : sequences[index(b)], b);
  }

  // Divides by 8, so that some weights are neither 0 nor 1.
  static Tensor scaled(Tensor numbers) {
    for (float& x : numbers.values<float>()) x /= 8;
    return numbers;
  }

  heed::AttentionOptions options_of_call() {
    heed::AttentionOptions options;
    options.causal = bytes_.boolean();
    if (rarely()) options.query_offset = bytes_.integer<std::int64_t>(-5, 60);
    if (rarely())
      options.window = {bytes_.integer<std::int64_t>(-2, 20), bytes_.integer<std::int64_t>(-2, 20)};
    if (rarely()) options.softcap = 2;
    options.need = static_cast<heed::Need>(bytes_.integer<std::uint32_t>() & 255);
    if (rarely()) options.top_k = bytes_.integer<std::int64_t>(-1, 20);
    if (rarely()) options.received_last = bytes_.integer<std::int64_t>(-1, 5);
    if (rarely()) options.map = {bytes_.integer<std::int64_t>(0, 4), bytes_.integer<std::int64_t>(0, 4)};
    options.kernel = bytes_.one_of({heed::Kernel::automatic, heed::Kernel::reference, heed::Kernel::fused});
    options.threads = bytes_.integer(0, 3);
    return options;
  }

  void check_result(const Tensor& query, const heed::AttentionResult& result) const {
    Dims expected = query.shape();
    expected[3] = cache_->value_dim();
    require(result.output.shape() == expected);
  }

  // Compares the results of batch entry b, which attends sequence `number`, with the definitions. These use
  // the rows as the cache stores them.
  void check_numbers(const Tensor& query, const heed::AttentionResult& result,
                     const heed::AttentionOptions& asked, std::int64_t number, std::int64_t b) const {
    require(is_in_use(number));
    if (query.size(1) == 0) return;
    const PlainSequence& s = plain_[index(number)];
    const auto finite = [](const Tensor& numbers) {
      return std::all_of(numbers.values<float>().begin(), numbers.values<float>().end(),
                         [](float x) { return std::abs(x) < 0x1p10f && (x == 0 || std::abs(x) > 0x1p-20f); });
    };
    const Tensor keys = cache_->keys(number), values = cache_->values(number);
    Tensor rows = Tensor::copy_of(query.view().narrow(0, b, 1));
    if (cache_->rotates()) rows = heed::hadamard(rows);
    if (!finite(keys) || !finite(values) || !finite(Tensor::copy_of(rows, DType::f32))) return;
    heed::AttentionOptions options = asked;
    if (!options.query_offset) options.query_offset = s.length - query.size(2);
    options.map = {};  // its columns are those of the longest sequence
    std::vector<std::int64_t> positions;
    for (const PlainRow& row : s.rows) positions.push_back(row.position);
    const DType dtype = !has_codes() && dtype_of_rows() == query.dtype() ? query.dtype() : DType::f32;
    const auto batched = [&](const Tensor& one) {
      return Tensor::copy_of(one.view(), dtype).reshaped({1, one.size(0), one.size(1), one.size(2)});
    };
    const Tensor key = batched(keys), value = batched(values);
    const heed::test::Naive naive = heed::test::naive_attention(rows, key, value, options, positions);
    const heed::AttentionResult one = result_of(result, b, positions);
    heed::test::RowTally tally;  // a single call, so no share can be capped
    const std::string failure = heed::test::compare_results(
        one, options, naive, heed::test::fused_rounding(dtype, options, result.isa), tally);
    if (failure.empty()) return;
    std::fprintf(stderr, "%s\n", failure.c_str());
    std::abort();
  }

  // The results of batch entry b alone, with top keys as row numbers instead of positions.
  static heed::AttentionResult result_of(const heed::AttentionResult& all, std::int64_t b,
                                         const std::vector<std::int64_t>& positions) {
    heed::AttentionResult one;
    one.kernel = all.kernel;
    one.isa = all.isa;
    for (std::size_t i = 0; i < heed::kResultCount; ++i) {
      const Tensor& from = heed::result<Tensor>(all, i);
      if (from.rank() != 4 && from.rank() != 3) continue;
      TensorView view = from.view().narrow(0, b, 1);
      const heed::ResultShape shape = heed::result_entry(i).shape;
      if (shape == heed::ResultShape::pair || shape == heed::ResultShape::key ||
          shape == heed::ResultShape::key_last)
        view = view.narrow(view.rank() - 1, 0, static_cast<std::int64_t>(positions.size()));
      heed::result<Tensor>(one, i) = Tensor::copy_of(view);
    }
    if (one.top_k_index.dtype() != DType::i64) return one;
    for (std::int64_t& key : one.top_k_index.values<std::int64_t>()) {
      if (key < 0) continue;
      require(std::binary_search(positions.begin(), positions.end(), key));
      key = std::lower_bound(positions.begin(), positions.end(), key) - positions.begin();
    }
    return one;
  }

  // -- Contents of the cache

  void check() const {
    require(cache_->sequences() == static_cast<std::int64_t>(plain_.size()));
    std::int64_t rows = 0;
    for (std::int64_t s = 0; s < cache_->sequences(); ++s) {
      check_sequence(s, plain_[index(s)]);
      rows += cache_->rows(s);
    }
    const heed::KvCacheStats stats = cache_->stats();
    require(stats.rows == rows && stats.free_pages >= 0 && stats.free_pages <= stats.pages);
    if (layout_ != CacheLayout::paged || is_borrowed_) return;
    // A page is held while it holds a row, or has room for the next one.
    require(stats.pages - stats.free_pages <= rows);
  }

  void check_sequence(std::int64_t number, const PlainSequence& s) const {
    require(cache_->length(number) == s.length);
    const std::vector<std::int64_t> positions = cache_->positions(number);
    const Tensor keys = cache_->keys(number), values = cache_->values(number);
    const Tensor received = cache_->received(number);
    require(positions.size() == s.rows.size() && cache_->rows(number) == keys.size(1));
    for (std::size_t r = 0; r < s.rows.size(); ++r) {
      const auto row = static_cast<std::int64_t>(r);
      require(positions[r] == s.rows[r].position);
      for (std::int64_t h = 0; h < cache_->kv_heads(); ++h)
        require(same(received.at<float>(h, row), s.rows[r].received[index(h)]));
      check_row(keys, row, s.rows[r].key, s.rollbacks, cache_->rotates());
      check_row(values, row, s.rows[r].value, s.rollbacks, false);
    }
  }

  static bool same(float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
           (std::isnan(a) && std::isnan(b));
  }

  void check_row(const Tensor& kept, std::int64_t row, const std::vector<float>& came, int rollbacks,
                 bool rotates) const {
    const std::int64_t width = kept.size(2);
    for (std::int64_t h = 0; h < kept.size(0); ++h) {
      std::vector<double> expected(came.begin() + h * width, came.begin() + (h + 1) * width);
      if (rotates) expected = rotated(expected);
      for (std::int64_t c = 0; c < width; ++c) {
        const float x = kept.at<float>(h, row, c);
        if (!has_codes())
          require(same(x, came[index(h * width + c)]));
        else
          require(std::abs(static_cast<double>(x) - expected[index(c)]) <= largest_error(rollbacks, rotates));
      }
    }
  }

  // Multiplies by the Hadamard matrix, from its definition: element (i, j) is (-1)^popcount(i & j).
  static std::vector<double> rotated(const std::vector<double>& x) {
    std::size_t n = 1;
    while (x.size() % (2 * n) == 0) n *= 2;
    std::vector<double> y(x.size(), 0.0);
    for (std::size_t i = 0; i < x.size(); ++i)
      for (std::size_t j = 0; j < n; ++j)
        y[i] += (std::popcount(i % n & j) % 2 == 0 ? 1 : -1) * x[i / n * n + j] /
                std::sqrt(static_cast<double>(n));
    return y;
  }

  // Bounds the quantisation error: half a step of the whole range, with scale and offset rounded to bf16 (1 /
  // 128). The error occurs once when a row is appended, and again after each rollback. Then the group's range
  // may be wider by the error so far. After rotation, 8 numbers are at most sqrt(8) times as large.
  double largest_error(int rollbacks, bool rotates) const {
    double magnitude = largest_ * (rotates ? std::sqrt(8.0) : 1.0), error = 0;
    for (int n = 0; n <= rollbacks; ++n) {
      const double step = cache_->format() == CacheFormat::int8   ? magnitude / 127
                          : cache_->format() == CacheFormat::int4 ? magnitude * (2 + 1 / 128.0) / 15
                                                                  : magnitude / 8;
      error += step * (1 + 1 / 128.0) / 2 + magnitude * 0x1p-20;
      magnitude += error;
    }
    return error;
  }

  Choices bytes_;
  Pool pool_;
  std::optional<KvCache> cache_;
  std::vector<PlainSequence> plain_;
  std::vector<std::int64_t> released_;  // in order of release
  CacheLayout layout_ = CacheLayout::contiguous;
  std::int64_t sinks_ = 0, window_ = 0;
  double largest_ = 0;  // largest absolute value appended
  bool is_borrowed_ = false, borrows_tensors_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Life(data, size).live();
  return 0;
}
