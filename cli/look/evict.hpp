// The effect of eviction policies on a call: --evict.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "heed/attention/eviction.hpp"
#include "heed/inspect/document.hpp"
#include "look/arguments.hpp"

namespace heed::cli {

/// A policy and its effect on the call.
struct Eviction {
  std::string policy;       ///< as given
  std::int64_t prompt = 0;  ///< rows read in full before eviction starts
  EvictionTrace trace;
};

/// A row and its masked mass: the share of its weights on evicted keys.
struct RowLoss {
  std::int64_t row = 0;
  double dropped = 0;
};

/// The losses of a head's rows.
struct HeadLoss {
  std::int64_t batch = 0, head = 0;
  double mean = 0;            ///< over the rows after the prompt; NaN if any of them is NaN
  std::vector<RowLoss> most;  ///< largest loss first; rows without loss are left out
};

/// Throws UsageError if --prompt does not fit the call or a policy.
void check_evictions(const Document& document, const LookArguments& arguments);

/// Runs each --evict in turn and reports to `progress`. Throws Error (invalid_argument) for a call that
/// cannot be decoded row by row.
[[nodiscard]] std::vector<Eviction> evictions_of(
    const Document& document, const LookArguments& arguments,
    const std::function<void(std::string_view policy, double share)>& progress);

/// The losses of the requested heads, each with its --top-k rows of largest loss.
[[nodiscard]] std::vector<HeadLoss> losses_of(const Eviction& eviction, const LookArguments& arguments);

}  // namespace heed::cli
