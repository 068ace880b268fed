// Times an attention call and the limits of the machine beside it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/cases.hpp"
#include "ceiling/ceiling.hpp"
#include "heed/attention/kv_cache.hpp"
#include "heed/random.hpp"
#include "heed/tensor.hpp"

namespace heed::cli {

struct Measured {
  double seconds = 0;  ///< median of a call
  double flops = 0;    ///< effective: 4 B H Lq Lk D, half of it if causal
  /// The limit that takes longest: arithmetic at the peak rate, keys and values at the read bandwidth, or
  /// weights and scores at the write bandwidth.
  ceiling::Limit limit = ceiling::Limit::f32_multiply_add;
  double rate = 0;           ///< rate of that limit in flop/s or byte/s: the best burst between the calls
  double limit_seconds = 0;  ///< time of a call at that rate
  std::string isa;

  [[nodiscard]] double gflops() const { return flops / seconds / 1e9; }
  [[nodiscard]] double ceiling_gflops() const { return flops / limit_seconds / 1e9; }
  [[nodiscard]] double share() const { return limit_seconds / seconds; }
};

/// Keeps the tensors of the last case and reuses them for the next case of the same shape.
class Bench {
 public:
  /// Times `repeat` calls, by default as many as fit in half a second (at least 3). One call before warms up.
  [[nodiscard]] Measured measure(const BenchCase& what, std::optional<std::int64_t> repeat);

 private:
  void prepare(const BenchCase& what);
  void fill_tensors(const BenchCase& what, std::int64_t copies, Generator& generator);
  [[nodiscard]] std::int64_t copies() const;
  [[nodiscard]] AttentionResult first_call(const AttentionOptions& options) const;
  /// Seconds of a call on one copy of the keys and values.
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
