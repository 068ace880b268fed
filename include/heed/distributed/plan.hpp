// A cost model of the schemes of distributed attention: memory, traffic and time (docs/distributed.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "heed/attention/attention.hpp"
#include "heed/attention/sharding.hpp"
#include "heed/distributed/scheme.hpp"
#include "heed/export.hpp"

namespace heed::distributed {

/// Machine data. Rank r runs on node r / ranks_per_node.
struct Machines {
  int ranks_per_node = 1;
  /// Effective flops of one rank's kernel, 2 (D + Dv) per pair of query and key.
  double flops_per_second = 0;
  double bytes_per_second = 0;         ///< bandwidth of a rank between nodes, in each direction at once
  double node_bytes_per_second = 8e9;  ///< the same between ranks of one node, through memory
  double latency_seconds = 0;          ///< latency of a message
};

/// Throws Error (invalid_argument) for ranks_per_node below 1, rates that are not finite and positive, and a
/// latency that is negative or not finite. The message starts with the member's name.
HEED_API void check_machines(const Machines& machines);

/// Default machine data: a kernel of 100 GFLOP/s per core, links of 25 Gbit/s.
[[nodiscard]] inline Machines assumed_machines(int ranks_per_node) {
  return {.ranks_per_node = ranks_per_node,
          .flops_per_second = 1e11,
          .bytes_per_second = 3e9,
          .latency_seconds = 1e-5};
}

/// The results of a call besides its output.
enum class Results {
  of_rows,  ///< none, or results of rows: lse, entropy, top-k, …
  weights,  ///< also weights, scores or masked mass
  sums,     ///< also received or map: sums over rows
};

/// The shapes and the mask of a call. Query i is at position i + query_offset.
struct PlannedCall {
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_dim = 64;
  std::int64_t value_dim = 64;
  int element_bytes = 4;  ///< element size of query, key, value and output
  bool causal = false;
  Window window{};
  std::int64_t query_offset = 0;
  bool gradients = false;  ///< includes the backward pass
  Results results = Results::of_rows;
};

/// The cost of one call with a scheme. If the scheme is not possible, the numbers are 0.
struct SchemePlan {
  Scheme scheme = Scheme::automatic;
  bool possible = false;
  std::string note;           ///< why it is impossible, or what slows it down; may be empty
  double bytes_per_rank = 0;  ///< memory of tensors and buffers of the rank that holds most
  double bytes_sent = 0;      ///< traffic of the rank that sends most
  double seconds = 0;
  double efficiency = 0;  ///< one rank's seconds for all the arithmetic / (ranks * seconds)
};

/// Costs of ring, gather, ulysses and decode for a call whose queries and keys are split by the given
/// shardings. Arithmetic counts the pairs that causal and window allow; a backward pass costs 2.5 times as
/// much. The formulas take O(ranks * ranges of a rank); tests compare them with a simulation of links and
/// processors. Throws Error (invalid_argument) as check_machines() does, and for shardings over different
/// numbers of ranks. It also refuses sizes outside 1 to 65536 (including batch * kv_heads), lengths outside 1
/// to 2^30, larger offsets and windows, and heads that are no multiple of kv_heads.
[[nodiscard]] HEED_API std::vector<SchemePlan> plan(const PlannedCall& call, const Machines& machines,
                                                    const Sharding& queries, const Sharding& keys);

/// The possible scheme with the fewest seconds; the first among equals. Throws Error (invalid_argument) if
/// none is possible. In a result of plan(), one always is.
[[nodiscard]] HEED_API Scheme choose(std::span<const SchemePlan> plans);

}  // namespace heed::distributed
