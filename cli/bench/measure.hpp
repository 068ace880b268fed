// Times one call of attention beside what bounds it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/cases.hpp"
#include "ceiling/ceiling.hpp"
#include "heed/kv_cache.hpp"
#include "heed/random.hpp"
#include "heed/tensor.hpp"

namespace heed::cli {

struct Measured {
  double seconds = 0;  ///< of a call: the median
  double flops = 0;    ///< effective: 4 B H Lq Lk D, half of it for causal
  /// What bounds the call: the longest of its arithmetic at the peak, its keys and values at the bandwidth of
  /// reading, and its weights (or scores) at that of writing.
  ceiling::Limit limit = ceiling::Limit::f32_multiply_add;
  double rate = 0;           ///< of that limit, in flop/s or byte/s: the best of the bursts between the calls
  double limit_seconds = 0;  ///< what a call would take at it
  std::string isa;

  [[nodiscard]] double gflops() const { return flops / seconds / 1e9; }
  [[nodiscard]] double ceiling_gflops() const { return flops / limit_seconds / 1e9; }
  [[nodiscard]] double share() const { return limit_seconds / seconds; }
};

/// Keeps the tensors of the last case, for the next one of the same shape.
class Bench {
 public:
  /// `repeat` calls, or as many as half a second holds (and at least 3), after one to warm up.
  [[nodiscard]] Measured measure(const BenchCase& what, std::optional<std::int64_t> repeat);

 private:
  void prepare(const BenchCase& what);
  void fill_tensors(const BenchCase& what, std::int64_t copies, Generator& generator);
  [[nodiscard]] std::int64_t copies() const;
  [[nodiscard]] AttentionResult first_call(const AttentionOptions& options) const;
  /// Seconds of a call with one copy.
  [[nodiscard]] double timed_call(const AttentionOptions& options, std::int64_t copy,
                                  const AttentionOutputs& outputs) const;

  ceiling::Meter meter_;
  BenchCase prepared_;
  Tensor query_;
  Tensor keys_;    // [copies, B, Hkv, Lk, D]
  Tensor values_;  // the same
  std::vector<KvCache> caches_;
};

}  // namespace heed::cli
