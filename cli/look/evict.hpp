// heed look --evict: what eviction policies would have done to a call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heed/attention/eviction.hpp"
#include "look/subject.hpp"

namespace heed::cli {

/// A policy of --evict, with its text as given.
struct EvictionChoice {
  std::string text;
  EvictionPolicy policy;
};

struct EvictQuestion {
  std::vector<EvictionChoice> policies;
  std::optional<std::int64_t> prompt;  ///< rows read in full before eviction starts
};

void add_evict_options(CLI::App& app, EvictQuestion& question);

/// Throws UsageError, before any work, if the call has several layers, or if --prompt does not fit the call
/// or a policy. Throws Error (invalid_argument) for a call that cannot be decoded row by row.
void answer_evict(Subject subject, const EvictQuestion& question);

}  // namespace heed::cli
