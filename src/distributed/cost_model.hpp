// The common inputs of all schemes' cost formulas. docs/distributed.md has the formulas that are not here.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "heed/attention/attention.hpp"
#include "heed/attention/sharding.hpp"
#include "heed/distributed/plan.hpp"

namespace heed::distributed {

/// Query i stands at i + offset. If causal, it sees keys j <= i + offset; it sees only keys in its window, of
/// which a side of -1 is open.
struct Visibility {
  bool causal = false;
  Window window{};
  std::int64_t offset = 0;

  /// The number of pairs (i, j) in which i sees j. Exact if all positions are at most 2^30 in size.
  [[nodiscard]] std::int64_t cells(PositionRange queries, PositionRange keys) const;
  [[nodiscard]] std::int64_t cells(std::span<const PositionRange> queries, PositionRange keys) const;

  /// The range from the first to the last key that any of the queries (at least one) sees, out of `length`
  /// keys.
  [[nodiscard]] PositionRange seen(PositionRange queries, std::int64_t length) const;
};

/// The keys of one span, the kernel's kSpan. Blocks that travel are spans.
constexpr std::int64_t kSpanKeys = 3072;
/// The state of a row beside its output: 64-byte lanes of f32.
constexpr double kStateLanes = 5 * 16;
/// The backward pass computes five products, the forward pass two.
constexpr double kBackwardWork = 2.5;

inline double as_double(std::int64_t n) { return static_cast<double>(n); }
inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

struct CostModel {
  const PlannedCall& call;
  const Machines& machines;
  const Sharding& queries;
  const Sharding& keys;

  [[nodiscard]] int ranks() const { return queries.ranks(); }
  [[nodiscard]] Visibility sees() const { return {call.causal, call.window, call.query_offset}; }
  /// The number of key heads of all batch entries.
  [[nodiscard]] std::int64_t units() const { return call.batch * call.kv_heads; }
  /// Query heads per key head.
  [[nodiscard]] double group() const {
    return static_cast<double>(call.heads) / static_cast<double>(call.kv_heads);
  }
  [[nodiscard]] double query_bytes() const { return bytes(call.head_dim); }
  [[nodiscard]] double output_bytes() const { return bytes(call.value_dim); }
  [[nodiscard]] double key_bytes() const { return query_bytes() + output_bytes(); }
  [[nodiscard]] double state_bytes() const { return 4 * (static_cast<double>(call.value_dim) + kStateLanes); }

  /// The time of a forward pass over the cells of one query head.
  [[nodiscard]] double seconds_of(double cells) const {
    return cells * 2 * static_cast<double>(call.head_dim + call.value_dim) / machines.flops_per_second;
  }
  /// The time of a byte from one of the other ranks, on average.
  [[nodiscard]] double seconds_per_byte() const;
  /// The time of a byte on the slowest existing link.
  [[nodiscard]] double slowest_seconds_per_byte() const;
  /// The cells of one query head that a rank's rows see, or that all rows see.
  [[nodiscard]] double cells_of(int rank) const;
  [[nodiscard]] double all_cells() const;
  /// The bytes of queries, outputs, keys and values, and of their gradients if the call has any.
  [[nodiscard]] double shard_bytes(int rank) const;

 private:
  [[nodiscard]] double bytes(std::int64_t elements) const {
    return static_cast<double>(elements) * call.element_bytes;
  }
};

struct Cost {
  double memory = 0;  // bytes of the rank that holds the most
  double sent = 0;    // bytes by the rank that sends the most
  double seconds = 0;
  std::string note;
};

/// The bytes and messages of each rank in one step of a scheme in which all links work at once.
class Traffic {
 public:
  explicit Traffic(const CostModel& model);
  void receive(int rank, double bytes, double messages);
  void send(int rank, double bytes, double messages);
  [[nodiscard]] double receiving(int rank) const { return seconds_of(in_[static_cast<std::size_t>(rank)]); }
  [[nodiscard]] double sending(int rank) const { return seconds_of(out_[static_cast<std::size_t>(rank)]); }
  /// The time of the slowest rank.
  [[nodiscard]] double seconds() const;
  [[nodiscard]] double sent(int rank) const { return out_[static_cast<std::size_t>(rank)].bytes; }

 private:
  struct OneWay {
    double bytes = 0;
    double messages = 0;
  };
  [[nodiscard]] double seconds_of(const OneWay& way) const;

  const CostModel& model_;
  std::vector<OneWay> in_;
  std::vector<OneWay> out_;
};

/// A note if one rank's rows see many more keys than another rank's.
[[nodiscard]] std::string imbalance_note(const CostModel& model);

[[nodiscard]] Cost ring_cost(const CostModel& model);
[[nodiscard]] Cost gather_cost(const CostModel& model);
[[nodiscard]] Cost ulysses_cost(const CostModel& model);
[[nodiscard]] Cost decode_cost(const CostModel& model);

}  // namespace heed::distributed
