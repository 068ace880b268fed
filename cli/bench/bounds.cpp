#include "bench/bounds.hpp"

#include <algorithm>
#include <initializer_list>

namespace heed::cli {
namespace {

using ceiling::Limit;

// Flops a byte from which on no machine waits for its memory.
constexpr double kArithmeticOnly = 64;

double count_of(std::initializer_list<std::int64_t> sizes) {
  double product = 1;
  for (const std::int64_t size : sizes) product *= static_cast<double>(size);
  return product;
}

}  // namespace

double flops_of(const BenchCase& what) {
  const BenchShape& s = what.shape;
  return count_of({4, s.batch, s.heads, s.query_length, s.key_length, s.head_dim}) * (what.causal ? 0.5 : 1);
}

double key_value_bytes(const BenchShape& s, DType dtype) {
  return count_of({2, s.batch, s.kv_heads, s.key_length, s.head_dim}) * static_cast<double>(size_of(dtype));
}

bool may_wait_for_memory(const BenchCase& what) {
  return flops_of(what) / key_value_bytes(what.shape, what.dtype) < kArithmeticOnly;
}

std::vector<Bound> bounds_of(const BenchCase& what, std::string_view isa) {
  const BenchShape& s = what.shape;
  std::vector<Bound> bounds = {{ceiling::arithmetic_of(what.dtype, isa), flops_of(what)}};
  const double read = key_value_bytes(s, what.dtype);
  if (may_wait_for_memory(what)) bounds.push_back({Limit::memory_read, read});
  double written = 0;
  for (const char* name : {"weights", "scores"})
    if (std::find(what.needs.begin(), what.needs.end(), name) != what.needs.end())
      written += count_of({s.batch, s.heads, s.query_length, s.key_length}) * sizeof(float);
  if (written > 0) bounds.push_back({Limit::memory_write, written});
  return bounds;
}

Bound& tightest(std::vector<Bound>& bounds) {
  return *std::max_element(bounds.begin(), bounds.end(),
                           [](const Bound& a, const Bound& b) { return a.seconds() < b.seconds(); });
}

}  // namespace heed::cli
