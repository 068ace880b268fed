// What each scheme of attention over machines would hold, send and take (docs/distributed.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "heed/attention.hpp"
#include "heed/distributed_scheme.hpp"
#include "heed/export.hpp"
#include "heed/sharding.hpp"

namespace heed::distributed {

/// Rank r runs on node r / ranks_per_node.
struct Machines {
  int ranks_per_node = 1;
  double flops_per_second = 0;  ///< of one rank's kernel: effective flops, 2 (D + Dv) for a query and a key
  double bytes_per_second = 0;  ///< that a rank sends, and at the same time receives, between nodes
  double node_bytes_per_second = 8e9;  ///< the same between ranks of one node, through its memory
  double latency_seconds = 0;          ///< of a message
};

/// Throws Error (invalid_argument) for no ranks on a node, rates that are not finite and above 0, and a
/// latency that is not finite or negative: a sentence that begins with the member's name.
HEED_API void check_machines(const Machines& machines);

/// What machines are taken for that nobody described: a core's kernel of 100 GFLOP/s, links of 25 Gbit/s.
[[nodiscard]] inline Machines assumed_machines(int ranks_per_node) {
  return {.ranks_per_node = ranks_per_node,
          .flops_per_second = 1e11,
          .bytes_per_second = 3e9,
          .latency_seconds = 1e-5};
}

/// What a call gives besides its output.
enum class Results {
  of_rows,  ///< lse, max_score, entropy, distance, top-k, or nothing
  weights,  ///< also weights, scores or dropped
  sums,     ///< also received or map: sums over rows
};

/// The shapes and the mask of a call. Query i stands at position i + query_offset.
struct PlannedCall {
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_dim = 64;
  std::int64_t value_dim = 64;
  int element_bytes = 4;  ///< of query, key, value and output
  bool causal = false;
  Window window{};
  std::int64_t query_offset = 0;
  bool gradients = false;  ///< the backward pass, too
  Results results = Results::of_rows;
};

/// What a scheme takes for one call. Where it is not possible, the figures are 0.
struct SchemePlan {
  Scheme scheme = Scheme::automatic;
  bool possible = false;
  std::string note;           ///< why it is not possible, or what slows it down; may be empty
  double bytes_per_rank = 0;  ///< of memory: tensors and buffers of the rank that holds the most
  double bytes_sent = 0;      ///< by the rank that sends the most
  double seconds = 0;
  double efficiency = 0;  ///< one rank's seconds for all the arithmetic / (ranks * seconds)
};

/// Ring, gather, ulysses and decode, for a call whose queries and keys lie as the shardings say. Arithmetic
/// counts the queries and keys that causal and window leave, 2.5 times as much for a backward pass.
/// Formulas in O(ranks * ranges of a rank); tests hold them to a simulation of links and processors.
/// Throws Error (invalid_argument) as check_machines() does, for sizes that are not 1 to 65536 (batch *
/// kv_heads, too), heads that are no multiple of kv_heads, lengths that are not 1 to 2^30, offsets and
/// windows beyond that, and shardings over unequal numbers of ranks.
[[nodiscard]] HEED_API std::vector<SchemePlan> plan(const PlannedCall& call, const Machines& machines,
                                                    const Sharding& queries, const Sharding& keys);

/// The possible one that takes the fewest seconds; of equal ones the first. Throws Error (invalid_argument)
/// where none is possible; one of plan()'s always is.
[[nodiscard]] HEED_API Scheme choose(std::span<const SchemePlan> plans);

}  // namespace heed::distributed
