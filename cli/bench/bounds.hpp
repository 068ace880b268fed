// Lower bounds on the time of an attention call: its arithmetic, the keys and values that it reads, the
// matrices that it writes.
#pragma once

#include <string_view>
#include <vector>

#include "bench/cases.hpp"
#include "ceiling/ceiling.hpp"

namespace heed::cli {

/// One kind of work that a call must do, and the rate at which the machine can do it.
struct Bound {
  ceiling::Limit limit;
  double amount;    ///< flops or bytes
  double rate = 0;  ///< flop/s or byte/s
  [[nodiscard]] double seconds() const { return amount / rate; }
};

/// Effective flops: 4 B H Lq Lk D, or half of that if causal. For a ragged cache, B Lk is the sum of all
/// sequences' keys.
[[nodiscard]] double flops_of(const BenchCase& what);

/// Bytes of all keys and values, including the scales and offsets of quantised caches.
[[nodiscard]] double key_value_bytes(const BenchCase& what);

/// Whether a fast machine could be limited by reading the call's keys and values.
[[nodiscard]] bool may_wait_for_memory(const BenchCase& what);

/// The work of a call on a target; rates are not filled in yet.
[[nodiscard]] std::vector<Bound> bounds_of(const BenchCase& what, std::string_view isa);

/// The bound with the longest time at its rate.
[[nodiscard]] Bound& tightest(std::vector<Bound>& bounds);

}  // namespace heed::cli
