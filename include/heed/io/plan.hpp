// The plan of a call as text for programs.
#pragma once

#include <string>

#include "heed/attention/plan.hpp"
#include "heed/export.hpp"

namespace heed::io {

/// The plan as JSON on one line, as `heed attend --plan --json` prints it: {"kernel": "fused", "isa",
/// "because", "passes": [{"name", "unit", "path", "schedule", "tasks", "rows", "keys", "threads", "bytes",
/// "because"}], "flops", "result_bytes", "falls_back"}. flops is 2 multiply_adds.
[[nodiscard]] HEED_API std::string to_json(const AttentionPlan& plan);

}  // namespace heed::io
