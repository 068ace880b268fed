// What policies would have thrown away of a call: --evict.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "heed/document.hpp"
#include "heed/eviction.hpp"
#include "look/arguments.hpp"

namespace heed::cli {

/// One policy and what it did to the call.
struct Eviction {
  std::string policy;       ///< as it was given
  std::int64_t prompt = 0;  ///< rows that were read whole
  EvictionTrace trace;
};

/// A row and the share of its weights that it lost.
struct RowLoss {
  std::int64_t row = 0;
  double dropped = 0;
};

/// What the rows of a head lost.
struct HeadLoss {
  std::int64_t batch = 0, head = 0;
  double mean = 0;            ///< over the rows after the prompt; NaN where one is
  std::vector<RowLoss> most;  ///< the largest first; rows that lost nothing are left out
};

/// Throws UsageError where --prompt does not fit the call or a policy.
void check_evictions(const Document& document, const LookArguments& arguments);

/// Each --evict in turn, which `progress` is told. Throws Error (invalid_argument) for a call that cannot be
/// decoded row by row.
[[nodiscard]] std::vector<Eviction> evictions_of(
    const Document& document, const LookArguments& arguments,
    const std::function<void(std::string_view policy, double share)>& progress);

/// Of the heads asked for, with the --top-k rows that lost most.
[[nodiscard]] std::vector<HeadLoss> losses_of(const Eviction& eviction, const LookArguments& arguments);

}  // namespace heed::cli
