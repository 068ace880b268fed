// What bounds a call of attention: its arithmetic, the keys and values that it reads, the matrices that it
// writes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "bench/cases.hpp"
#include "ceiling/ceiling.hpp"
#include "heed/dtype.hpp"

namespace heed::cli {

/// One thing that a call must do, and how fast the machine can.
struct Bound {
  ceiling::Limit limit;
  double amount;    ///< flops or bytes
  double rate = 0;  ///< flop/s or byte/s
  [[nodiscard]] double seconds() const { return amount / rate; }
};

/// Effective flops: 4 B H Lq Lk D, half of it for causal; of a ragged cache 4 H Lq D times all its keys.
[[nodiscard]] double flops_of(const BenchCase& what);

/// Of all keys and values, with the scales and offsets of codes.
[[nodiscard]] double key_value_bytes(const BenchCase& what);

/// Whether some machine can compute faster than it reads the call's keys and values.
[[nodiscard]] bool may_wait_for_memory(const BenchCase& what);

/// What the call must do on a target, the rates still unknown.
[[nodiscard]] std::vector<Bound> bounds_of(const BenchCase& what, std::string_view isa);

/// The bound that takes longest at its rate.
[[nodiscard]] Bound& tightest(std::vector<Bound>& bounds);

}  // namespace heed::cli
