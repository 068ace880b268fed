#include "bench/bounds.hpp"

#include <algorithm>
#include <initializer_list>
#include <numeric>

namespace heed::cli {
namespace {

using ceiling::Limit;

// No machine is limited by memory above this many flops per byte.
constexpr double kArithmeticOnly = 64;

double count_of(std::initializer_list<std::int64_t> sizes) {
  double product = 1;
  for (const std::int64_t size : sizes) product *= static_cast<double>(size);
  return product;
}

double keys_of(const BenchCase& what) {
  const std::vector<std::int64_t> lengths = key_lengths(what);
  return static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}));
}

// Bytes per element, including its share of the group's scale and offset (bf16 each).
double element_bytes(const BenchCase& what) {
  if (!what.cache) return static_cast<double>(size_of(what.dtype));
  const double scale = 2.0 / static_cast<double>(KvCacheOptions{}.group);
  switch (what.cache->format) {
    case CacheFormat::f32:
      return 4;
    case CacheFormat::bf16:
    case CacheFormat::f16:
      return 2;
    case CacheFormat::int8:
    case CacheFormat::fp8:
      return 1 + scale;
    case CacheFormat::int4:
      return 0.5 + 2 * scale;
  }
  return 0;
}

}  // namespace

double flops_of(const BenchCase& what) {
  const BenchShape& s = what.shape;
  return count_of({4, s.heads, s.query_length, s.head_dim}) * keys_of(what) * (what.causal ? 0.5 : 1);
}

double key_value_bytes(const BenchCase& what) {
  const std::int64_t tensors = what.cache && what.cache->values_in_keys ? 1 : 2;
  return count_of({tensors, what.shape.kv_heads, what.shape.head_dim}) * keys_of(what) * element_bytes(what);
}

bool may_wait_for_memory(const BenchCase& what) {
  return flops_of(what) / key_value_bytes(what) < kArithmeticOnly;
}

std::vector<Bound> bounds_of(const BenchCase& what, std::string_view isa) {
  const BenchShape& s = what.shape;
  std::vector<Bound> bounds = {{ceiling::arithmetic_of(what.dtype, isa), flops_of(what)}};
  const double read = key_value_bytes(what);
  if (may_wait_for_memory(what)) bounds.push_back({Limit::memory_read, read});
  double written = 0;
  for (const char* name : {"weights", "scores"})
    if (std::ranges::find(what.needs, name) != what.needs.end())
      written += count_of({s.batch, s.heads, s.query_length, s.key_length}) * sizeof(float);
  if (written > 0) bounds.push_back({Limit::memory_write, written});
  return bounds;
}

Bound& tightest(std::vector<Bound>& bounds) { return *std::ranges::max_element(bounds, {}, &Bound::seconds); }

}  // namespace heed::cli
